"""All histories of lag stay within their bytes, and no work on them holds the broker's thread."""

import gc
import random
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from pyrklog.lag import history_saver
from pyrklog.lag.histories import HISTORIES_A_TURN, HISTORY_BYTES, Histories, PartitionKey
from pyrklog.lag.history_file import GROUPS, LOG_ENDS, HistoryFile
from pyrklog.lag.history_saver import DUMPED_A_TURN, HistorySaver
from pyrklog.lag.lag_histories import SERIES_A_TURN, SERIES_BYTES, LagHistories, SeriesKey
from pyrklog.lag.lag_history import Lag, LagHistory
from pyrklog.lag.shortening import LOOKED_MAX, STEPS_A_TURN
from pyrklog.lag.steady_clock import SteadyClock
from pyrklog.lag.turns import in_turns

START = 1_700_000_000_000
BYTES_MAX = 2**20
"""Of the log ends, and of the groups."""
TENTH = 1.1
ROUNDS = 12


def partition(number: int) -> PartitionKey:
    return PartitionKey("t", bytes(16), number)


def group(number: int) -> SeriesKey:
    return SeriesKey(f"group-{number:06}")


def move_partitions(histories: Histories, count: int, rounds: int) -> None:
    """Log ends that no line goes through."""
    chance = random.Random(7)
    ends = [0] * count
    for at in range(rounds):
        at_ms = START + at * 1000
        for number in range(count):
            ends[number] += chance.choice((1, 1000, 1_000_000))
            unmoved_ms = at_ms - 1000
            histories.observe(partition(number), at_ms, ends[number], unmoved_ms=unmoved_ms)


def move_groups(histories: LagHistories, count: int, rounds: int, first: int = 0) -> int:
    """Lag that no line goes through. Returns how many have a history."""
    chance = random.Random(7)
    taken = 0
    for at in range(first, first + rounds):
        taken = 0
        for number in range(count):
            lag = Lag(chance.randrange(10**6), chance.randrange(10**6))
            taken += histories.observe(group(number), START + at * 1000, lag)
        run(histories.end_round(START + at * 1000, 0))
    return taken


def run(turns: Iterator[object]) -> int:
    return sum(1 for _ in turns)


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """Bytes that histories, and what goes into them here, have allocated and not freed."""
    places = ("*/pyrklog/lag/*", "*/random.py", "<string>", __file__)
    only = [tracemalloc.Filter(True, place) for place in places]

    def taken() -> int:
        gc.collect()
        snapshot = tracemalloc.take_snapshot().filter_traces(only)
        return sum(one.size for one in snapshot.traces)

    tracemalloc.start()
    yield taken
    tracemalloc.stop()


async def test_thousands_of_partitions_and_groups_stay_within_their_bytes(
    tmp_path: Path, traced: Callable[[], int]
) -> None:
    """As many as have room, all of whose numbers jump, with what their savers know of them."""
    histories, groups = Histories(BYTES_MAX), LagHistories(BYTES_MAX)
    clock = SteadyClock()
    files: list[HistoryFile[Any, Any, Any, Any]]
    files = [HistoryFile(tmp_path, LOG_ENDS), HistoryFile(tmp_path, GROUPS)]
    savers = [HistorySaver(files[0], histories, clock), HistorySaver(files[1], groups, clock)]
    move_partitions(histories, histories.partitions_max, 5)
    assert move_groups(groups, 2000, 5) == len(groups)
    for saver in savers:
        await saver.save()
    move_partitions(histories, histories.partitions_max, ROUNDS)
    move_groups(groups, len(groups), 2 * ROUNDS, first=5)
    assert len(histories) + len(groups) > 2000
    assert histories.forgotten > 0
    assert groups.forgotten > 0
    for file in files:
        file.close()
    assert BYTES_MAX < traced() < 2 * BYTES_MAX * TENTH


