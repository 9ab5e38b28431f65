"""What records of ``__consumer_offsets`` and ``__transaction_state`` say, for ``log dump``."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.groups.subscription import CONSUMER, subscribed_topics
from pyrklog.protocol.compiler import message_reader
from pyrklog.protocol.fields import Int32, Message, Str
from pyrklog.protocol.group_records import (
    GroupKey,
    MemberValue,
    UnknownKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from pyrklog.protocol.primitives import DecodeError
from pyrklog.protocol.transaction_records import decode_transaction_key, decode_transaction_value
from pyrklog.transactions.states import TransactionState

Fields = dict[str, Any]
Decode = Callable[[bytes, bytes | None], tuple[Fields, Fields | None]]
"""Of a key and a value to what they say. Raises :class:`DecodeError`."""

RAW = "raw"


class _AssignedTopic(Message):
    topic: Str
    partitions: list[Int32]


class _Assignment(Message):
    """The beginning of a consumer's assignment, the same in every version."""

    topics: list[_AssignedTopic]


def refuse_kind(kind: str | None, *, records: bool) -> None:
    """Raises :class:`CliError` for an unknown ``--decode``, or one without records to show."""
    if kind is None:
        return
    if kind != RAW and kind not in _BY_KIND:
        kinds = ", ".join((*_BY_KIND, RAW))
        raise CliError(Problem.ARGUMENT_VALUE, f"--decode {kind!r} is unknown", f"one of {kinds}")
    if not records:
        raise CliError(Problem.ARGUMENTS_DISAGREE, "--decode needs --records")


def decoder(path: Path, kind: str | None) -> Decode | None:
    """For the records of a file: of the kind asked for, or of the partition whose folder it is in.
    None: they are shown as they are."""
    if kind is None:
        return _BY_TOPIC.get(path.absolute().parent.name.rpartition("-")[0])
    return _BY_KIND.get(kind)


def decoded(decode: Decode, row: Fields) -> Fields | None:
    """``key`` and ``value`` of a row; None for what is no record of this kind."""
    if row["kind"] != "record" or "control_type" in row or row["key"] is None:
        return None
    try:
        key, value = decode(row["key"], row["value"])
    except DecodeError:
        return None
    return {"key": key, "value": value}


def _of_group(key: bytes, value: bytes | None) -> tuple[Fields, Fields | None]:
    about = decode_key(key)
    if isinstance(about, UnknownKey):
        raise DecodeError(f"key version {about.version} is unknown")
    if not isinstance(about, GroupKey):
        told = None if value is None else msgspec.to_builtins(decode_offset_value(value))
        return msgspec.to_builtins(about), told
    if value is None:
        return msgspec.to_builtins(about), None
    found = decode_group_value(value)
    is_consumer = found.protocol_type == CONSUMER
    members = [_member(one, is_consumer=is_consumer) for one in found.members]
    return msgspec.to_builtins(about), {**_fields(found), "members": members}


def _member(member: MemberValue, *, is_consumer: bool) -> Fields:
    """A consumer's subscription and assignment as what they name."""
    found = _fields(member)
    if is_consumer:
        topics = subscribed_topics(member.subscription)
        assigned = _assigned(member.assignment)
        found |= {} if topics is None else {"subscription": sorted(topics)}
        found |= {} if assigned is None else {"assignment": assigned}
    return found


def _assigned(data: bytes) -> dict[str, list[int]] | None:
    """The partitions by topic; None if the bytes are no assignment."""
    if not data:
        return {}
    try:
        found, _ = message_reader(_Assignment, 0, False)(data, 2)
    except (DecodeError, IndexError, struct.error):
        return None
    return {one.topic: one.partitions for one in found.topics}


def _of_transaction(key: bytes, value: bytes | None) -> tuple[Fields, Fields | None]:
    about = msgspec.to_builtins(decode_transaction_key(key))
    if value is None:
        return about, None
    found = _fields(decode_transaction_value(value))
    status = found.pop("transaction_status")
    states = {one.value: one.name.title().replace("_", "") for one in TransactionState}
    found["state"] = states.get(status, status)
    parts = found.pop("transaction_partitions") or ()
    found["partitions"] = {one.topic: one.partition_ids for one in parts}
    return about, found


def _fields(message: Message) -> Fields:
    """Of a message, as they are."""
    return msgspec.structs.asdict(message)


_BY_KIND: dict[str, Decode] = {"offsets": _of_group, "transactions": _of_transaction}
_BY_TOPIC: dict[str, Decode] = {
    "__consumer_offsets": _of_group,
    "__transaction_state": _of_transaction,
}
