"""A broker observes the controller's port: when it deposes, and when it must not."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.controller.store_writes import Term
from pyrklog.controller.takeover.challenger import Challenger
from pyrklog.controller.takeover.evidence import Incumbent
from pyrklog.membership.current_store import CurrentStore
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, EmbeddedStore, open_store
from pyrklog.metastore.interface import (
    Create,
    Delete,
    Metastore,
    Operation,
    Outcome,
    SessionExpiredError,
    Set,
)
from pyrklog.peers import port_monitor
from pyrklog.peers.connection import Address, PeerError
from pyrklog.start.identity import create_paths
from tests.unit.peers.fake_peer import FakePeer, free_address, with_probes

LISTENER = "INTERNAL"
TIMEOUT_MS = 6_000
CONTROLLER, OTHER, THIRD = 1, 2, 3


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    opened = await open_store(tmp_path / "meta")
    session = opened.session()
    await create_paths(session, (*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS))
    await session.create(znodes.CONTROLLER_EPOCH, b"3")
    yield opened
    await opened.close()


async def register(store: EmbeddedStore, broker: int, address: Address) -> EmbeddedSession:
    session = store.session()
    registration = znodes.BrokerRegistration(
        [("CLIENTS", "nowhere", 1), (LISTENER, *address)],
        {"CLIENTS": "PLAINTEXT", LISTENER: "PLAINTEXT"},
        None,
        0,
    )
    path = znodes.broker_path(broker)
    await session.multi([Create(path, b"", True), Set(path, znodes.encode_broker(registration), 0)])
    return session


async def lead(session: EmbeddedSession, broker: int = CONTROLLER) -> Incumbent:
    """Makes a broker the controller, in place of the present one."""
    is_there = await session.exists(znodes.CONTROLLER) is not None
    gone: list[Operation] = [Delete(znodes.CONTROLLER)] if is_there else []
    epoch = int((await session.get(znodes.CONTROLLER_EPOCH)).data)
    data = znodes.encode_controller(broker, 0)
    made: list[Operation] = [
        Create(znodes.CONTROLLER, data, True),
        Set(znodes.CONTROLLER_EPOCH, str(epoch + 1).encode()),
    ]
    await session.multi([*gone, *made])
    return Incumbent(broker, (await session.get(znodes.CONTROLLER)).stat)


async def controller(store: EmbeddedStore) -> int:
    return znodes.decode_controller((await store.session().get(znodes.CONTROLLER)).data)


def challenger(session: Metastore, broker: int = OTHER, timeout_ms: int = TIMEOUT_MS) -> Challenger:
    return Challenger(broker, session, LISTENER, timeout_ms)


async def depose(one: Challenger, incumbent: Incumbent) -> Term | None:
    with trio.fail_after(30):
        return await one.run(incumbent, trio.Event())


async def nothing(_frame: bytes) -> bytes | None:
    return None


async def until_marked(store: EmbeddedStore, broker: int) -> None:
    session = store.session()
    with trio.fail_after(30):
        while True:
            changed = trio.Event()
            path = znodes.refused_path(broker)
            if await session.exists(path, lambda _, changed=changed: changed.set()) is not None:  # type: ignore[misc]
                return
            await changed.wait()


async def until_unmarked(store: EmbeddedStore, broker: int) -> None:
    session = store.session()
    with trio.fail_after(30):
        while True:
            changed = trio.Event()
            path = znodes.refused_path(broker)
            if await session.exists(path, lambda _, changed=changed: changed.set()) is None:  # type: ignore[misc]
                return
            await changed.wait()


@asynccontextmanager
async def challenging(one: Challenger, incumbent: Incumbent) -> AsyncIterator[trio.Event]:
    """Runs ``one``, which must not depose anybody; the event is /controller's watch."""
    moved = trio.Event()

    async def run() -> None:
        assert await one.run(incumbent, moved) is None
        assert moved.is_set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield moved
        nursery.cancel_scope.cancel()


