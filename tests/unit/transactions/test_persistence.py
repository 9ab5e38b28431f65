"""The records of ``__transaction_state``, against bytes that follow Kafka's message definitions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.protocol.primitives import DecodeError
from pyrklog.protocol.transaction_records import (
    TransactionKey,
    decode_transaction_key,
    encode_transaction_key,
)
from pyrklog.transactions.metadata import TransactionMetadata
from pyrklog.transactions.persistence import metadata_from, record
from pyrklog.transactions.states import TransactionState as State

KEY = bytes.fromhex("0000 0002 7478")
"""Version 0, "tx"."""

EMPTY = bytes.fromhex(
    "0000"  # version
    "0000000000000007"  # producer id
    "0003"  # epoch
    "0000ea60"  # time-out
    "00"  # Empty
    "ffffffff"  # no partitions
    "00000000000003e8"  # last update
    "ffffffffffffffff"  # no start
)
ONGOING = bytes.fromhex(
    "0000 0000000000000007 0003 0000ea60 01"
    "00000001 0001 74 00000002 00000000 00000001"  # t: 0, 1
    "00000000000003e8 00000000000003de"
)
VERSION_2 = bytes.fromhex(
    "0001 0000000000000007 7fff 0000ea60 02"
    "02 02 74 02 00000000 00"  # compact: one topic, t: 0
    "00000000000003e8 00000000000003de"
    "03"  # three tagged fields
    "00 08 0000000000000006"  # previous producer id
    "01 08 0000000000000009"  # next producer id
    "02 02 0002"  # the client's transaction version
)


def metadata(state: State, epoch: int = 3, **more: Any) -> TransactionMetadata:
    return TransactionMetadata(7, epoch, 60_000, state, updated_ms=1000)._replace(**more)


CASES = [
    (metadata(State.EMPTY), EMPTY),
    (
        metadata(State.ONGOING, partitions=frozenset({("t", 1), ("t", 0)}), start_ms=990),
        ONGOING,
    ),
    (
        metadata(
            State.PREPARE_COMMIT,
            epoch=32767,
            partitions=frozenset({("t", 0)}),
            start_ms=990,
            previous_producer_id=6,
            next_producer_id=9,
            client_version=2,
        ),
        VERSION_2,
    ),
]


@pytest.mark.parametrize(("content", "value"), CASES, ids=["empty", "ongoing", "version 2"])
def test_records_are_kafkas(content: TransactionMetadata, value: bytes) -> None:
    written = record("tx", content)
    assert (written.key, written.value) == (KEY, value)
    assert metadata_from(value) == content
    assert decode_transaction_key(KEY).transactional_id == "tx"


def test_a_tombstone_has_no_value() -> None:
    assert record("tx", None) == (KEY, None, ())


def test_unknown_tagged_fields_are_skipped() -> None:
    """Kafka 4.1 has a fourth one."""
    value = VERSION_2.replace(b"\x03\x00\x08", b"\x04\x00\x08") + bytes.fromhex("03 02 0005")
    assert metadata_from(value) == CASES[2][0]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0",
        b"\0\2" + EMPTY[2:],
        EMPTY[:-1],
        EMPTY[:16] + b"\x06" + EMPTY[17:],
        EMPTY[:16] + b"\x07" + EMPTY[17:],
        EMPTY[:16] + b"\x09" + EMPTY[17:],
        ONGOING[:17] + b"\x7f\xff\xff\xff" + ONGOING[21:],
    ],
    ids=["nothing", "cut", "version", "short", "dead", "fence", "status", "counts"],
)
def test_other_values_are_refused(value: bytes) -> None:
    with pytest.raises(DecodeError):
        metadata_from(value)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1\0\2tx", b"\0\0\0\3tx"])
def test_other_keys_are_refused(key: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_transaction_key(key)


@given(st.text(max_size=50).filter(lambda text: text.isprintable()))
def test_any_id_is_read_back(name: str) -> None:
    key = encode_transaction_key(TransactionKey(name))
    assert decode_transaction_key(key).transactional_id == name


@given(st.binary(max_size=60))
def test_garbage_is_read_or_refused(data: bytes) -> None:
    try:
        content = metadata_from(data)
    except DecodeError:
        return
    value = record("x", content).value
    assert value is not None
    assert content.state in State
