"""What is remembered for health's sake, and that a hanging volume delays nothing."""

import os
import resource
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.config.load import load_config
from pyrklog.observability.health_signs import BrokerSnapshot
from pyrklog.observability.health_watch import (
    AWAY_MAX,
    COUNTS_MAX,
    DISK_READINGS_MAX,
    HealthWatch,
    ReadVolume,
    Volume,
    in_thread,
    read_cache_volume,
    read_open_files,
    read_volume,
)


async def read_at_once(_path: str) -> Volume:
    return 100, 40, 1


class Watched:
    def __init__(self, read: ReadVolume = read_at_once, *sets: str) -> None:
        self.counted = 0
        self.store = SimpleNamespace(is_reachable=True)
        self.image = SimpleNamespace(brokers=[])
        config = load_config(overrides=sets)
        sources: Any = SimpleNamespace(
            metadata=SimpleNamespace(node_id=1, config=config, image=self.image),
            log_dirs=["/a", "/b"],
            plane=SimpleNamespace(statistics=self._statistics),
            store=self.store,
            store_clock=lambda: None,
        )
        self.watch = HealthWatch(sources, reader=lambda: read)

    def _statistics(self) -> dict[str, int]:
        self.counted += 1
        return {"cache_appended_bytes": self.counted, "connections": 9}

    def alive(self, *numbers: int) -> None:
        self.image.brokers = [SimpleNamespace(id=one) for one in numbers]

    def seen(self) -> BrokerSnapshot:
        return self.watch.snapshot({}, ["/a", "/b"])


async def test_memory_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    one = Watched()
    with trio.move_on_after(DISK_READINGS_MAX * 60 * 1.5):
        await one.watch.run()
    seen = one.seen()
    assert [len(disk.readings) for disk in seen.disks] == [DISK_READINGS_MAX] * 2
    assert seen.disks[0].readings[-1][1:] == (100, 40, 1)
    assert seen.cache_counted is not None
    before, now = seen.cache_counted
    assert now.values["cache_appended_bytes"] == one.counted
    assert before.values["cache_appended_bytes"] == one.counted - COUNTS_MAX + 1
    assert "connections" not in now.values
    assert now.at - before.at == pytest.approx(300)


async def test_nothing_is_known_at_first() -> None:
    seen = Watched().seen()
    assert seen.cache_counted is None
    assert [disk.readings for disk in seen.disks] == [(), ()]
    assert seen.store_away_seconds is None
    assert seen.wants_cache
    assert not Watched(read_at_once, "pyrklog.cache.max.bytes=0").seen().wants_cache


async def test_the_size_of_the_caches_file_system_is_known(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    sets = (f"pyrklog.cache.dir={tmp_path}",)
    with_cache, without = (
        Watched(read_at_once, *sets),
        Watched(read_at_once, *sets, "pyrklog.cache.max.bytes=0"),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(with_cache.watch.run)
        nursery.start_soon(without.watch.run)
        for _ in range(1_000):
            if with_cache.seen().cache_volume_bytes is not None:
                break
            # A thread asks for it, for which the clock does not wait.
            await trio.to_thread.run_sync(time.sleep, 0.01)
        nursery.cancel_scope.cancel()
    assert with_cache.seen().cache_volume_bytes == shutil.disk_usage(tmp_path).total
    assert without.seen().cache_volume_bytes is None


def test_a_file_system_that_cannot_be_asked_is_unknown(tmp_path: Path) -> None:
    assert read_cache_volume(tmp_path / "gone") is None


async def test_the_absence_of_the_store_is_counted_from_its_beginning(
    autojump_clock: trio.testing.MockClock,
) -> None:
    one = Watched()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.watch.run)
        await trio.sleep(10.5)
        one.store.is_reachable = False
        await trio.sleep(60)
        away = one.seen().store_away_seconds
        assert away is not None
        assert 58 <= away <= 60
        one.store.is_reachable = True
        await trio.sleep(2)
        assert one.seen().store_away_seconds is None
        one.store.is_reachable = False
        assert one.seen().store_away_seconds == 0
        nursery.cancel_scope.cancel()


async def test_a_volume_that_hangs_delays_no_other_and_not_the_end() -> None:
    answers = threading.Event()
    done = threading.Event()

    def hang(_path: str) -> Volume:
        answers.wait(60)
        done.set()
        return 100, 40, 1

    hanging, read = in_thread(hang), trio.Event()

    async def either(path: str) -> Volume:
        if path == "/a":
            return await hanging(path)
        read.set()
        return 100, 40, 1

    one = Watched(either)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.watch.run)
            await read.wait()
            await trio.testing.wait_all_tasks_blocked()
            seen = one.seen()
            assert not seen.disks[0].readings
            assert seen.disks[0].silent_seconds > 0
            assert len(seen.disks[1].readings) == 1
            assert seen.disks[1].silent_seconds == 0
            nursery.cancel_scope.cancel()
    answers.set()
    assert done.wait(30)


async def test_a_directory_that_cannot_be_read_has_no_trend(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fails = False

    async def read(_path: str) -> Volume:
        if fails:
            raise OSError("gone")
        return 100, 40, 1

    one = Watched(read)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.watch.run)
        await trio.sleep(90)
        assert len(one.seen().disks[0].readings) == 2
        fails = True
        await trio.sleep(60)
        assert one.seen().disks[0].readings == ()
        nursery.cancel_scope.cancel()


def test_a_volume_is_read(tmp_path: Any) -> None:
    total, free, device = read_volume(str(tmp_path))
    assert total >= free > 0
    assert device == tmp_path.stat().st_dev


async def test_open_files_are_counted() -> None:
    one = Watched()
    assert one.seen().open_files is None
    with trio.move_on_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.watch.run)
            while one.seen().open_files is None:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    found = one.seen().open_files
    assert found is not None
    assert 3 <= found.used <= found.limit


def test_without_any_file_handle_all_are_in_use() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    none_is_free = os.dup(0)
    os.close(none_is_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (none_is_free, before[1]))
    try:
        found = read_open_files()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found == (none_is_free, none_is_free)
    assert read_open_files() != found


async def test_the_absence_of_brokers_is_counted_until_they_return(
    autojump_clock: trio.testing.MockClock,
) -> None:
    one = Watched()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.watch.run)
        await trio.sleep(10.5)
        one.alive(1, 2, 3)
        await trio.sleep(10)
        one.alive(1)
        await trio.sleep(60)
        assert one.watch.brokers_away_seconds() == pytest.approx({2: 59.5, 3: 59.5}, abs=1)
        one.alive(1, 3)
        assert list(one.watch.brokers_away_seconds()) == [2]
        nursery.cancel_scope.cancel()


async def test_few_absences_are_remembered(autojump_clock: trio.testing.MockClock) -> None:
    one = Watched()
    for number in range(AWAY_MAX + 5):
        one.alive(1, 10 + number)
        one.watch.brokers_away_seconds()
    assert list(one.watch.brokers_away_seconds()) == list(range(14, 14 + AWAY_MAX))
