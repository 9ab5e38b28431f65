"""Changes continue to their end after their caller is gone."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.admin import configs, underway
from pyrklog.admin.service import Administration
from pyrklog.admin.underway import Underway
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import (
    OP_APPEND,
    OP_SET,
    RESOURCE_TOPIC,
    AlteredConfigs,
    ConfigAlteration,
    ConfigResource,
    PartitionsSpec,
    TopicRef,
    TopicSpec,
)
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore.interface import SessionExpiredError
from tests.unit.broker.harness import Running, running_broker

Ask = Callable[[Running], Awaitable[object]]


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_broker(tmp_path) as broker:
        for name in ("a", "b"):
            await broker.created(name)
        yield broker


def store_of(running: Running) -> CurrentStore:
    assert isinstance(running.service, Administration)
    store = running.service._topics._store
    assert isinstance(store, CurrentStore)
    return store


@asynccontextmanager
async def slow_writes(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[trio.Event]:
    """Each write waits for the end of the block. The event is set at the first one."""
    store = store_of(running)
    write, come, go = store.multis, trio.Event(), trio.Event()

    async def held(transactions: Any) -> Any:
        come.set()
        await go.wait()
        return await write(transactions)

    with monkeypatch.context() as patch:
        patch.setattr(store, "multis", held)
        yield come
        go.set()


async def create(running: Running) -> None:
    await running.create(TopicSpec("new"), TopicSpec("newer"))


async def delete(running: Running) -> None:
    await running.service.delete_topics([TopicRef("a"), TopicRef("b")], timeout_ms=5_000)


async def enlarge(running: Running) -> None:
    specs = [PartitionsSpec("a", 3), PartitionsSpec("b", 3)]
    await running.service.create_partitions(specs, validate_only=False, timeout_ms=5_000)


async def alter(running: Running) -> list[AlteredConfigs]:
    change = [
        ConfigAlteration(OP_SET, "retention.ms", "77"),
        ConfigAlteration(OP_APPEND, "leader.replication.throttled.replicas", "0:1"),
    ]
    items = [(ConfigResource(RESOURCE_TOPIC, name), change) for name in ("a", "b")]
    return await running.service.incremental_alter_configs(items, validate_only=False)


def sizes(running: Running) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in running.plane.topics.items()}


def retentions(running: Running) -> list[int]:
    return [topic.log.retention_ms for topic in running.plane.topics.values()]


@pytest.mark.parametrize(
    ("ask", "is_done"),
    [
        (create, lambda running: {"new", "newer"} <= sizes(running).keys()),
        (delete, lambda running: sizes(running) == {}),
        (enlarge, lambda running: sizes(running) == {"a": 3, "b": 3}),
        (alter, lambda running: retentions(running) == [77, 77]),
    ],
)
async def test_begun_change_completes_after_its_client_has_gone(
    running: Running, monkeypatch: pytest.MonkeyPatch, ask: Ask, is_done: Callable[[Running], bool]
) -> None:
    async with slow_writes(running, monkeypatch) as come, trio.open_nursery() as nursery:
        nursery.start_soon(ask, running)
        await come.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(10):
        await running.plane.wait_until(lambda: is_done(running))


async def test_option_change_is_retried_in_the_next_session(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the first try succeeded: the change is idempotent."""
    store = store_of(running)
    write = store.multis
    answers = [True, False, False]
    """For each write, whether it is made before the session ends."""

    async def expiring(transactions: Any) -> Any:
        if not answers:
            return await write(transactions)
        if answers.pop():
            await write(transactions)
        raise SessionExpiredError("/")

    monkeypatch.setattr(store, "multis", expiring)
    assert [one.error for one in await alter(running)] == [ErrorCode.NONE] * 2
    assert retentions(running) == [77, 77]
    monkeypatch.setattr(configs, "SESSION_WAIT_SECONDS", 0)
    answers.append(False)
    codes = [one.error for one in await alter(running)]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]


class Change:
    def __init__(self) -> None:
        self.release = trio.Event()
        self.is_done = False

    async def __call__(self) -> str:
        await self.release.wait()
        self.is_done = True
        return "done"


async def leave_behind(changes: Underway, change: Change) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(changes.finish, change)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_changes_without_a_waiting_client_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(underway, "UNWAITED_MAX", 1)
    changes = Underway()
    left, cut, later = Change(), Change(), Change()
    await leave_behind(changes, left)
    await leave_behind(changes, cut)
    for change in (left, cut):
        change.release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (left.is_done, cut.is_done) == (True, False)
    await leave_behind(changes, later)
    later.release.set()
    await trio.testing.wait_all_tasks_blocked()
    assert later.is_done, "there is room again"


async def test_waiting_client_gets_the_result_or_the_error() -> None:
    change = Change()
    change.release.set()
    assert await Underway().finish(change) == "done"

    async def fail() -> None:
        raise SessionExpiredError("/")

    with pytest.raises(SessionExpiredError):
        await Underway().finish(fail)


async def test_change_stuck_in_the_store_ends_soon_after_its_client(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A later retry would overwrite other changes."""
    ended = trio.Event()

    async def change() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    began = trio.current_time()
    with trio.move_on_after(1):
        await Underway().finish(change)
    assert not ended.is_set()
    await ended.wait()
    assert trio.current_time() - began <= 2 + underway.UNWAITED_SECONDS
