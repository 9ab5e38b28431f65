"""A transaction is over before its time is, also at a target that takes bytes slowly."""

from __future__ import annotations

import pytest

from pyrklog.mirror.transaction_size import (
    BATCH_BYTES_MIN,
    BYTES_MAX,
    BYTES_MIN,
    TIMEOUT_MS_MAX,
    TransactionSize,
)

MB = 1 << 20


def test_a_fast_target_gets_large_ones() -> None:
    size = TransactionSize()
    size.took(BYTES_MAX, 1.0)
    assert size.bytes == BYTES_MAX
    assert size.batch_bytes(8 * MB) == 8 * MB


def test_a_slow_target_gets_what_it_takes_in_a_quarter_of_the_time() -> None:
    size = TransactionSize()
    size.took(40 * MB, 40.0)
    assert size.goal_s == 15.0
    assert size.bytes == 15 * MB
    assert size.batch_bytes(8 * MB) == 15 * MB // 4


def test_they_grow_again_but_not_for_those_that_had_little_to_write() -> None:
    size = TransactionSize()
    size.took(40 * MB, 40.0)
    size.took(100, 0.01)
    assert size.bytes == 15 * MB
    size.took(15 * MB, 7.0)
    assert size.bytes == 30 * MB
    size.took(30 * MB, 14.0)
    assert size.bytes == 30 * MB


def test_after_a_time_out_they_are_halved() -> None:
    size = TransactionSize()
    assert size.timed_out(40 * MB, is_ended=True)
    assert size.bytes == 20 * MB
    assert size.timed_out(20 * MB, is_ended=True)
    assert size.bytes == 10 * MB


def test_the_smallest_ones_get_more_time() -> None:
    size = TransactionSize()
    tries = 0
    while size.timed_out(size.bytes, is_ended=True):
        tries += 1
    assert (size.bytes, size.timeout_ms) == (BYTES_MIN, TIMEOUT_MS_MAX)
    assert tries == 14
    assert size.batch_bytes(8 * MB) == BATCH_BYTES_MIN


def test_a_single_record_that_is_larger_gets_more_time_at_once() -> None:
    size = TransactionSize()
    assert size.timed_out(30 * MB, is_ended=True)
    assert size.timed_out(30 * MB, is_ended=True)
    assert (size.bytes, size.timeout_ms) == (15 * MB, 120_000)


def test_a_target_that_does_not_take_the_smallest_is_away() -> None:
    """More time is only for one whose coordinator answers."""
    size = TransactionSize()
    assert size.timed_out(MB, is_ended=False)
    assert size.bytes == MB // 2
    assert size.timed_out(100, is_ended=False)
    for _ in range(3):
        assert not size.timed_out(100, is_ended=False)
    assert (size.bytes, size.timeout_ms) == (BYTES_MIN, 60_000)


@pytest.mark.parametrize(("open_s", "found"), [(1.0, False), (53.0, False), (54.0, True)])
def test_whether_a_coordinator_may_have_ended_it(open_s: float, found: bool) -> None:
    assert TransactionSize().is_timed_out(open_s) == found


def test_time_outs_follow_one_another() -> None:
    """A request is given up before its batch, and that before the transaction's time is over."""
    size = TransactionSize()
    for _ in range(2):
        times = (size.request_timeout_ms, size.delivery_timeout_ms, size.timeout_ms)
        assert sorted(set(times)) == list(times)
        size.bytes = BYTES_MIN
        assert size.timed_out(100, is_ended=True)
