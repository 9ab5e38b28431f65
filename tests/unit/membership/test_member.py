"""Registration, and the end of a session."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.base.changes import Changes
from pyrklog.base.clock_reading import OWN
from pyrklog.base.problems import Problem
from pyrklog.errors import ConfigError, StartError, TemporaryError
from pyrklog.membership.current_store import CurrentStore
from pyrklog.membership.life import LastLife
from pyrklog.membership.member import CONNECT_RETRY_SECONDS, Member
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, EmbeddedStore, open_store
from pyrklog.metastore.interface import (
    Create,
    Metastore,
    Node,
    Operation,
    OperationResult,
    Outcome,
    SessionExpiredError,
    StoreFailedError,
)
from pyrklog.start.identity import create_paths

PATH = znodes.broker_path(3)


class Cluster:
    """A store, the sessions begun, and a part that counts its starts."""

    def __init__(self, opened: EmbeddedStore) -> None:
        self.opened = opened
        self.sessions: list[EmbeddedSession] = []
        self.refusals = 0
        self.epochs: list[int] = []
        self.running = 0
        self.starts = 0
        self.changes = Changes()

    async def connect(self) -> Metastore:
        if self.refusals:
            self.refusals -= 1
            raise TemporaryError(Problem.ZOOKEEPER_AWAY, "nobody answers")
        self.sessions.append(self.opened.session())
        return self.sessions[-1]

    def registration(self) -> znodes.BrokerRegistration:
        return znodes.BrokerRegistration(
            [("PLAINTEXT", "h", 1)], {"PLAINTEXT": "PLAINTEXT"}, "r", 0
        )

    def registered(self, epoch: int) -> None:
        self.epochs.append(epoch)

    async def part(self, task_status: trio.TaskStatus[None]) -> None:
        self.starts += 1
        self.running += 1
        assert self.running == 1, "a part of an earlier session still runs"
        try:
            task_status.started()
            self.changes.notify()
            await trio.sleep_forever()
        finally:
            self.running -= 1

    async def member(
        self, wait_seconds: float = 5.0, is_whole: Callable[[LastLife], bool] | None = None
    ) -> Member:
        store = CurrentStore(await self.connect())
        return Member(
            3,
            "c",
            store,
            self.connect,
            self.registration,
            registration_wait_seconds=wait_seconds,
            is_whole=is_whole,
            log_dirs=["/a", "/b"],
        )

    @asynccontextmanager
    async def belonging(self, member: Member) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.keep_session)
            await nursery.start(member.belong, self.registered, (self.part,))
            yield
            nursery.cancel_scope.cancel()

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(60):
            await self.changes.wait_until(condition)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    opened = await open_store(tmp_path / "meta")
    session = opened.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    await session.create(znodes.CLUSTER_ID, znodes.encode_cluster_id("c"))
    yield Cluster(opened)
    await opened.close()


async def test_a_broker_registers_and_its_epoch_is_the_transaction(cluster: Cluster) -> None:
    member = await cluster.member()
    async with cluster.belonging(member):
        node = await cluster.opened.session().get(PATH)
        assert znodes.decode_broker(PATH, node.data) == cluster.registration()
        assert node.stat.ephemeral_owner == member.store.session_id
        assert cluster.epochs == [node.stat.czxid] == [member.broker_epoch]
        assert cluster.starts == 1


async def test_a_registration_reads_the_stores_clock(cluster: Cluster) -> None:
    member = await cluster.member()
    async with cluster.belonging(member):
        node = await cluster.opened.session().get(PATH)
        assert member.store_clock is not None
        assert member.store_clock.other_ms == node.stat.mtime_ms
        assert OWN.ahead_of(member.store_clock) == 0


async def test_parts_start_again_after_the_session_expired(cluster: Cluster) -> None:
    member = await cluster.member()
    async with cluster.belonging(member):
        for life in (2, 3):
            await cluster.sessions[-1].expire()
            await cluster.until(lambda life=life: cluster.starts == life)  # type: ignore[misc]
            node = await cluster.opened.session().get(PATH)
            assert node.stat.ephemeral_owner == cluster.sessions[-1].session_id
            assert cluster.epochs[-1] == node.stat.czxid
        assert cluster.epochs == sorted(set(cluster.epochs))


async def test_a_new_session_is_no_registration_yet(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the broker knows is of before; the store is reachable already."""
    member = await cluster.member()
    seen: list[tuple[bool, bool]] = []
    register = member._register

    async def watched() -> int:
        seen.append((member.store.is_reachable, member.is_registered))
        return await register()

    monkeypatch.setattr(member, "_register", watched)
    async with cluster.belonging(member):
        seen.append((member.store.is_reachable, member.is_registered))
        await cluster.sessions[-1].expire()
        await cluster.until(lambda: cluster.starts == 2)
        seen.append((member.store.is_reachable, member.is_registered))
    assert seen == [(True, False), (True, True), (True, False), (True, True)]


