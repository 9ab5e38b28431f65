"""Messages of pgoutput, written by hand as PostgreSQL's documentation has them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.spark.postgres.pgoutput import (
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    MessageError,
    Relation,
    Truncate,
    Unchanged,
    Update,
    parse,
)


def row(*values: str | Unchanged | None) -> bytes:
    made = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            made += b"n"
        elif isinstance(value, Unchanged):
            made += b"u"
        else:
            made += b"t" + struct.pack(">I", len(value.encode())) + value.encode()
    return made


RELATION = (
    b"R" + struct.pack(">I", 77) + b"public\0pl\xc3\xa4nes\0d" + struct.pack(">H", 2)
    + b"\x01id\0" + struct.pack(">Ii", 23, -1) + b"\x00name\0" + struct.pack(">Ii", 25, -1)
)  # fmt: skip
ID = struct.pack(">I", 77)
MESSAGES = [
    (
        b"B" + struct.pack(">QqI", 2**40 + 5, 1_000_000, 2**32 - 1),
        Begin(2**40 + 5, 946_684_801_000_000, 2**32 - 1),
    ),
    (b"C" + struct.pack(">BQQq", 0, 5, 9, 0), Commit(9)),
    (
        RELATION,
        Relation(77, "public", "plänes", (Column("id", 23, True), Column("name", 25, False))),
    ),
    (b"I" + ID + b"N" + row("1", "ä"), Insert(77, ("1", "ä"))),
    (b"U" + ID + b"N" + row("1", None), Update(77, None, False, ("1", None))),
    (
        b"U" + ID + b"K" + row("1", None) + b"N" + row("2", Unchanged.VALUE),
        Update(77, ("1", None), False, ("2", Unchanged.VALUE)),
    ),
    (
        b"U" + ID + b"O" + row("1", "") + b"N" + row("1", "x"),
        Update(77, ("1", ""), True, ("1", "x")),
    ),
    (b"D" + ID + b"K" + row("1", None), Delete(77, ("1", None), False)),
    (b"D" + ID + b"O" + row("1", "x"), Delete(77, ("1", "x"), True)),
    (b"T" + struct.pack(">IBII", 2, 0, 77, 78), Truncate((77, 78))),
]


@pytest.mark.parametrize(("data", "expected"), MESSAGES)
def test_a_message_is_read(data: bytes, expected: object) -> None:
    assert parse(data) == expected


@pytest.mark.parametrize("data", [b"O" + bytes(8) + b"x\0", b"Y" + ID + b"a\0b\0", b"M"])
def test_what_changes_no_row_is_passed_over(data: bytes) -> None:
    assert parse(data) is None


@pytest.mark.parametrize("data", [data for data, _ in MESSAGES])
def test_a_cut_message_is_refused(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(MessageError):
            parse(data[:size])


@pytest.mark.parametrize("data", [b"Z", b"I" + ID + b"K" + row(), b"I" + ID + b"N\0\1b"])
def test_an_unknown_message_is_refused(data: bytes) -> None:
    with pytest.raises(MessageError):
        parse(data)


@given(st.sampled_from([data for data, _ in MESSAGES]), st.data())
def test_flipped_bits_raise_nothing_else(data: bytes, chosen: st.DataObject) -> None:
    bit = chosen.draw(st.integers(0, 8 * len(data) - 1))
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        parse(bytes(damaged))
    except MessageError:
        pass