async def test_a_controller_whose_port_refuses_is_deposed_and_stays_registered(
    store: EmbeddedStore,
) -> None:
    incumbent = await lead(await register(store, CONTROLLER, await free_address()))
    session = store.session()
    term = await depose(challenger(session), incumbent)
    assert term == Term(5, (await session.get(znodes.CONTROLLER_EPOCH)).stat.version, CONTROLLER)
    node = await session.get(znodes.CONTROLLER)
    assert znodes.decode_controller(node.data) == OTHER
    assert node.stat.ephemeral_owner == session.session_id
    registration = await session.get(znodes.broker_path(CONTROLLER))
    assert registration.stat.ephemeral_owner == incumbent.stat.ephemeral_owner
    record = znodes.decode_deposed((await session.get(znodes.DEPOSED)).data)
    assert record == znodes.Deposed(CONTROLLER, registration.stat.czxid, OTHER, 1)
    assert await session.children(znodes.REFUSED) == []


async def test_controller_is_deposed_after_its_port_closes(
    store: EmbeddedStore,
) -> None:
    address = await free_address()
    incumbent = await lead(await register(store, CONTROLLER, address))
    peer = FakePeer(with_probes(nothing))
    terms: list[Term | None] = []

    async def challenge() -> None:
        terms.append(await challenger(store.session()).run(incumbent, trio.Event()))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery, peer.listening(address[1]):
            nursery.start_soon(challenge)
            while not peer.connections:
                await trio.testing.wait_all_tasks_blocked(0.01)
            assert await controller(store) == CONTROLLER
    assert [term.epoch for term in terms if term] == [5]