def test_few_long_histories_stay_within_their_bytes(traced: Callable[[], int]) -> None:
    histories, groups = Histories(BYTES_MAX // 8), LagHistories(BYTES_MAX // 8)
    move_partitions(histories, 20, 700)
    move_groups(groups, 20, 700)
    assert histories.forgotten > 0
    assert groups.forgotten > 0
    assert BYTES_MAX // 8 < traced() < BYTES_MAX // 4 * TENTH


def test_idle_histories_take_no_more_than_is_counted(traced: Callable[[], int]) -> None:
    histories, groups = Histories(BYTES_MAX), LagHistories(BYTES_MAX)
    for number in range(1500):
        histories.observe(partition(number), START, 5, unmoved_ms=0)
        groups.observe(group(number), START, Lag(5, 1000))
    assert traced() < 1500 * (HISTORY_BYTES + SERIES_BYTES)


def test_a_sample_halves_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The story: at the bound, one sample halved all of 4,000 full histories, for 600 ms."""
    histories = LagHistories(BYTES_MAX // 4)
    move_groups(histories, 50, 300)
    halved: list[LagHistory] = []
    halve = LagHistory.halve

    def count(history: LagHistory) -> int:
        halved.append(history)
        return halve(history)

    monkeypatch.setattr(LagHistory, "halve", count)
    chance = random.Random(7)
    for at in range(300, 900):
        for number in range(50):
            before = len(halved)
            lag = Lag(chance.randrange(10**6), chance.randrange(10**6))
            histories.observe(group(number), START + at * 1000, lag)
            assert len(halved) - before <= 1
    assert halved


def test_what_a_file_had_is_taken_and_shortened_in_turns() -> None:
    large = LagHistories(2**26)
    move_groups(large, 1000, 60)
    small = LagHistories(1000 * SERIES_BYTES * 2)
    points = [small.points]
    for _ in small.restore(large.by_key):
        points.append(small.points)
    steps = [abs(later - one) for one, later in pairwise(points)]
    most = max(one.points for one in large.by_key.values())
    assert max(steps) <= max(SERIES_A_TURN, STEPS_A_TURN) * most
    assert len(small) == 1000
    assert small.forgotten > 0
    assert small.points == sum(one.points for one in small.by_key.values())
    assert run(small.begin(START + 100_000)) == 1000 // SERIES_A_TURN


def test_a_file_of_more_than_ever_fits_ends() -> None:
    large = Histories(2**26)
    move_partitions(large, 500, 10)
    small = Histories(500 * HISTORY_BYTES)
    turns = run(small.restore(large.by_key))
    assert 0 < turns < 500
    assert not any(one.is_long for one in small.by_key.values())


def test_groups_that_are_gone_break_off_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    histories = LagHistories(2**24)
    move_groups(histories, 3 * SERIES_A_TURN, 2)
    broken: list[LagHistory] = []
    break_off = LagHistory.break_off

    def count(history: LagHistory) -> int:
        broken.append(history)
        return break_off(history)

    monkeypatch.setattr(LagHistory, "break_off", count)
    seen = [len(broken) for _ in histories.end_round(START + 10_000, 0)]
    assert seen == [SERIES_A_TURN, 2 * SERIES_A_TURN, 3 * SERIES_A_TURN]
    assert len(histories.resting()) == 3 * SERIES_A_TURN
    assert run(histories.end_round(START + 11_000, len(histories))) == 6
    assert not histories.by_key
    assert histories.points == 0


def test_deleted_partitions_are_forgotten_in_turns() -> None:
    histories = Histories(2**24)
    move_partitions(histories, 3 * HISTORIES_A_TURN, 2)
    lengths = [len(histories) for _ in histories.keep_only(())]
    assert lengths == [2 * HISTORIES_A_TURN, HISTORIES_A_TURN, 0]
    assert histories.points == 0


async def test_a_file_is_written_anew_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long histories are few a turn, so that little is copied at a time."""
    histories = LagHistories(2**26)
    move_groups(histories, 300, 30)
    move_groups(histories, 3, 1800, first=100)
    turns: list[list[list[Any]]] = []
    monkeypatch.setattr(history_saver, "DUMPED_POINTS", 1500)
    add = HistorySaver._add

    def count(saver: Any, dumps: Any) -> None:
        turns.append([tiers for _, tiers in dumps])
        add(saver, dumps)

    monkeypatch.setattr(HistorySaver, "_add", count)
    file = HistoryFile(tmp_path, GROUPS)
    await HistorySaver(file, histories, SteadyClock()).save()
    file.close()
    assert sum(map(len, turns)) == 300
    assert max(map(len, turns)) <= DUMPED_A_TURN
    assert len(turns) > 300 // DUMPED_A_TURN + 1


async def test_others_have_the_thread_in_between() -> None:
    others: list[int] = []
    done: list[int] = []

    def turns() -> Iterator[None]:
        for number in range(5):
            done.append(number)
            yield

    async def other() -> None:
        while len(done) < 5:
            others.append(len(done))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await in_turns(turns())
    # Trio runs the two in any order: the other one may see the same turn twice, and then miss one.
    assert len(set(others)) >= 2


def test_one_step_looks_at_few() -> None:
    histories = Histories(2**24)
    move_partitions(histories, 200, 60)
    before = {key: one.points for key, one in histories.by_key.items()}
    assert histories._shortening.step() > 0
    [_] = [key for key, one in histories.by_key.items() if one.points < before[key]]
    for one in histories.by_key.values():
        one.asked_ms = START
    unasked = list(histories.by_key)[-LOOKED_MAX - 1]
    histories.by_key[unasked].asked_ms = 0
    assert histories._shortening.step() > 0
    assert histories.by_key[unasked].points < before[unasked]
