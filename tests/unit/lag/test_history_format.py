"""The history file's bytes: round trips, torn ends, damage, clocks that jumped."""

import random
from collections.abc import Mapping

import pytest

from pyrklog.lag.histories import PartitionKey
from pyrklog.lag.history import History
from pyrklog.lag.history_format import (
    MAGIC,
    Parsed,
    history_chunks,
    name_chunk,
    parse,
    points_chunk,
    round_chunk,
)

START = 1_700_000_000_000
KEYS = [PartitionKey("orders", bytes(range(16)), 0), PartitionKey("zahlungen-ü", bytes(16), 7)]
DAY = 86_400_000


def moved(squares: int) -> History:
    history = History(START, 0)
    for at in range(1, squares):
        history.add(START + at * 1000, at * at, unmoved_ms=START + at * 1000 - 1000)
    return history


def written(
    histories: Mapping[PartitionKey, History], at_ms: int, wall_ms: int | None = None
) -> bytes:
    chunks = [
        chunk
        for number, (key, history) in enumerate(histories.items())
        for chunk in history_chunks(number, key, history)
    ]
    last = round_chunk(at_ms, at_ms if wall_ms is None else wall_ms, {})
    return MAGIC + b"".join([*chunks, last])


def ages(found: Parsed[PartitionKey, History], key: PartitionKey, now_ms: int) -> list[float]:
    history = found.histories[key]
    return [history.age(at * at, now_ms, now_ms).ms / 1000 for at in range(10, 90)]


def test_a_round_trip() -> None:
    now = START + 100_000
    histories = {KEYS[0]: moved(100), KEYS[1]: History(START, 5)}
    found = parse(written(histories, now), now)
    assert (found.damage, found.is_torn, found.until_ms) == (None, False, now)
    assert list(found.histories) == KEYS
    assert ages(found, KEYS[0], now) == pytest.approx([100 - at for at in range(10, 90)], abs=0.3)
    assert found.histories[KEYS[1]].age(4, now, now) == (100_000, True)


def test_rounds_go_on_from_the_points() -> None:
    at = START + 100_000
    content = written({KEYS[0]: moved(100)}, at)
    content += round_chunk(at + 10_000, at + 10_000, {})
    content += round_chunk(at + 20_000, at + 20_000, {0: 10_801})
    content += name_chunk(1, KEYS[1]) + round_chunk(at + 30_000, at + 30_000, {1: 50})
    found = parse(content, at + 31_000)
    history = found.histories[KEYS[0]]
    assert history.end == 10_801
    assert history.age(10_301, at + 31_000, at + 31_000).ms == pytest.approx(16_000, abs=500)
    assert history.age(9801, at + 31_000, at + 31_000).ms == pytest.approx(21_000, abs=500)
    assert found.histories[KEYS[1]].first == (at + 30_000, 50)


def test_a_corrected_wall_clock_does_not_count_twice() -> None:
    """The clock was an hour behind at the start, and was set right while the broker ran. It is
    stopped for a minute."""
    now = START + 100_000
    content = written({KEYS[0]: moved(100)}, now, wall_ms=now + 3_600_000)
    restart = now + 3_600_000 + 60_000
    found = parse(content, restart)
    expected = [160 - at for at in range(10, 90)]
    assert ages(found, KEYS[0], restart) == pytest.approx(expected, abs=0.3)


@pytest.mark.parametrize("back_ms", [1, 5000, 400 * DAY])
def test_a_wall_clock_behind_the_file_counts_no_downtime(back_ms: int) -> None:
    now = START + 100_000
    found = parse(written({KEYS[0]: moved(100)}, now), now - back_ms)
    assert found.until_ms == now - back_ms
    expected = [100 - at for at in range(10, 90)]
    assert ages(found, KEYS[0], now - back_ms) == pytest.approx(expected, abs=0.3)


def test_a_wall_clock_far_ahead_is_taken_for_downtime() -> None:
    now = START + 100_000
    found = parse(written({KEYS[0]: moved(100)}, now), now + 400 * DAY)
    assert ages(found, KEYS[0], now + 400 * DAY)[0] == pytest.approx(400 * 86_400 + 90, abs=0.3)


def test_a_torn_end_is_cut_at_each_byte() -> None:
    whole = written({KEYS[0]: moved(30)}, START + 30_000)
    last = round_chunk(START + 40_000, START + 40_000, {0: 1000})
    for cut in range(1, len(last)):
        found = parse(whole + last[:cut], START + 50_000)
        assert (found.damage, found.is_torn, found.whole_bytes) == (None, True, len(whole))
        assert found.histories[KEYS[0]].end == 29 * 29


def test_unwritten_pages_are_a_torn_end() -> None:
    whole = written({KEYS[0]: moved(30)}, START + 30_000)
    last = round_chunk(START + 40_000, START + 40_000, {0: 1000})
    for tail in (bytes(4096), last[:20] + bytes(len(last) - 20)):
        found = parse(whole + tail, START + 50_000)
        assert (found.damage, found.is_torn, found.whole_bytes) == (None, True, len(whole))


def test_a_flipped_bit_is_damage_and_spares_what_is_before() -> None:
    first = written({KEYS[0]: moved(30)}, START + 30_000)
    bad = bytearray(round_chunk(START + 40_000, START + 40_000, {0: 1000}))
    bad[-1] ^= 0x10
    found = parse(first + bad + round_chunk(START + 50_000, START + 50_000, {}), START + 60_000)
    assert found.damage is not None
    assert "checksum" in found.damage
    assert not found.is_torn
    assert found.histories[KEYS[0]].end == 29 * 29


@pytest.mark.parametrize("content", [b"", b"x", b"PK\x03\x04" + bytes(100), b"pyrklag\x02"])
def test_another_file_is_damage(content: bytes) -> None:
    found = parse(content, START)
    assert found.damage == "another kind of file"
    assert not found.histories


ROUND = round_chunk(START, START, {})


@pytest.mark.parametrize(
    "chunks",
    [
        name_chunk(1, KEYS[0]),
        name_chunk(0, KEYS[0]) + name_chunk(0, KEYS[1]),
        points_chunk(0, 0, ([1], [1])),
        name_chunk(0, KEYS[0]) + points_chunk(0, 1, ([1], [1])),
        name_chunk(0, KEYS[0]) + points_chunk(0, 0, ([2, 1], [1, 1])) + round_chunk(9, 9, {0: 1}),
        round_chunk(START, START, {0: 1}),
    ],
)
def test_what_makes_no_sense_is_damage(chunks: bytes) -> None:
    found = parse(MAGIC + chunks + ROUND, START)
    assert found.damage is not None
    assert found.damage.startswith("at byte ")


def test_hostile_bytes_never_raise() -> None:
    chance = random.Random(7)
    whole = written({KEYS[0]: moved(40), KEYS[1]: History(START, 5)}, START + 40_000)
    for _ in range(1500):
        bad = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(8, len(bad))] = chance.randrange(256)
        found = parse(bytes(bad[: chance.randint(0, len(bad))]), START + 50_000)
        assert found.whole_bytes <= len(bad)
