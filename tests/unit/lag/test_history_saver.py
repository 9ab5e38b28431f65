"""Saving: rounds, a file written anew, full and hanging disks, damage that is set aside."""

import errno
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from pyrklog.base import logs
from pyrklog.lag import history_format
from pyrklog.lag.histories import Histories, PartitionKey
from pyrklog.lag.history import History
from pyrklog.lag.history_file import FREE_BYTES_MIN, LOG_ENDS, HistoryFile
from pyrklog.lag.history_format import Columns
from pyrklog.lag.history_saver import ROUNDS_BYTES_MIN, HistorySaver
from pyrklog.lag.steady_clock import SteadyClock
from pyrklog.lag.turns import in_turns

START = 1_700_000_000_000
ROOM = FREE_BYTES_MIN
File = HistoryFile[PartitionKey, History, Columns, int]
KEY = PartitionKey("orders", bytes(16), 0)


class World:
    """A clock, a volume and the histories of one life of a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ms = START
        self.free = ROOM
        self.form = LOG_ENDS
        self.begin_life()

    def begin_life(self) -> None:
        self.histories = Histories(1 << 20)
        self.clock = SteadyClock(lambda: self.now_ms, lambda: self.now_ms)
        self.file = HistoryFile(self.folder, self.form, lambda _: self.free)
        self.saver = HistorySaver(self.file, self.histories, self.clock)

    def observe(self, end: int, key: PartitionKey = KEY) -> None:
        self.now_ms += 1000
        self.histories.observe(key, self.now_ms, end, unmoved_ms=self.now_ms - 1000)

    async def restart(self) -> int:
        self.file.close()
        self.begin_life()
        return await self.saver.load()

    @property
    def size(self) -> int:
        return (self.folder / "lag-history").stat().st_size


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.file.close()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the log, but for those that only debugging needs."""
    found: list[str] = []

    def tell(_: logs.Logger, level: str, event: str, fields: Mapping[str, Any]) -> None:
        if level != "debug":
            found.append(event)

    monkeypatch.setattr(logs.Logger, "log", tell)
    return found


async def test_a_restart_knows_the_past(world: World) -> None:
    for end in range(100, 2000, 100):
        world.observe(end)
        await world.saver.save()
    world.now_ms += 60_000
    assert await world.restart() == world.now_ms - 60_000
    age = world.histories.by_key[KEY].age(1500, world.now_ms, world.now_ms)
    assert not age.is_least
    assert age.ms / 1000 == pytest.approx(64, abs=1)


async def test_without_a_file_nothing_is_known(world: World) -> None:
    assert await world.saver.load() == 0
    assert not world.histories.by_key


async def test_what_has_not_moved_is_not_written_again(world: World) -> None:
    world.observe(1)
    await world.saver.save()
    size = world.size
    await world.saver.save()
    idle = world.size - size
    world.observe(2)
    await world.saver.save()
    assert world.size - size == 2 * idle + 12


async def test_the_file_stays_bounded(world: World) -> None:
    """Each round names a new partition; deleted ones leave it when it is written anew."""
    sizes = []
    for number in range(3000):
        kept = {PartitionKey("t" * 400, bytes(16), number - 1)}
        await in_turns(world.histories.keep_only(kept))
        world.observe(1, PartitionKey("t" * 400, bytes(16), number))
        await world.saver.save()
        sizes.append(world.size)
    assert max(sizes) < ROUNDS_BYTES_MIN + 2000
    assert sizes[-1] < max(sizes)
    await world.restart()
    assert len(world.histories.by_key) < 3000


async def test_a_full_disk_is_told_once_and_harms_nothing(world: World, told: list[str]) -> None:
    world.observe(1)
    await world.saver.save()
    size = world.size
    world.free = ROOM - 1
    for end in range(2, 6):
        world.observe(end)
        await world.saver.save()
    assert told == ["lag_history_unsaved"]
    assert world.size == size
    world.free = ROOM
    await world.saver.save()
    assert told == ["lag_history_unsaved", "lag_history_saved"]
    await world.restart()
    assert world.histories.by_key[KEY].end == 5


