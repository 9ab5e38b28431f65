"""Our codecs against kafka-python's, which come from Kafka's own schemas."""

import importlib
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import NO_UUID, Message, field_table
from tests.unit.protocol.messages import CASES, EXAMPLES, decode, encode, ids, messages

# kafka-python gives a bit set another name and a set of bit numbers; only the bytes are compared.
_RENAMED = {"cluster_authorized_operations", "authorized_operations"}
_UNKNOWN_THERE = {71, 72, 74}
"""Keys of APIs that kafka-python does not have: client metrics."""
_OUR_TAGS_FROM = 10_000
"""Tagged fields that only pyrklog has."""
_CASES = [case for case in CASES if case[0].key not in _UNKNOWN_THERE]
_MODULES = tuple(
    f"kafka.protocol.{name}" for name in ("admin", "producer", "metadata", "consumer", "sasl")
)


def their_class(api: Api[Any, Any], kind: str) -> Any:
    name = f"{api.name}{kind.capitalize()}"
    for module in map(importlib.import_module, _MODULES):
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(name)


def without_ours(message: Message) -> None:
    """Gives fields that Kafka does not have their defaults, with which they are not written."""
    specs = {spec.name: spec for spec in field_table(type(message))}
    for field in msgspec.structs.fields(message):
        tag, value = specs[field.name].tag, getattr(message, field.name)
        if tag is not None and tag >= _OUR_TAGS_FROM:
            setattr(message, field.name, field.default)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                without_ours(one)


def assert_same_values(ours: Message, theirs: Any, version: int) -> None:
    """Each field of the version has the same value on both sides."""
    for spec in field_table(type(ours)):
        is_ours = spec.tag is not None and spec.tag >= _OUR_TAGS_FROM
        if spec.in_version(version) and spec.name not in _RENAMED and not is_ours:
            left, right = getattr(ours, spec.name), getattr(theirs, spec.name)
            _assert_same(spec.name, left, right, version)


def _assert_same(name: str, left: Any, right: Any, version: int) -> None:
    if isinstance(left, Message):
        assert_same_values(left, right, version)
    elif isinstance(left, list) and right is not None:
        assert len(left) == len(right), name
        for one, other in zip(left, right, strict=True):
            _assert_same(name, one, other, version)
    elif isinstance(left, bytes):
        assert left == (NO_UUID if right is None else getattr(right, "bytes", right)), name
    else:
        assert left == right, name


@pytest.mark.parametrize(("api", "kind", "version"), _CASES, ids=ids(_CASES))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kafka_python_reads_what_we_write_and_writes_the_same_bytes(
    api: Api[Any, Any], kind: str, version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(getattr(api, kind), version))
    without_ours(message)
    ours = encode(api, kind, message, version)
    theirs = their_class(api, kind).decode(ours, version=version)
    assert_same_values(message, theirs, version)
    theirs._header = None  # encode() reads it, decode() without a header leaves it unset
    written = bytes(theirs.encode(version=version))
    assert written == ours
    assert decode(api, kind, written, version) == message
