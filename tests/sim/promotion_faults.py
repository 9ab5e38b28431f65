"""An administrator who promotes partial replicas early, as `cluster expand --promote` does
(``expansion.md``, section 7), and members of groups that read old records again.

``Action.brokers`` has the partition's index.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from pyrklog.cli.promotion import LOWEST_CONSUMED, Commits, Promotion, Reader, objections
from pyrklog.metastore.znodes import Leadership
from tests.sim.clients import Caller, Consumer
from tests.sim.faults import DOINGS, Action, Undo, moments
from tests.sim.promises import Fetched
from tests.sim.settings import TOPIC, Settings
from tests.sim.world import World
from tests.support import wire

PROMOTE = "promote"
PAUSE_US = (100_000, 600_000)
WINDOW_US = 1_000_000
"""``pyrklog.expansion.window.ms``."""
BACK_SHARE, COMMIT_SHARE = 0.05, 0.3
"""Of the fetches of a member."""
SLOW_BYTES = 300
"""Of an answer to one that reads again."""
GROUP = "members"
LIST_OFFSETS_VERSION = 1
DEBUGGING_REPLICA = -2


def draw_promotions(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    dice = random.Random(f"{seed}/promotions")
    partitions = list(settings.partitions)
    return [
        Action(at_us, PROMOTE, (dice.choice(partitions),))
        for at_us in moments(dice, PAUSE_US, from_us, until_us)
    ]


class Member(Consumer):
    """Returns to the beginning at times, and reads from there to where it was, slowly and without
    commits. Otherwise it commits at times."""

    def __init__(self, world: World, name: int, index: int, until_us: int) -> None:
        self._reads = world.checker.partitions[index]
        self._asked: tuple[int, int, int] | None = None
        self._again_until = 0
        super().__init__(world, name, index, until_us)

    def _ask(self) -> None:
        is_back = self._offset >= self._again_until
        if is_back and self._dice.random() < BACK_SHARE:
            self._again_until = self._offset
            self._offset = self._reads.deleted_below
        elif is_back and self._dice.random() < COMMIT_SHARE:
            self._reads.committed = self._offset
        self.max_bytes = Consumer.max_bytes if is_back else SLOW_BYTES
        super()._ask()

    def call(
        self,
        broker: int,
        key: int,
        version: int,
        body: bytes,
        done: Callable[[bytes | None], None],
        *,
        flexible: bool = False,
    ) -> None:
        self._asked = broker, self._offset, self.world.heap.now_us
        super().call(broker, key, version, body, done, flexible=flexible)

    def _done(self, answer: bytes | None) -> None:
        if answer is not None and self._asked is not None:
            # Behind the response's head, the topic's name, a count and the partition's index.
            (error,) = struct.unpack_from(">h", answer, 14 + 2 + len(TOPIC) + 8)
            if error == 0:
                self._reads.fetched.append(Fetched(*self._asked, self.world.heap.now_us))
        super()._done(answer)


class Promoter(Caller):
    """Asks the leader and the members of the ISR where consumers fetch, then for commits."""

    def __init__(self, world: World, index: int, state: Leadership, one: Promotion) -> None:
        super().__init__(world)
        self._index = index
        self._state = state
        self._one = one
        self._began_us = world.heap.now_us
        self._readers: dict[int, Reader] = {}
        body = struct.pack(">i", DEBUGGING_REPLICA) + wire.array(
            [wire.string(TOPIC) + wire.array([struct.pack(">iq", index, LOWEST_CONSUMED)])]
        )
        for broker in state.isr:
            self.call(broker, wire.LIST_OFFSETS, LIST_OFFSETS_VERSION, body, self._taker(broker))

    def _taker(self, broker: int) -> Callable[[bytes | None], None]:
        def take(answer: bytes | None) -> None:
            lowest, why = None, "is silent"
            if answer is not None:
                reader = wire.Reader(answer)
                reader.take(4)
                reader.string()
                reader.take(4 + 4)
                error = reader.number("h")
                reader.take(8)
                lowest, why = (None, f"answers {error}") if error else (reader.number("q"), "")
            self._readers[broker] = Reader(broker, lowest, WINDOW_US // 1_000, why)
            if len(self._readers) == len(self._state.isr):
                self._conclude()

        return take

    def _conclude(self) -> None:
        world, one = self.world, self._one
        promises = world.checker.partitions[self._index]
        groups = {}
        if promises.committed >= 0:
            groups[GROUP] = Commits(False, {one.key: promises.committed})
        if objections(one, {"delete"}, groups, self._readers.values()):
            return
        leader = world.brokers[self._state.leader].life
        view = leader.sim.partition(TOPIC, self._index) if leader is not None else None
        if leader is None or leader.process.is_paused or view is None or view[0] != "Leader":
            return
        _, mark, _, _ = view[2]
        if mark < one.start:
            return  # refused by the leader
        self._check()
        world.checker.promotes(self._index, one.start)
        leader.touch(lambda: leader.sim.plane().delete_records([(TOPIC, self._index, one.start)]))

    def _check(self) -> None:
        """Whether somebody is known to need what goes."""
        promises, start = self.world.checker.partitions[self._index], self._one.start
        if 0 <= promises.committed < start:
            self.world.violated(f"t-{self._index}: {promises.committed} is committed below {start}")
        for one in promises.fetched:
            is_within = one.asked_us >= self.world.heap.now_us - WINDOW_US
            was_before = one.answered_us <= self._began_us
            if one.offset < start and is_within and was_before and one.broker in self._state.isr:
                self.world.violated(
                    f"t-{self._index}: promoted to {start}, and {one.offset} was fetched "
                    f"{self.world.heap.now_us - one.answered_us} us before"
                )


def _promote(world: World, index: int) -> Undo:
    state = world.checker.partitions[index].leadership
    if state is None or state.leader < 0:
        return None
    starts = {}
    for number, broker in world.brokers.items():
        view = broker.life.sim.partition(TOPIC, index) if broker.life is not None else None
        if view is not None and view[2] is not None:
            starts[number] = view[2][0]
    leader_start = starts.get(state.leader)
    partial = [start for number, start in starts.items() if number not in state.isr]
    if leader_start is None or max(partial, default=0) <= leader_start:
        return None
    Promoter(world, index, state, Promotion((TOPIC, index), leader_start, max(partial)))
    return None


DOINGS[PROMOTE] = _promote
