"""The file of groups' histories: round trips, torn ends, damage, clocks that jumped."""

import random

import pytest

from pyrklog.lag.history_format import Parsed
from pyrklog.lag.lag_format import (
    MAGIC,
    history_chunks,
    name_chunk,
    parse,
    points_chunk,
    round_chunk,
)
from pyrklog.lag.lag_histories import SeriesKey
from pyrklog.lag.lag_history import NO_LAG, Lag, LagColumns, LagHistory

START = 1_700_000_000_000
KEYS = [SeriesKey("billing"), SeriesKey("überweisung", "zahlungen")]
DAY = 86_400_000
Found = Parsed[SeriesKey, LagHistory]


def moved(seconds: int) -> LagHistory:
    history = LagHistory(START, Lag(0, 0))
    for at in range(1, seconds):
        history.observe(START + at * 1000, Lag(at * at, at * 500))
    return history


def written(
    histories: dict[SeriesKey, LagHistory], at_ms: int, wall_ms: int | None = None
) -> bytes:
    chunks = [
        chunk
        for number, (key, history) in enumerate(histories.items())
        for chunk in history_chunks(number, key, history)
    ]
    last = round_chunk(at_ms, at_ms if wall_ms is None else wall_ms, {})
    return MAGIC + b"".join([*chunks, last])


def test_a_round_trip() -> None:
    now = START + 100_000
    histories = {KEYS[0]: moved(100), KEYS[1]: LagHistory(START, Lag(5, 1))}
    found = parse(written(histories, now), now)
    assert (found.damage, found.is_torn, found.until_ms) == (None, False, now)
    assert list(found.histories) == KEYS
    for key, history in histories.items():
        before, after = history.columns(0), found.histories[key].columns(0)
        assert list(map(list, before)) == list(map(list, after))


def test_rounds_go_on_from_the_points() -> None:
    at = START + 100_000
    content = written({KEYS[0]: moved(100)}, at)
    content += round_chunk(at + 10_000, at + 10_000, {})
    content += round_chunk(at + 20_000, at + 20_000, {0: Lag(7, 8)})
    content += name_chunk(1, KEYS[1]) + round_chunk(at + 30_000, at + 30_000, {1: Lag(1, 2)})
    content += round_chunk(at + 40_000, at + 40_000, {0: NO_LAG})
    found = parse(content, at + 41_000)
    times, records, _ = found.histories[KEYS[0]].columns(START + 99_000)
    assert list(zip(times, records, strict=True)) == [
        (START + 99_000, 9801),
        (at + 10_000, 9801),
        (at + 20_000, 7),
        (at + 30_000, 7),
        (at + 40_000, -1),
    ]
    assert found.histories[KEYS[1]].first == (at + 30_000, Lag(1, 2))


@pytest.mark.parametrize(
    ("ahead_ms", "restart_ms", "shift_ms"),
    [
        (0, DAY, 0),
        (3_600_000, 3_660_000, 3_600_000),
        (0, -5000, -5000),
        (0, -400 * DAY, -400 * DAY),
    ],
    ids=["downtime", "corrected", "behind", "far-behind"],
)
def test_clocks_that_jumped(ahead_ms: int, restart_ms: int, shift_ms: int) -> None:
    """As for log ends: a corrected clock does not count twice, one set back counts nothing."""
    now = START + 100_000
    found = parse(written({KEYS[0]: moved(100)}, now, wall_ms=now + ahead_ms), now + restart_ms)
    assert found.until_ms == now + shift_ms
    assert found.histories[KEYS[0]].columns(0).times[0] == START + shift_ms


def test_a_torn_end_is_cut_at_each_byte() -> None:
    whole = written({KEYS[0]: moved(30)}, START + 30_000)
    last = round_chunk(START + 40_000, START + 40_000, {0: Lag(1, 1)})
    for cut in range(1, len(last)):
        found = parse(whole + last[:cut], START + 50_000)
        assert (found.damage, found.is_torn, found.whole_bytes) == (None, True, len(whole))
        assert found.histories[KEYS[0]].last.lag.records == 29 * 29


def test_the_other_file_is_damage() -> None:
    assert parse(b"pyrklag\x01", START).damage == "another kind of file"


@pytest.mark.parametrize(
    "chunks",
    [
        name_chunk(1, KEYS[0]),
        points_chunk(0, 0, LagColumns([1], [1], [1])),
        name_chunk(0, KEYS[0]) + points_chunk(0, 1, LagColumns([1], [1], [1])),
        name_chunk(0, KEYS[0])
        + points_chunk(0, 0, LagColumns([2, 1], [1, 1], [1, 1]))
        + round_chunk(9, 9, {0: Lag(1, 1)}),
        round_chunk(START, START, {0: Lag(1, 1)}),
        name_chunk(0, KEYS[0]) + round_chunk(START, START, {0: Lag(float("nan"), 1)}),
        name_chunk(0, KEYS[0]) + round_chunk(START, START, {0: Lag(1, -7)}),
    ],
)
def test_what_makes_no_sense_is_damage(chunks: bytes) -> None:
    found = parse(MAGIC + chunks + round_chunk(START, START, {}), START)
    assert found.damage is not None
    assert found.damage.startswith("at byte ")


def test_hostile_bytes_never_raise() -> None:
    chance = random.Random(7)
    whole = written({KEYS[0]: moved(40), KEYS[1]: LagHistory(START, Lag(5, 0))}, START + 40_000)
    for _ in range(1500):
        bad = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(8, len(bad))] = chance.randrange(256)
        found = parse(bytes(bad[: chance.randint(0, len(bad))]), START + 50_000)
        assert found.whole_bytes <= len(bad)
