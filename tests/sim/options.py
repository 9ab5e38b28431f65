"""The topic's options, which change while it is served, and what may be promised meanwhile.

A minimum that has been lowered counts at once, one that has been raised when the last broker knows
it: what is acknowledged until then is promised by the lower one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create, Set
from pyrklog.metastore.znodes import RECOVERING, Leadership
from tests.sim.assignments import Assignments
from tests.sim.cluster import Cluster
from tests.sim.promises import Promises
from tests.sim.settings import TOPIC
from tests.sim.zookeeper import SESSION_TIMEOUT_US

MINIMUM, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
LOOK_US = 250_000
ANSWERED_US = 3_000_000
"""An acknowledgement reaches its client no later."""
DECIDED_US = SESSION_TIMEOUT_US + 1_000_000
"""A controller writes no later what it has decided by what it read: its session would be over."""


class Options:
    """The topic's options as the store has them, and as brokers may still know them."""

    def __init__(
        self, cluster: Cluster, partitions: Mapping[int, Promises], assignments: Assignments
    ) -> None:
        settings = cluster.settings
        self._cluster = cluster
        self._partitions = partitions
        self._assignments = assignments
        self.on_changed: Callable[[], None] = lambda: None
        self._values = {MINIMUM: str(settings.min_insync_replicas)}
        self._known_us: dict[int, int] = {}
        """Minimums that some broker has gone by, and when it last did."""
        self._allowed_us = -DECIDED_US
        """When unclean elections were last allowed."""
        self.unclean_elections = 0
        if settings.changes_minimum:
            cluster.heap.after(LOOK_US, None, self._look)

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
        outcome = self._cluster.zookeeper.run(0, [written, told])
        assert isinstance(outcome, list), outcome
        self._cluster.heap.note(f"option {name}={value}")
        for index, promises in self._partitions.items():
            promises.floor = min(promises.floor, self.minimum(index))
        # Who lowers it says that fewer replicas are enough for what is there already, too.
        self.on_changed()

    # --- min.insync.replicas ------------------------------------------------------------------

    @property
    def _stored(self) -> int:
        return int(self._values[MINIMUM])

    def _known(self) -> set[int]:
        told = [life.metadata for life in self._cluster.live() if life.metadata is not None]
        minimums = [metadata.min_insync_replicas(TOPIC, None) for metadata in told]
        return {minimum for minimum in minimums if minimum is not None}

    def _remember(self) -> None:
        for minimum in (self._stored, *self._known()):
            self._known_us[minimum] = self._cluster.heap.now_us

    def _look(self) -> None:
        self._remember()
        self._cluster.heap.after(LOOK_US, None, self._look)

    def minimum(self, index: int) -> int:
        """What everybody has gone by of late, at least, in a partition."""
        since_us = self._cluster.heap.now_us - ANSWERED_US
        late = (minimum for minimum, at_us in self._known_us.items() if at_us >= since_us)
        replicas = self._assignments.replicas(index)
        return min(self._stored, len(replicas), *self._known(), *late)

    def promised(self, index: int, promises: Promises) -> int:
        """On how many brokers each promise is, at least."""
        minimum, state = self.minimum(index), promises.leadership
        whole = set(state.isr if state is not None else ()) - promises.lacking
        is_held = len(whole) >= minimum
        promises.floor = minimum if is_held else min(promises.floor, minimum)
        return promises.floor

    # --- unclean.leader.election.enable --------------------------------------------------------

    def allow_unclean(self) -> Callable[[], None]:
        """Until it is undone."""
        self.change(UNCLEAN, "true")
        return self.forbid_unclean

    @property
    def _is_allowed(self) -> bool:
        return self._values.get(UNCLEAN) == "true"

    def forbid_unclean(self) -> None:
        """Nothing is lost by somebody's leave any more."""
        if self._is_allowed:
            self._allowed_us = self._cluster.heap.now_us
            self.change(UNCLEAN, "false")

    def elected_unclean(self, index: int, before: Leadership, now: Leadership) -> bool:
        """Whether somebody was elected who need not have everything; by the topic's switch only,
        and where nobody lives who has it."""
        whole = set(before.members) - set(before.unclean)
        if now.leader < 0 or now.recovery_state != RECOVERING or now.leader in whole:
            return False
        now_us = self._cluster.heap.now_us
        self.unclean_elections += 1
        if not self._is_allowed and now_us - self._allowed_us > DECIDED_US:
            self._cluster.violated(f"t-{index}: {now} is unclean, and nobody has allowed that")
        for broker in sorted(whole):
            entry = self._cluster.zookeeper.tree.get(znodes.broker_path(broker))
            if entry is not None and now_us - entry.node.stat.ctime_ms * 1000 > DECIDED_US:
                self._cluster.violated(f"t-{index}: {now} is unclean, and {broker} lives")
        return True