async def test_a_write_that_fails_half_way_leaves_the_old_file(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.observe(1)
    await world.saver.save()

    def fail(_self: File, _piece: bytes = b"") -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(HistoryFile, "append", fail)
        broken.setattr(HistoryFile, "finish", fail)
        world.observe(2)
        await world.saver.save()
        await world.saver.save()
    assert [one.name for one in world.folder.iterdir()] == ["lag-history"]
    await world.restart()
    assert world.histories.by_key[KEY].end == 1


async def test_a_torn_file_is_cut_and_written_anew(world: World, told: list[str]) -> None:
    for end in (1, 2, 3):
        world.observe(end)
        await world.saver.save()
    path = world.folder / "lag-history"
    path.write_bytes(path.read_bytes()[:-3])
    await world.restart()
    assert told == ["lag_history_torn"]
    assert world.histories.by_key[KEY].end == 2
    await world.saver.save()
    await world.restart()
    assert told == ["lag_history_torn"]


async def test_a_damaged_file_is_set_aside_and_told_once(world: World, told: list[str]) -> None:
    path = world.folder / "lag-history"
    path.write_bytes(b"something else")
    assert await world.restart() == 0
    world.observe(1)
    await world.saver.save()
    await world.restart()
    assert told == ["lag_history_damaged"]
    assert (world.folder / "lag-history.damaged").read_bytes() == b"something else"
    assert world.histories.by_key[KEY].end == 1


async def test_a_file_that_cannot_be_read_is_told(world: World, told: list[str]) -> None:
    (world.folder / "lag-history").mkdir()
    assert await world.restart() == 0
    world.observe(1)
    await world.saver.save()
    assert told == ["lag_history_unreadable", "lag_history_unsaved"]


async def test_an_orderly_end_saves_the_rest(world: World) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.saver.run)
        await trio.testing.wait_all_tasks_blocked()
        world.observe(7)
        nursery.cancel_scope.cancel()
    await world.restart()
    assert world.histories.by_key[KEY].end == 7


class Unclosed:
    """A file whose every call fails, as on a network's volume."""

    closed = 0

    def write(self, data: bytes) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def close(self) -> None:
        self.closed += 1
        raise OSError(errno.EIO, "Input/output error")


async def test_a_file_that_cannot_even_be_closed_does_not_end_lag(
    world: World, told: list[str]
) -> None:
    world.observe(1)
    await world.saver.save()
    failing: Any = Unclosed()
    assert world.file._file is not None
    world.file._file.close()
    world.file._file = failing
    world.observe(2)
    await world.saver.save()
    assert failing.closed == 1
    await world.saver.save()
    assert told == ["lag_history_unsaved", "lag_history_saved"]
    await world.restart()
    assert world.histories.by_key[KEY].end == 2


async def test_no_file_has_more_names_than_are_read_back(
    world: World, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many new partitions in one round."""
    monkeypatch.setattr(history_format, "NAMES_MAX", 10)
    world.form = replace(LOG_ENDS, names_max=10)
    world.begin_life()
    for start in range(0, 48, 6):
        keys = [PartitionKey("t", bytes(16), start + number) for number in range(6)]
        await in_turns(world.histories.keep_only(keys))
        for key in keys:
            world.observe(1, key)
        await world.saver.save()
        await world.restart()
        assert set(keys) <= set(world.histories.by_key)
        await world.saver.save()
    assert told == []


async def test_a_round_of_known_partitions_is_no_reason_to_write_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.form = replace(LOG_ENDS, names_max=10)
    world.begin_life()
    keys = [PartitionKey("t", bytes(16), number) for number in range(6)]
    begun: list[File] = []
    begin = HistoryFile.begin

    def count(file: File) -> None:
        begun.append(file)
        begin(file)

    monkeypatch.setattr(HistoryFile, "begin", count)
    for end in range(5):
        for key in keys:
            world.observe(end, key)
        await world.saver.save()
    assert len(begun) == 1
