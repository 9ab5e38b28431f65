"""Makes any message of any API and version, from its field table."""

import os
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    Array,
    Blob,
    FieldSpec,
    Fixed,
    Message,
    Text,
    WireType,
    field_table,
)
from pyrklog.protocol.health import BROKER_HEALTH
from pyrklog.protocol.inter_broker import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from pyrklog.protocol.lag import GROUP_LAG, PARTITION_OFFSETS
from pyrklog.protocol.observation import OBSERVE_BROKER
from pyrklog.protocol.registry import API_KEYS, find_api
from pyrklog.protocol.to_controller import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
)
from pyrklog.protocol.verification import REPLICA_DIGEST, STATE_CHANGES

EXAMPLES = int(os.environ.get("PROTOCOL_EXAMPLES", "5"))
"""Per message and version; ``make test-long`` tries more."""

INTER_BROKER: tuple[Api[Any, Any], ...] = (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    CONTROLLED_SHUTDOWN,
    ALTER_PARTITION,
    ALLOCATE_PRODUCER_IDS,
)
OURS: tuple[Api[Any, Any], ...] = (
    REPLICA_DIGEST,
    STATE_CHANGES,
    OBSERVE_BROKER,
    BROKER_HEALTH,
    GROUP_LAG,
    PARTITION_OFFSETS,
)
"""APIs that Kafka does not have."""

Case = tuple[Api[Any, Any], str, int]


def _cases(apis: Iterable[Api[Any, Any]]) -> list[Case]:
    return [
        (api, kind, version)
        for api in apis
        for kind in ("request", "response")
        for version in range(api.versions[0], api.versions[1] + 1)
    ]


_SERVED = [api for api in map(find_api, API_KEYS) if api not in INTER_BROKER + OURS]
CASES = _cases(_SERVED)
"""Clients' messages."""

ALL_CASES = CASES + _cases(INTER_BROKER + OURS)


def ids(cases: Iterable[Case]) -> list[str]:
    return [f"{api.name}-{kind}-v{version}" for api, kind, version in cases]


_INTEGERS = {
    "b": (-(2**7), 2**7 - 1),
    "h": (-(2**15), 2**15 - 1),
    "H": (0, 2**16 - 1),
    "i": (-(2**31), 2**31 - 1),
    "I": (0, 2**32 - 1),
    "q": (-(2**63), 2**63 - 1),
}


def values(wire: WireType, version: int) -> st.SearchStrategy[Any]:
    match wire:
        case Fixed("?"):
            return st.booleans()
        case Fixed("16s"):
            return st.binary(min_size=16, max_size=16)
        case Fixed("d"):
            return st.floats(allow_nan=False)
        case Fixed(code):
            low, high = _INTEGERS[code]
            return st.integers(low, high)
        case Text():
            return st.text(max_size=300)
        case Blob():
            return st.binary(max_size=300)
        case Array(element, kind):
            return st.lists(values(element, version), max_size=4).map(kind)
        case _:
            return messages(wire, version)


def messages(message: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Any message; a field that the version lacks keeps its default."""
    fields = {
        spec.name: _field(spec, version)
        for spec in field_table(message)
        if spec.in_version(version)
    }
    return st.builds(message, **fields)


def _field(spec: FieldSpec, version: int) -> st.SearchStrategy[Any]:
    strategy = values(spec.type, version)
    return st.none() | strategy if spec.null_in(version) else strategy


def encode(api: Api[Any, Any], kind: str, message: Message, version: int) -> bytes:
    write = api.encode_request if kind == "request" else api.encode_response
    return write(message, version)


def decode(api: Api[Any, Any], kind: str, body: bytes, version: int) -> Message:
    read = api.decode_request if kind == "request" else api.decode_response
    message: Message = read(body, version)
    return message
