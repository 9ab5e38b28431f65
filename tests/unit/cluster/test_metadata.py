"""Run-time options reach a broker, over the embedded store."""

from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.base import logs
from pyrklog.base.changes import Changes
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import UpdateMetadataRequest
from pyrklog.config.load import load_config
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import Create, Node, Watch
from pyrklog.plane.values import BrokerImage, PartitionImage
from pyrklog.start.identity import create_paths
from pyrklog.testing.fake_plane import FakePlane

OPTIONS = znodes.broker_config_path(znodes.DEFAULT_ENTITY)


class Meddling(CurrentStore):
    """A store in which a broker option is set right after the first read of a path."""

    def __init__(self, session: EmbeddedSession, path: str) -> None:
        super().__init__(session)
        self._other = session
        self._path: str | None = path

    async def _meddle(self, path: str) -> None:
        if path == self._path:
            self._path = None
            announcement = znodes.encode_config_change(f"brokers/{znodes.DEFAULT_ENTITY}")
            options = znodes.encode_config({"log.retention.ms": "5"})
            await self._other.multi(
                [
                    Create(OPTIONS, options),
                    Create(znodes.CONFIG_CHANGE_PREFIX, announcement, sequence=True),
                ]
            )

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        try:
            return await super().get(path, watch)
        finally:
            await self._meddle(path)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        found = await super().children(path, watch)
        await self._meddle(path)
        return found


@pytest.mark.parametrize("read", [OPTIONS, znodes.CONFIG_CHANGES])
async def test_broker_option_set_during_a_start_is_kept(tmp_path: Path, read: str) -> None:
    store = await open_store(tmp_path)
    session = store.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    metadata = Metadata(1, load_config(), Meddling(session, read), FakePlane())
    async with trio.open_nursery() as nursery:
        await nursery.start(metadata.run)
        with trio.fail_after(10):
            await metadata.changes.wait_until(
                lambda: "log.retention.ms" in metadata.config.dynamic_default
            )
        nursery.cancel_scope.cancel()
    await store.close()


async def test_a_watcher_that_fails_looks_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Somebody removes /config/changes and creates it again."""
    store = await open_store(tmp_path)
    session = store.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    metadata = Metadata(1, load_config(), session, FakePlane())
    async with trio.open_nursery() as nursery:
        await nursery.start(metadata.run)
        await session.delete(znodes.CONFIG_CHANGES)
        await trio.sleep(10)
        await session.create(znodes.CONFIG_CHANGES)
        await session.create(OPTIONS, znodes.encode_config({"log.retention.ms": "5"}))
        announcement = znodes.encode_config_change(f"brokers/{znodes.DEFAULT_ENTITY}")
        await session.create(znodes.CONFIG_CHANGE_PREFIX, announcement, sequence=True)
        with trio.fail_after(10):
            await metadata.changes.wait_until(
                lambda: "log.retention.ms" in metadata.config.dynamic_default
            )
        nursery.cancel_scope.cancel()
    await store.close()


async def test_changed_options_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = logs._Sink()
    monkeypatch.setattr(logs, "_sink", sink)
    store = await open_store(tmp_path)
    session = store.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    metadata = Metadata(1, load_config(), session, FakePlane())
    metadata.image.set_partitions("t", b"1" * 16, [PartitionImage(0, 1, 0, (1,), (1,), ())])
    told = trio.Event()
    metadata.on_options_changed = told.set
    async with trio.open_nursery() as nursery:
        await nursery.start(metadata.run)
        options = {"retention.ms": "5", "min.insync.replicas": "1"}
        await session.create(znodes.topic_config_path("t"), znodes.encode_config(options))
        await session.create(OPTIONS, znodes.encode_config({"log.retention.ms": "7"}))
        for entity in ("topics/t", "brokers/<default>"):
            change = znodes.encode_config_change(entity)
            await session.create(znodes.CONFIG_CHANGE_PREFIX, change, sequence=True)
        with trio.fail_after(10):
            await metadata.changes.wait_until(lambda: bool(metadata.image.overrides("t")))
            await told.wait()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    await store.close()
    lines = [fields for _, _, _, event, fields in sink.waiting if event == "options_changed"]
    topics = [line["topics"].get("t", []) for line in lines]
    assert [name for names in topics for name in names] == ["min.insync.replicas", "retention.ms"]
    assert [name for line in lines for name in line["broker"]] == ["log.retention.ms"]


class Away(CurrentStore):
    """A store that this broker may not reach."""

    is_there = True

    @property
    def is_reachable(self) -> bool:
        return self.is_there


async def test_a_controller_that_has_gone_is_not_told_to_clients(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    away = Away(store.session())
    plane = FakePlane()
    metadata = Metadata(2, load_config(), away, plane)
    brokers = [BrokerImage(1, None, []), BrokerImage(2, None, [])]
    metadata.take_metadata(UpdateMetadataRequest(1, 1, -1, [], brokers))
    changes = Changes()
    seen = 1
    told = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metadata.follow_controller, changes, lambda: seen)
        # None; the next one; and none again for a broker that cannot read the store.
        for controller, is_there in ((1, True), (-1, True), (2, True), (-1, False), (2, True)):
            seen, away.is_there = controller, is_there
            changes.notify()
            await trio.testing.wait_all_tasks_blocked()
            told.append(plane.deltas[-1].controller_id)
        nursery.cancel_scope.cancel()
    assert told == [1, -1, 2, 2, 2]
    assert plane.deltas[-1].brokers == brokers
    await store.close()