async def test_member_opens_a_second_session_when_the_first_has_expired(cluster: Cluster) -> None:
    member = await cluster.member()
    await cluster.sessions[-1].expire()
    with trio.fail_after(60):
        async with cluster.belonging(member):
            node = await cluster.opened.session().get(PATH)
            assert node.stat.ephemeral_owner == cluster.sessions[-1].session_id
    assert len(cluster.sessions) == 2


async def test_a_store_that_cannot_be_reached_is_tried_until_it_can(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    member = await cluster.member()
    async with cluster.belonging(member):
        cluster.refusals = 3
        began = trio.current_time()
        await cluster.sessions[-1].expire()
        await cluster.until(lambda: cluster.starts == 2)
        assert trio.current_time() - began >= 3 * CONNECT_RETRY_SECONDS


@pytest.mark.parametrize(
    "failure",
    [
        SessionExpiredError("/"),
        StoreFailedError("the disk is full"),
        ConfigError(Problem.OPTION_VALUE, "no PEM file"),
    ],
    ids=lambda failure: type(failure).__name__,
)
@pytest.mark.parametrize("where", ["connect", "read"])
async def test_failures_in_a_later_session_are_retried(
    cluster: Cluster,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    where: str,
) -> None:
    """Another expiry during the check of the chroot, or while certificates are replaced."""
    member = await cluster.member()
    connect = cluster.connect
    failures = 3

    async def fail(*_: object) -> list[Node | None]:
        raise failure

    async def try_to_connect() -> Metastore:
        nonlocal failures
        if failures:
            failures -= 1
            if where == "connect":
                raise failure
            session = await connect()
            monkeypatch.setattr(session, "get_many", fail)
            return session
        return await connect()

    member._connect = try_to_connect
    async with cluster.belonging(member):
        began = trio.current_time()
        await cluster.sessions[-1].expire()
        await cluster.until(lambda: cluster.starts == 2)
        assert trio.current_time() - began >= 3 * CONNECT_RETRY_SECONDS
    assert failures == 0


async def test_a_store_of_another_cluster_is_not_entered(cluster: Cluster) -> None:
    member = await cluster.member()
    with pytest.RaisesGroup(pytest.RaisesExc(StartError, match="another cluster's")):
        async with cluster.belonging(member):
            await cluster.opened.session().set(znodes.CLUSTER_ID, znodes.encode_cluster_id("other"))
            await cluster.sessions[-1].expire()
            await trio.sleep_forever()


async def test_registration_waits_for_the_session_of_an_earlier_life(cluster: Cluster) -> None:
    earlier = cluster.opened.session()
    await earlier.multi([Create(PATH, b"", ephemeral=True)])
    member = await cluster.member(wait_seconds=30.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.keep_session)
        nursery.start_soon(member.belong, cluster.registered, (cluster.part,))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert cluster.epochs == []
        await earlier.expire()
        await cluster.until(lambda: cluster.starts == 1)
        nursery.cancel_scope.cancel()


async def test_registration_fails_while_another_broker_holds_the_number(cluster: Cluster) -> None:
    other = cluster.opened.session()
    await other.multi([Create(PATH, b"", ephemeral=True)])
    member = await cluster.member(wait_seconds=0.05)
    with pytest.RaisesGroup(
        pytest.RaisesExc(TemporaryError, match="registered as number 3"), flatten_subgroups=True
    ):
        async with cluster.belonging(member):
            await trio.sleep_forever()
    assert await cluster.opened.session().exists(PATH) is not None


async def test_part_that_sees_the_session_end_first_does_not_end_the_broker(
    cluster: Cluster,
) -> None:
    member = await cluster.member()

    seen = trio.Event()

    async def hasty(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        # Its session is lost; nobody else is told yet.
        await cluster.sessions[0].close()
        try:
            await member.store.set("/x", b"")
        except SessionExpiredError:
            seen.set()
            raise

    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.keep_session)
        await nursery.start(member.belong, cluster.registered, (cluster.part, hasty))
        with trio.fail_after(10):
            await seen.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert (cluster.starts, cluster.running) == (1, 1)
        nursery.cancel_scope.cancel()


async def test_failing_part_is_restarted(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    member = await cluster.member()
    failures = 2

    async def failing(task_status: trio.TaskStatus[None]) -> None:
        nonlocal failures
        task_status.started()
        await trio.sleep(1)
        if failures:
            failures -= 1
            raise RuntimeError("a bug")
        await cluster.part(task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(member.belong, cluster.registered, (failing,))
        await cluster.until(lambda: cluster.starts == 1)
        nursery.cancel_scope.cancel()
    assert failures == 0


async def test_a_part_that_never_begins_keeps_the_broker_from_starting(cluster: Cluster) -> None:
    member = await cluster.member()

    async def failing(task_status: trio.TaskStatus[None]) -> None:
        raise RuntimeError("a bug")

    with pytest.RaisesGroup(pytest.RaisesExc(RuntimeError), flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await nursery.start(member.belong, cluster.registered, (failing,))


async def test_a_store_that_does_not_let_it_register_again_is_asked_again(
    cluster: Cluster, autojump_clock: trio.testing.MockClock
) -> None:
    member = await cluster.member()
    failures = 3

    async def refuse(operations: Sequence[Operation]) -> list[OperationResult]:
        nonlocal failures
        if failures:
            failures -= 1
            raise StoreFailedError("no access")
        return await CurrentStore.multi(member.store, operations)

    async with cluster.belonging(member):
        member.store.multi = refuse  # type: ignore[method-assign]
        await cluster.sessions[-1].expire()
        await cluster.until(lambda: cluster.starts == 2)
    assert failures == 0


# --- what its logs have --------------------------------------------------------------------------


async def test_broker_with_whole_logs_registers_without_an_unclean_mark(cluster: Cluster) -> None:
    """The question is about the epoch of its last registration."""
    await create_paths(cluster.opened.session(), znodes.OWN_PATHS)
    asked: list[LastLife] = []

    def is_whole(last: LastLife) -> bool:
        asked.append(last)
        return True

    for _ in range(2):
        member = await cluster.member(is_whole=is_whole)
        async with cluster.belonging(member):
            epoch = member.broker_epoch
        await member.store.close()
    assert len(asked) == 1, "a broker that was never there has nothing to lack"
    assert asked[0].epoch == cluster.epochs[0] < epoch
    assert asked[0].log_dirs == frozenset({"/a", "/b"})
    assert await cluster.opened.session().exists(znodes.unclean_path(3)) is None


async def test_broker_that_may_lack_records_registers_an_unclean_mark(
    cluster: Cluster,
) -> None:
    session = cluster.opened.session()
    await create_paths(session, znodes.OWN_PATHS)
    first = await cluster.member(is_whole=lambda _: True)
    async with cluster.belonging(first):
        pass
    await first.store.close()
    for versions in (0, 1):
        member = await cluster.member(is_whole=lambda _: False)
        async with cluster.belonging(member):
            node = await session.get(znodes.unclean_path(3))
            assert node.stat.mzxid == member.broker_epoch, "in the same transaction"
            assert node.stat.version == versions
        await member.store.close()


async def test_wholeness_of_the_logs_is_checked_once_in_a_process(cluster: Cluster) -> None:
    """In later sessions it has what it appended itself."""
    session = cluster.opened.session()
    await create_paths(session, znodes.OWN_PATHS)
    await session.create(znodes.life_path(3))
    answers = iter([False])
    member = await cluster.member(is_whole=lambda _: next(answers))
    async with cluster.belonging(member):
        await session.delete(znodes.unclean_path(3))
        await cluster.sessions[-1].expire()
        await cluster.until(lambda: cluster.starts == 2)
        assert await session.exists(znodes.unclean_path(3)) is None


class Forgetful(CurrentStore):
    """A store that loses the answer to the first registration, which took effect."""

    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        outcomes = await super().multis(transactions)
        if any(operation.path == PATH for operation in transactions[0]):
            outcomes = await super().multis(transactions)
        return outcomes


async def test_registration_with_a_lost_answer_is_recognised(cluster: Cluster) -> None:
    member = await cluster.member(wait_seconds=0)
    member.store = Forgetful(await cluster.connect())
    async with cluster.belonging(member):
        node = await cluster.opened.session().get(PATH)
        assert cluster.epochs == [node.stat.czxid]
