"""The group coordinator over a log in memory, for tests of its driver and of the handlers."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from pyrklog.errors import ErrorCode
from pyrklog.groups.messages import (
    CommitRequest,
    JoinRequest,
    JoinResult,
    MemberHeartbeat,
    Offset,
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from pyrklog.groups.options import GroupOptions, GroupSettings
from pyrklog.groups.requests import GroupCoordinator
from pyrklog.testing.fake_offsets import FakeLog, FakeTopic

NONE = ErrorCode.NONE
PROTOCOLS = (("range", b"meta"),)
EPOCH_MS = 1_700_000_000_000


class Rig:
    def __init__(self, topic: FakeTopic, settings: GroupSettings, options: GroupOptions) -> None:
        self.topic = topic
        self.log = FakeLog(topic.led.get)
        self.settings = settings
        self.options = options
        self._ids = itertools.count(1)
        self.coordinator = self.make()

    def make(self) -> GroupCoordinator:
        """A coordinator with nothing loaded, such as another broker's."""
        return GroupCoordinator(
            self.settings,
            self.options,
            self.log,
            self.topic,
            wall_ms=lambda: EPOCH_MS + round(trio.current_time() * 1000),
            fresh_id=lambda: str(next(self._ids)),
        )

    async def join(self, member_id: str = "", *, group: str = "g", **more: Any) -> JoinResult:
        request = JoinRequest(
            group, member_id, None, "c", "/h", 10_000, 60_000, "consumer", PROTOCOLS
        )
        return await self.coordinator.join(request._replace(**more)).wait()

    async def sync(self, me: JoinResult, group: str = "g") -> SyncResult:
        given = {member.member_id: member.member_id.encode() for member in me.members}
        request = SyncRequest(group, me.generation, me.member_id, assignments=given)
        return await self.coordinator.sync(request).wait()

    async def enter(self, group: str = "g", **more: Any) -> JoinResult:
        me = await self.join(group=group, **more)
        assert (await self.sync(me, group)).error is NONE
        return me

    async def heartbeat(self, me: JoinResult, group: str = "g") -> ErrorCode:
        return self.coordinator.heartbeat(MemberHeartbeat(group, me.generation, me.member_id))

    async def commit(
        self, offset: int, *, group: str = "g", me: JoinResult | None = None, **more: Any
    ) -> ErrorCode:
        generation, member_id = (-1, "") if me is None else (me.generation, me.member_id)
        value = Offset(offset, commit_ms=self.coordinator.now_ms())
        request = CommitRequest(group, generation, member_id, None, {("t", 0): value})
        result = await self.coordinator.commit(request._replace(**more)).wait()
        return result.errors[("t", 0)]

    async def forget(self, partitions: Sequence[TopicPartition]) -> None:
        self.coordinator.note_deleted(partitions)
        await self.coordinator.forget_deleted()

    def committed(self, group: str = "g") -> int:
        error, found = self.coordinator.manager.fetch_offsets(
            group, [("t", 0)], require_stable=False
        )
        assert error is NONE
        return found[("t", 0)].offset

    @asynccontextmanager
    async def made_anew(self) -> AsyncIterator[None]:
        """Another broker becomes coordinator and loads the log."""
        self.coordinator = self.make()
        async with trio.open_nursery() as nursery:
            await nursery.start(self.coordinator.run)
            await self.loaded()
            yield
            nursery.cancel_scope.cancel()

    async def loaded(self) -> None:
        """Returns once all led partitions are served."""
        await self.coordinator.changes.wait_until(self._serves_what_it_leads)

    def _serves_what_it_leads(self) -> bool:
        manager = self.coordinator.manager
        return not manager.is_loading and manager.partitions().keys() == self.topic.led.keys()


@asynccontextmanager
async def running(
    topic: FakeTopic | None = None,
    settings: GroupSettings = GroupSettings(),  # noqa: B008
    options: GroupOptions = GroupOptions(),  # noqa: B008
    prepare: Callable[[FakeLog], None] = lambda log: None,
) -> AsyncIterator[Rig]:
    rig = Rig(topic or FakeTopic(1, {0: 0}), settings, options)
    prepare(rig.log)
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.coordinator.run)
        await rig.loaded()
        yield rig
        nursery.cancel_scope.cancel()
