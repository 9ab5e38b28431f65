"""An administrator who changes the topic's options while it is served: more actions of a script,
and what may be promised meanwhile.

A minimum that has been lowered counts at once, one that has been raised when the last broker knows
it: what is acknowledged until then is promised by the lower one.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create, Set
from pyrklog.metastore.znodes import RECOVERING, Leadership
from tests.sim.faults import DOINGS, Action, Undo, cut_pairs, moments
from tests.sim.zookeeper import SESSION_TIMEOUT_US

if TYPE_CHECKING:
    from tests.sim.checker import Promises
    from tests.sim.world import Settings, World

TOPIC = "t"
MINIMUM, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
SET_MINIMUM, ALLOW_UNCLEAN = "set_minimum", "allow_unclean"
STRAND = "strand"
"""A leader is cut off from its followers until it is alone in sync, and dies."""
STRAND_SHARE = 0.5
STRANDED_US = 2_500_000
DEAD_US = (1_500_000, 6_000_000)
PAUSE_US = (100_000, 4_000_000)
ALLOWED_US_MAX = 6_000_000
LOOK_US = 250_000
ANSWERED_US = 3_000_000
"""An acknowledgement reaches its client no later."""
DECIDED_US = SESSION_TIMEOUT_US + 1_000_000
"""A controller writes no later what it has decided by what it read: its session would be over."""


class Options:
    """The topic's options as the store has them, and as brokers may still know them."""

    def __init__(self, world: World) -> None:
        settings = world.settings
        self._world = world
        self._values = {MINIMUM: str(settings.min_insync_replicas)}
        self._known_us: dict[int, int] = {}
        """Minimums that some broker has gone by, and when it last did."""
        self._allowed_us = -DECIDED_US
        """When unclean elections were last allowed."""
        self.unclean_elections = 0
        if settings.changes_minimum:
            world.heap.after(LOOK_US, None, self._look)

    def encoded(self) -> bytes:
        """For the store."""
        return znodes.encode_config(self._values)

    def change(self, name: str, value: str) -> None:
        """Writes one of them, and announces that, as AlterConfigs does."""
        self._remember()
        self._values[name] = value
        path = znodes.topic_config_path(TOPIC)
        announcement = znodes.encode_config_change(f"topics/{TOPIC}")
        written = Set(path, self.encoded())
        told = Create(znodes.CONFIG_CHANGE_PREFIX, announcement, sequence=True)
        outcome = self._world.zookeeper.run(0, [written, told])
        assert isinstance(outcome, list), outcome
        self._world.heap.note(f"option {name}={value}")
        for index, promises in self._world.checker.partitions.items():
            promises.floor = min(promises.floor, self.minimum(index))
        # Who lowers it says that fewer replicas are enough for what is there already, too.
        self._world.checker.less_is_borne()

    # --- min.insync.replicas ------------------------------------------------------------------

    @property
    def _stored(self) -> int:
        return int(self._values[MINIMUM])

    def _known(self) -> set[int]:
        told = [life.metadata for life in self._world.live() if life.metadata is not None]
        minimums = [metadata.min_insync_replicas(TOPIC, None) for metadata in told]
        return {minimum for minimum in minimums if minimum is not None}

    def _remember(self) -> None:
        for minimum in (self._stored, *self._known()):
            self._known_us[minimum] = self._world.heap.now_us

    def _look(self) -> None:
        self._remember()
        self._world.heap.after(LOOK_US, None, self._look)

    def minimum(self, index: int) -> int:
        """What everybody has gone by of late, at least, in a partition."""
        since_us = self._world.heap.now_us - ANSWERED_US
        late = (minimum for minimum, at_us in self._known_us.items() if at_us >= since_us)
        replicas = self._world.checker.assignments.replicas(index)
        return min(self._stored, len(replicas), *self._known(), *late)

    def promised(self, index: int, promises: Promises) -> int:
        """On how many brokers each promise is, at least."""
        minimum, state = self.minimum(index), promises.leadership
        whole = set(state.isr if state is not None else ()) - promises.lacking
        is_held = len(whole) >= minimum
        promises.floor = minimum if is_held else min(promises.floor, minimum)
        return promises.floor

    # --- unclean.leader.election.enable --------------------------------------------------------

    def allow_unclean(self) -> Undo:
        """Until it is undone."""
        self.change(UNCLEAN, "true")
        return self.forbid_unclean

    @property
    def _is_allowed(self) -> bool:
        return self._values.get(UNCLEAN) == "true"

    def forbid_unclean(self) -> None:
        """Nothing is lost by somebody's leave any more."""
        if self._is_allowed:
            self._allowed_us = self._world.heap.now_us
            self.change(UNCLEAN, "false")

    def elected_unclean(self, index: int, before: Leadership, now: Leadership) -> bool:
        """Whether somebody was elected who need not have everything; by the topic's switch only,
        and where nobody lives who has it."""
        whole = set(before.members) - set(before.unclean)
        if now.leader < 0 or now.recovery_state != RECOVERING or now.leader in whole:
            return False
        checker, now_us = self._world.checker, self._world.heap.now_us
        self.unclean_elections += 1
        if not self._is_allowed and now_us - self._allowed_us > DECIDED_US:
            checker.violated(f"t-{index}: {now} is unclean, and nobody has allowed that")
        for broker in sorted(whole):
            entry = self._world.zookeeper.tree.get(znodes.broker_path(broker))
            if entry is not None and now_us - entry.node.stat.ctime_ms * 1000 > DECIDED_US:
                checker.violated(f"t-{index}: {now} is unclean, and {broker} lives")
        return True


