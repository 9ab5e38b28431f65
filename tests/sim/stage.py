"""For stories: a world without chance, one step after another."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from pyrklog.controller.effects import Steps
from pyrklog.controller.leader_election import Candidates
from pyrklog.controller.machine import Controller
from pyrklog.metastore import znodes
from pyrklog.metastore.znodes import Leadership
from tests.sim.clients import EVERYWHERE, FETCH_VERSION, PRODUCE_VERSION, Caller
from tests.sim.network import STORE
from tests.sim.settings import TOPIC, Settings
from tests.sim.world import World
from tests.support import wire

PATIENCE_US = 20_000_000
LOOK_US = 1_000
KEY = (TOPIC, 0)


class Stage(Caller):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._values = 0

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Lets time pass until the condition holds, for at most 20 s."""
        deadline_us = self.world.heap.now_us + PATIENCE_US
        while not condition():
            assert self.world.heap.now_us < deadline_us, f"{what} did not happen"
            self.world.run_until(self.world.heap.now_us + LOOK_US)

    def wait(self, seconds: float) -> None:
        self.world.run_until(self.world.heap.now_us + int(seconds * 1e6))

    # --- the cluster -----------------------------------------------------------------------------

    def begin(self, controller: int) -> None:
        """Starts all brokers; this one becomes controller."""
        self.world.start(controller)
        self.until("the controller", lambda: self._leads(controller))
        for broker in self.world.brokers:
            self.world.start(broker)
            path = znodes.broker_path(broker)
            self.until(path, lambda path=path: path in self.world.zookeeper.tree.entries)  # type: ignore[misc]
        self.until("a whole cluster", lambda: self.world.checker.unsettled() is None)

    def _leads(self, broker: int) -> bool:
        life = self.world.brokers[broker].life
        return life is not None and life.controller is not None and life.controller.leads

    def state(self) -> Leadership:
        found = self.world.checker.partitions[0].leadership
        assert found is not None
        return found

    def elect(self, leader: int) -> None:
        """The controller makes an ISR member leader, as in a preferred election."""
        (life,) = [x for x in self.world.live() if x.controller is not None and x.controller.leads]
        controller = life.controller
        assert controller is not None

        def election(candidates: Candidates) -> Leadership:
            return candidates.elected(leader, candidates.current.isr, 0)

        def procedure(machine: Controller) -> Steps:
            partition = machine.state.partition(KEY)
            assert partition is not None
            yield from machine._partitions.to_online([partition], election)
            yield from machine._batch.flush()

        self.world.scheduler.run_in(life.process, controller.perform, procedure)
        self.until("the election", lambda: self.state().leader == leader)

    def end_session(self, broker: int) -> None:
        for session in list(self.world.zookeeper.sessions.values()):
            if session.broker == broker:
                self.world.zookeeper.end(session)

    def succeed(self, controller: int, successor: int) -> None:
        """A dead controller's session ends; the successor is the first to hear of it."""
        others = [broker for broker in self.world.brokers if broker not in (controller, successor)]
        for broker in others:
            self.world.network.cut(STORE, broker)
        self.end_session(controller)
        self.until("the next controller", lambda: self._leads(successor))
        for broker in others:
            self.world.network.heal(STORE, broker)

    def cut(self, one: int, other: int) -> None:
        """Cuts both ways, including messages under way."""
        self.world.network.cut(one, other)
        self.world.network.cut(other, one)

    def heal(self) -> None:
        """Heals all links and resets earlier connections."""
        for one in self.world.brokers:
            for other in self.world.brokers:
                if one < other and not self.world.network.reaches(one, other):
                    self.world.network.break_connections(one, other)
        self.world.network.heal_all()
        self.world.look_at_connections()

    def role(self, broker: int) -> tuple[str, int]:
        """A broker's role for the partition, and its leader epoch."""
        life = self.world.brokers[broker].life
        view = life.sim.partition(TOPIC, 0) if life is not None else None
        return (view[0], view[1]) if view is not None else ("None", -1)

    def mark(self, broker: int) -> int:
        life = self.world.brokers[broker].life
        assert life is not None
        mark: int = life.sim.partition(TOPIC, 0)[2][1]
        return mark

    def break_invariant(self, broker: int) -> None:
        """The leader epoch of the broker's replica falls."""
        life = self.world.brokers[broker].life
        assert life is not None
        life.touch(lambda: life.sim.break_invariant(TOPIC, 0))

    def epochs(self, broker: int) -> list[int]:
        return [batch.epoch for batch in self.world.checker.replicas[broker, 0].batches]

    # --- clients ---------------------------------------------------------------------------------

    def produce(self, broker: int, *, acks: int = -1) -> int:
        """Sends a record; returns the error code."""
        self._values += 1
        batch = wire.record_batch([struct.pack(">q", self._values)])
        (crc,) = struct.unpack_from(">I", batch, 17)
        data = struct.pack(">i", 0) + wire.blob(batch)
        body = wire.string(None) + struct.pack(">hi", acks, 2_000)
        body += wire.array([wire.string(TOPIC) + wire.array([data])])
        reader = wire.Reader(self._ask(broker, wire.PRODUCE, PRODUCE_VERSION, body))
        _head = reader.take(4), reader.string(), reader.take(8)
        error, base = reader.number("h"), reader.number("q")
        if error == 0 and acks == -1:
            self.world.checker.acked(0, base, crc)
        return error

    def fetch(self, broker: int, offset: int, epoch: int) -> tuple[int, int]:
        """Fetches like a consumer that knows the leader epoch: error code, record bytes."""
        data = struct.pack(">iiqqi", 0, epoch, offset, -1, 1 << 20)
        body = struct.pack(">iiiibii", -1, 0, 1, 1 << 20, 0, 0, -1)
        body += wire.array([wire.string(TOPIC) + wire.array([data])])
        body += wire.array([]) + wire.string("")
        reader = wire.Reader(self._ask(broker, wire.FETCH, FETCH_VERSION, body))
        _head = reader.take(14), reader.string(), reader.take(8)
        error = reader.number("h")
        reader.take(32)
        return error, len(reader.blob() or b"")

    def _ask(self, broker: int, key: int, version: int, body: bytes) -> bytes:
        answers: list[bytes | None] = []
        self.call(broker, key, version, body, answers.append)
        self.until("an answer", lambda: bool(answers))
        (answer,) = answers
        assert answer is not None, f"no answer of broker {broker} to {EVERYWHERE}"
        return answer


def stage_world(brokers: Sequence[int], injected: Sequence[str], *, seed: int = 0) -> World:
    """One partition on brokers 1 and 2 with a minimum of one replica; the others only watch.

    Nobody is suspected: a story says who learns of a death, and when.
    """
    settings = Settings(
        brokers=tuple(brokers),
        partitions={0: (1, 2)},
        min_insync_replicas=1,
        rebalance_seconds=None,
        suspects=False,
        injected=tuple(injected),
    )
    return World(seed, settings)