async def test_timeouts_do_not_depose_a_controller(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many: a controller that stands still, or is cut off, does not answer."""
    monkeypatch.setattr(port_monitor, "LATER_SECONDS", 0)
    tries = 0
    enough = trio.Event()

    async def time_out(_host: str, _port: int) -> trio.SocketStream:
        nonlocal tries
        tries += 1
        if tries == 10:
            enough.set()
        await trio.lowlevel.checkpoint()
        raise PeerError("does not answer")

    monkeypatch.setattr(port_monitor, "connect", time_out)
    incumbent = await lead(await register(store, CONTROLLER, ("nowhere", 1)))
    async with challenging(challenger(store.session()), incumbent):
        with trio.fail_after(30):
            await enough.wait()
        assert await store.session().children(znodes.REFUSED) == []
        assert await controller(store) == CONTROLLER


async def test_one_refusal_is_not_enough_for_one_observer(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark goes when a connection succeeds again."""
    monkeypatch.setattr(port_monitor, "REFUSAL_SECONDS", 3)
    address = await free_address()
    incumbent = await lead(await register(store, CONTROLLER, address))
    async with challenging(challenger(store.session()), incumbent):
        await until_marked(store, OTHER)
        async with FakePeer(with_probes(nothing)).listening(address[1]):
            await until_unmarked(store, OTHER)
            assert await controller(store) == CONTROLLER


@pytest.fixture
def never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An observer's first refusal is its last."""
    monkeypatch.setattr(port_monitor, "REFUSAL_SECONDS", 3600)


@pytest.mark.usefixtures("never_again")
async def test_one_refusal_of_each_of_two_observers_is_enough(store: EmbeddedStore) -> None:
    incumbent = await lead(await register(store, CONTROLLER, await free_address()))
    async with challenging(challenger(store.session(), OTHER), incumbent) as moved:
        await until_marked(store, OTHER)
        assert await controller(store) == CONTROLLER
        third = store.session()
        term = await depose(challenger(third, THIRD), incumbent)
        assert term is not None
        assert await controller(store) == THIRD
        # The first learns of it and removes its mark.
        moved.set()
        await until_unmarked(store, OTHER)


@pytest.mark.usefixtures("never_again")
@pytest.mark.parametrize("is_silent", [False, True])
async def test_refusals_of_another_term_do_not_count(store: EmbeddedStore, is_silent: bool) -> None:
    session = await register(store, CONTROLLER, await free_address())
    earlier = await lead(session)
    observing = store.session()
    path = znodes.refused_path(THIRD)
    data = znodes.encode_refused(znodes.Refused(earlier.stat.czxid, is_silent))
    await observing.multi([Create(path, b"", True), Set(path, data, 0)])
    incumbent = await lead(session)
    async with challenging(challenger(store.session()), incumbent):
        await until_marked(store, OTHER)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert await controller(store) == CONTROLLER


async def test_controller_address_of_another_life_is_not_observed(store: EmbeddedStore) -> None:
    """The present registration belongs to another session than the controller's."""
    first = await register(store, CONTROLLER, await free_address())
    incumbent = await lead(first)
    await first.delete(znodes.broker_path(CONTROLLER))
    await register(store, CONTROLLER, await free_address())
    async with challenging(challenger(store.session()), incumbent):
        # An observed one would have been deposed by then.
        twin = await lead(await register(store, THIRD, await free_address()), THIRD)
        assert await depose(challenger(store.session(), 4), twin) is not None
        assert await store.session().exists(znodes.refused_path(OTHER)) is None


async def test_broker_with_an_expired_session_cannot_depose(store: EmbeddedStore) -> None:
    address = await free_address()
    incumbent = await lead(await register(store, CONTROLLER, address))
    session = store.session()
    peer = FakePeer(with_probes(nothing))
    ends: list[BaseException] = []

    async def challenge() -> None:
        try:
            await challenger(session).run(incumbent, trio.Event())
        except SessionExpiredError as error:
            ends.append(error)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery, peer.listening(address[1]):
            nursery.start_soon(challenge)
            while not peer.connections:
                await trio.testing.wait_all_tasks_blocked(0.01)
            await session.expire()
    assert len(ends) == 1
    assert await controller(store) == CONTROLLER


async def test_broker_between_two_sessions_cannot_depose(store: EmbeddedStore) -> None:
    address = await free_address()
    incumbent = await lead(await register(store, CONTROLLER, address))
    current = CurrentStore(store.session())
    peer = FakePeer(with_probes(nothing))
    async with challenging(challenger(current), incumbent):
        async with peer.listening(address[1]):
            while not peer.connections:
                await trio.testing.wait_all_tasks_blocked(0.01)
            current.lose()
        # Another one, with a session, finds it dead meanwhile.
        assert await depose(challenger(store.session(), THIRD), incumbent) is not None
        assert await controller(store) == THIRD


class Meddled(CurrentStore):
    """Runs something just before the deposing transaction."""

    def __init__(self, session: EmbeddedSession) -> None:
        super().__init__(session)
        self.meddle = partial(lead, session)

    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        if any(isinstance(op, Delete) and op.path == znodes.CONTROLLER for op in transactions[0]):
            await self.meddle()
        return await super().multis(transactions)


async def test_controller_that_changed_meanwhile_is_not_deposed(store: EmbeddedStore) -> None:
    """The new one has the same name and version, but is another controller."""
    first = await register(store, CONTROLLER, await free_address())
    incumbent = await lead(first)
    meddled = Meddled(store.session())
    meddled.meddle = partial(lead, first)
    assert await depose(challenger(meddled), incumbent) is None
    session = store.session()
    node = await session.get(znodes.CONTROLLER)
    assert node.stat.ephemeral_owner == first.session_id
    assert (await session.get(znodes.CONTROLLER_EPOCH)).data == b"5"
    assert await session.exists(znodes.DEPOSED) is None
    assert await session.children(znodes.REFUSED) == []
    # The same if it had changed before the read.
    assert await depose(challenger(store.session()), incumbent) is None


async def test_mutual_deposals_become_rarer(
    store: EmbeddedStore,
) -> None:
    """Both live all the time: by the store's clock, the pauses double."""
    timeout_ms = 200
    sessions = {
        broker: await register(store, broker, await free_address())
        for broker in (CONTROLLER, OTHER)
    }
    incumbent = await lead(sessions[CONTROLLER])
    times_ms = []
    for number in range(4):
        broker = (OTHER, CONTROLLER)[number % 2]
        session = sessions[broker]
        assert await depose(challenger(session, broker, timeout_ms), incumbent) is not None
        incumbent = Incumbent(broker, (await session.get(znodes.CONTROLLER)).stat)
        record = await session.get(znodes.DEPOSED)
        assert znodes.decode_deposed(record.data).unproven == number + 1
        times_ms.append(record.stat.mtime_ms)
    pauses_ms = [after - before for before, after in pairwise(times_ms)]
    assert all(
        pause_ms >= least_ms for pause_ms, least_ms in zip(pauses_ms, (200, 400, 800), strict=True)
    ), pauses_ms


async def test_proven_deposal_does_not_delay_the_next(store: EmbeddedStore) -> None:
    """The second controller dies, too: the third waits for the proof that the first was dead."""
    hour_ms = 3_600_000
    first = await register(store, CONTROLLER, await free_address())
    incumbent = await lead(first)
    second = await register(store, OTHER, await free_address())
    assert await depose(challenger(second, OTHER, hour_ms), incumbent) is not None
    incumbent = Incumbent(OTHER, (await second.get(znodes.CONTROLLER)).stat)
    terms: list[Term | None] = []

    async def challenge() -> None:
        one = challenger(store.session(), THIRD, hour_ms)
        terms.append(await one.run(incumbent, trio.Event()))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(challenge)
            await until_marked(store, THIRD)
            await trio.testing.wait_all_tasks_blocked(0.3)
            assert not terms
            await first.expire()
    assert [term.epoch for term in terms if term] == [6]
    assert znodes.decode_deposed((await second.get(znodes.DEPOSED)).data).unproven == 1


async def test_unreadable_deposal_record_delays_nobody(store: EmbeddedStore) -> None:
    incumbent = await lead(await register(store, CONTROLLER, await free_address()))
    session = store.session()
    await session.create(znodes.DEPOSED, b'{"version":1}')
    assert await depose(challenger(session), incumbent) is not None
    assert znodes.decode_deposed((await session.get(znodes.DEPOSED)).data).broker == CONTROLLER


async def test_refusal_znode_of_an_earlier_life_is_replaced(store: EmbeddedStore) -> None:
    incumbent = await lead(await register(store, CONTROLLER, await free_address()))
    await store.session().create(znodes.refused_path(OTHER), b"", ephemeral=True)
    assert await depose(challenger(store.session()), incumbent) is not None


async def test_refusal_znode_is_created_after_its_parent_was_deleted(store: EmbeddedStore) -> None:
    incumbent = await lead(await register(store, CONTROLLER, await free_address()))
    await store.session().delete(znodes.REFUSED)
    assert await depose(challenger(store.session()), incumbent) is not None


# --- silence --------------------------------------------------------------------------------------


async def no_answer(_frame: bytes) -> bytes | None:
    await trio.sleep_forever()


async def register_others(store: EmbeddedStore, *brokers: int) -> None:
    for broker in brokers:
        await register(store, broker, ("nowhere", broker))


async def test_a_controller_that_is_silent_to_a_majority_is_deposed(store: EmbeddedStore) -> None:
    """Like a stopped process: its port accepts connections, and nothing is answered."""
    peer = FakePeer(no_answer)
    async with peer.listening():
        assert peer.address is not None
        incumbent = await lead(await register(store, CONTROLLER, peer.address))
        await register_others(store, OTHER, THIRD)
        async with challenging(challenger(store.session(), OTHER), incumbent) as moved:
            await until_marked(store, OTHER)
            path = znodes.refused_path(OTHER)
            mark = znodes.decode_refused(path, (await store.session().get(path)).data)
            assert mark == znodes.Refused(incumbent.stat.czxid, is_silent=True)
            assert await controller(store) == CONTROLLER
            term = await depose(challenger(store.session(), THIRD), incumbent)
            assert term is not None
            assert await controller(store) == THIRD
            moved.set()
            await until_unmarked(store, OTHER)


@pytest.mark.parametrize("registered", [(OTHER,), (OTHER, THIRD), (OTHER, THIRD, 4, 5)])
async def test_silence_without_a_majority_does_not_depose(
    store: EmbeddedStore, registered: Sequence[int]
) -> None:
    """One of two, one of three, two of five: they may be the ones that are cut off."""
    peer = FakePeer(no_answer)
    async with peer.listening():
        assert peer.address is not None
        incumbent = await lead(await register(store, CONTROLLER, peer.address))
        await register_others(store, *registered)
        observers = registered[: len(registered) // 2] or registered[:1]
        async with trio.open_nursery() as nursery:
            for broker in observers:
                nursery.start_soon(challenger(store.session(), broker).run, incumbent, trio.Event())
            for broker in observers:
                await until_marked(store, broker)
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert await controller(store) == CONTROLLER
            nursery.cancel_scope.cancel()


async def test_refusal_znode_is_removed_when_the_controller_answers(
    store: EmbeddedStore,
) -> None:
    goes_on = trio.Event()

    async def after_a_while(frame: bytes) -> bytes | None:
        await goes_on.wait()
        return frame[4:8] + bytes(6)

    peer = FakePeer(after_a_while)
    async with peer.listening():
        assert peer.address is not None
        incumbent = await lead(await register(store, CONTROLLER, peer.address))
        await register_others(store, OTHER, THIRD)
        async with challenging(challenger(store.session(), OTHER), incumbent):
            await until_marked(store, OTHER)
            goes_on.set()
            await until_unmarked(store, OTHER)
            assert await controller(store) == CONTROLLER
