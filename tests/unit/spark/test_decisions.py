"""Decisions as they are kept in the topic."""

from __future__ import annotations

import pytest

from pyrklog.producing import OpenTransaction
from pyrklog.spark.decisions import (
    PARTITIONS,
    Decision,
    DecisionLogError,
    decoded,
    encoded,
    partition_of,
)

ONE = OpenTransaction("pyrklog-spark/s/p/0", 7, 3)


def test_the_text_is_fixed() -> None:
    """Other versions read it."""
    assert encoded(Decision(17, (ONE,))) == (
        b'{"version":1,"number":17,"state":"decided","transactions":[["pyrklog-spark/s/p/0",7,3]]}'
    )
    assert encoded(Decision(17, is_done=True)) == (
        b'{"version":1,"number":17,"state":"done","transactions":[]}'
    )


def test_it_reads_back() -> None:
    for decision in (Decision(0), Decision(2**62, (ONE, ONE)), Decision(3, is_done=True)):
        assert decoded(encoded(decision)) == decision


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b'{"version":2,"number":1}', "has version 2, and this is 1"),
        (b"\xff", "a value that is no decision"),
        (b"[]", "a value that is no decision"),
        (b'{"version":1,"number":1,"state":"x","transactions":[]}', "a value that is no decision"),
        (b'{"version":1,"number":1,"state":"done","transactions":[1]}', "no decision"),
        (b'{"version":1,"state":"done","transactions":[]}', "a value that is no decision"),
    ],
)
def test_what_is_no_decision_is_told(value: bytes, told: str) -> None:
    with pytest.raises(DecisionLogError, match=told):
        decoded(value)


def test_partitions_never_change() -> None:
    """A decision that is looked for elsewhere is not found."""
    assert PARTITIONS == 16
    sinks = ("", "orders", "5f0c3a52-7a55-4c5d-8d0f-0a6f5d1e9c11")
    assert [partition_of(sink) for sink in sinks] == [0, 14, 10]