def draw_minimums(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    """``Action.brokers`` has the minimum. Never more than a reassignment leaves replicas."""
    dice = random.Random(f"{seed}/minimums")
    most = settings.min_insync_replicas if settings.moves else 3
    return [
        Action(at_us, SET_MINIMUM, (dice.randint(1, most),))
        for at_us in moments(dice, PAUSE_US, from_us, until_us)
    ]


def draw_unclean(seed: int, settings: Settings, from_us: int, until_us: int) -> list[Action]:
    """Unclean elections are allowed for a while, and somebody needs them, then or later.

    ``Action.brokers`` of a stranded leader has its partition.
    """
    dice = random.Random(f"{seed}/unclean")
    actions: list[Action] = []
    at_us = from_us
    while True:
        at_us += dice.randint(*PAUSE_US)
        if at_us >= until_us:
            return actions
        if dice.random() < STRAND_SHARE:
            partition = dice.choice(list(settings.partitions))
            actions.append(
                Action(at_us, STRAND, (partition,), STRANDED_US + dice.randint(*DEAD_US))
            )
        else:
            lasts_us = int(ALLOWED_US_MAX * dice.random())
            actions.append(Action(at_us, ALLOW_UNCLEAN, (), lasts_us))
            at_us += lasts_us


def _set_minimum(world: World, minimum: int) -> Undo:
    world.options.change(MINIMUM, str(minimum))
    return None


def _allow_unclean(world: World) -> Undo:
    return world.options.allow_unclean()


def _strand(world: World, index: int) -> Undo:
    state = world.checker.partitions[index].leadership
    if state is None or state.leader < 0:
        return None
    leader = state.leader
    others = [broker for broker in world.brokers if broker != leader]
    heal = cut_pairs(world, [p for o in others for p in ((leader, o), (o, leader))])

    def die() -> None:
        world.kill(leader)
        heal()

    world.heap.after(STRANDED_US, None, die)
    return lambda: world.start(leader)


DOINGS[STRAND] = _strand
DOINGS[SET_MINIMUM] = _set_minimum
DOINGS[ALLOW_UNCLEAN] = _allow_unclean
