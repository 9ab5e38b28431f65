"""The histories of a coordinator's groups, within their bounds."""

import random
from collections import deque
from collections.abc import Iterable

import pytest

from pyrklog.lag import lag_histories as module
from pyrklog.lag.lag_histories import (
    NAME_BYTES_MAX,
    SERIES_BYTES,
    SERIES_SHARE,
    LagHistories,
    SeriesKey,
)
from pyrklog.lag.lag_history import NO_LAG, POINT_BYTES, SPAN_MS, Lag

START = 1_700_000_000_000
A, B = SeriesKey("a"), SeriesKey("b")


def fill(histories: LagHistories, key: SeriesKey, seconds: int) -> None:
    """Lag that no line goes through."""
    chance = random.Random(seconds)
    for at in range(seconds):
        histories.observe(key, START + at * 1000, Lag(chance.randrange(1000), at))


def names(histories: LagHistories) -> set[str]:
    return {key.group for key in histories.by_key}


def counted(histories: LagHistories) -> int:
    return sum(one.points for one in histories.by_key.values())


def test_only_what_has_moved_is_told() -> None:
    histories = LagHistories(1 << 20)
    histories.observe(A, START, Lag(5, 0))
    histories.observe(B, START, Lag(6, 0))
    assert histories.take_moved() == {A: Lag(5, 0), B: Lag(6, 0)}
    histories.observe(A, START + 1000, Lag(5, 0))
    histories.observe(B, START + 1000, NO_LAG)
    assert histories.take_moved() == {B: NO_LAG}
    assert histories.take_moved() == {}


def test_a_group_without_known_lag_has_no_history() -> None:
    histories = LagHistories(1 << 20)
    assert histories.observe(A, START, NO_LAG)
    assert not histories.by_key


def test_points_are_counted_and_bounded() -> None:
    """What somebody has asked for is kept longest, and long histories go first."""
    histories = LagHistories(64 * 1024)
    fill(histories, A, 500)
    histories.by_key[A].asked_ms = START
    asked = histories.by_key[A].points
    for number in range(20):
        fill(histories, SeriesKey(f"g{number}"), 500)
        assert histories.points == counted(histories) <= 64 * 1024 // POINT_BYTES
    assert histories.forgotten > 0
    assert histories.by_key[A].points == asked
    assert all(one.points for one in histories.by_key.values())


def test_shortening_ends_where_one_point_a_tier_is_left() -> None:
    histories = LagHistories(POINT_BYTES)
    for number in range(10):
        fill(histories, SeriesKey(f"g{number}"), 50)
    assert histories.points == counted(histories)


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 4)
    monkeypatch.setattr(module, "TOPIC_SERIES_MAX", 1)
    histories = LagHistories(1 << 20)
    lag = Lag(1, 1)
    assert histories.observe(SeriesKey("a", "t"), START, lag)
    assert not histories.observe(SeriesKey("a", "u"), START, lag)
    assert [histories.observe(SeriesKey(name), START, lag) for name in "bcde"] == [
        True,
        True,
        True,
        False,
    ]
    histories.forget([SeriesKey("a", "t"), SeriesKey("never")])
    assert histories.observe(SeriesKey("a", "u"), START, lag)


def test_long_names_are_bounded() -> None:
    histories = LagHistories(1 << 20)
    taken = sum(
        histories.observe(SeriesKey(f"{number:05}" * 6553), START, Lag(1, 1))
        for number in range(100)
    )
    assert taken == int((1 << 20) * SERIES_SHARE) // (SERIES_BYTES + 5 * 6553)
    assert not histories.observe(SeriesKey("x" * (NAME_BYTES_MAX + 1)), START, Lag(1, 1))
    histories.forget(list(histories.by_key))
    assert histories.observe(SeriesKey("ü" * 30_000), START, Lag(1, 1))


def rounds(histories: LagHistories, at_ms: int, live: Iterable[SeriesKey], left: int = 0) -> None:
    for key in live:
        histories.observe(key, at_ms, Lag(at_ms % 7, 1))
    deque(histories.end_round(at_ms, left), 0)


def test_who_is_gone_is_unknown_from_then_on() -> None:
    histories = LagHistories(1 << 20)
    for at in range(10):
        rounds(histories, START + at * 1000, [A, B])
    rounds(histories, START + 10_000, [A])
    assert histories.by_key[B].last == (START + 9001, NO_LAG)
    assert histories.take_moved()[B] == NO_LAG
    rounds(histories, START + 11_000, [A])
    assert histories.resting() == [B]
    assert B not in histories.take_moved()
    assert histories.points == counted(histories)
    rounds(histories, START + 60_000, [A, B])
    assert histories.resting() == []


def test_who_is_gone_for_long_is_forgotten() -> None:
    histories = LagHistories(1 << 20)
    rounds(histories, START, [A, B])
    rounds(histories, START + SPAN_MS, [A])
    assert names(histories) == {"a", "b"}
    rounds(histories, START + SPAN_MS + 2, [A])
    assert names(histories) == {"a"}


def test_who_is_gone_makes_room() -> None:
    histories = LagHistories(1 << 20)
    for number in range(5):
        rounds(histories, START + number * 1000, [SeriesKey(f"g{number}")])
    rounds(histories, START + 5000, [A], left=2)
    assert names(histories) == {"a", "g2", "g3", "g4"}


def test_restored_histories_begin_with_a_gap() -> None:
    histories, again = LagHistories(1 << 20), LagHistories(1 << 20)
    fill(histories, A, 100)
    deque(again.restore(histories.by_key), 0)
    deque(again.begin(START + 200_000), 0)
    again.observe(A, START + 900_000, Lag(1, 1))
    times, records, _ = again.by_key[A].columns(START + 150_000)
    assert list(times)[-3:] == [START + 200_000, START + 200_001, START + 900_000]
    assert [one < 0 for one in records][-3:] == [False, True, False]
    assert again.points == counted(again)
