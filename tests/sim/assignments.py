"""Invariants of reassignments: what the topic's znode says of each partition, and how it changes.

Whatever is in the store may be the last that a controller has written: each content has to be one
that a successor can go on from (``cluster.md``, section 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.metastore import znodes
from tests.sim.cluster import Cluster
from tests.sim.promises import Promises
from tests.sim.settings import TOPIC

Targets = tuple[int, ...] | None
"""The replicas wanted; None cancels."""


class Assignments:
    """See the module."""

    def __init__(self, cluster: Cluster, partitions: Mapping[int, Promises]) -> None:
        self._cluster = cluster
        self._partitions = partitions
        self.history: dict[int, list[PartitionAssignment]] = {
            index: [PartitionAssignment(tuple(replicas))]
            for index, replicas in cluster.settings.partitions.items()
        }
        """By partition, what the store has held of it, the latest last."""
        self._asked: dict[int, set[tuple[int, ...]]] = {index: set() for index in self.history}
        self._asks: dict[int, list[tuple[int, Targets]]] = {index: [] for index in self.history}
        """When it was asked, by the contents that the store had held, and for what."""
        self.completed = 0

    def current(self, index: int) -> PartitionAssignment:
        """What the store holds now."""
        return self.history[index][-1]

    def asks(self, index: int, targets: Targets) -> int:
        """An administrator asks for these replicas; what :meth:`accepted` is told."""
        if targets is not None:
            self._asked[index].add(targets)
        since = len(self.history[index]) - 1
        self._asks[index].append((since, targets))
        return since

    def may_take_back(self, index: int) -> set[int]:
        """Replicas that are being added, and that somebody has asked lately not to add."""
        late = [
            asked for since, asked in self._asks[index] if since >= len(self.history[index]) - 2
        ]
        adding = self.current(index).adding
        return {broker for broker in adding if any(broker not in (to or ()) for to in late)}

    def accepted(self, index: int, targets: Targets, since: int) -> None:
        """The controller has said that it does it: the store has had it since then."""
        found = self.history[index][since:]
        if targets is None:
            is_there = any(not item.is_moving for item in found)
        else:
            is_there = any(item.targets == targets for item in found)
        if not is_there:
            self._cluster.violated(
                f"t-{index}: {targets} is accepted, and nobody will know: {found}"
            )

    def written(self, paths: set[str]) -> None:
        """Nodes of the store have changed."""
        path = znodes.topic_path(TOPIC)
        entry = self._cluster.zookeeper.tree.get(path)
        if path in paths and entry is not None:
            topic = znodes.decode_topic(path, entry.node.data)
            for index in self.history:
                now = PartitionAssignment(
                    topic.replicas[index],
                    topic.adding.get(index, ()),
                    topic.removing.get(index, ()),
                )
                if now != self.current(index):
                    self._changed(index, now)
        for index in self.history:
            if paths & {path, znodes.state_path(TOPIC, index)}:
                self._are_replicas(index)

    def _changed(self, index: int, now: PartitionAssignment) -> None:
        before = self.current(index)
        self.history[index].append(now)
        self._cluster.heap.note(
            f"assignment t-{index} {list(now.replicas)} adding={list(now.adding)} "
            f"removing={list(now.removing)}"
        )
        if before.is_moving and now == PartitionAssignment(before.targets):
            self._completed(index, now)
            return
        begun = [before.towards(targets) for targets in (before.origin, *self._asked[index])]
        if now not in begun:
            self._cluster.violated(f"t-{index}: {before} -> {now} is no step")

    def _completed(self, index: int, now: PartitionAssignment) -> None:
        state = self._partitions[index].leadership
        self.completed += 1
        if state is None or set(state.isr) != set(now.replicas):
            self._cluster.violated(f"t-{index}: {now} is complete, and its state is {state}")

    def _are_replicas(self, index: int) -> None:
        state = self._partitions[index].leadership
        strangers = set(state.isr) - set(self.current(index).replicas) if state else set()
        if strangers:
            self._cluster.violated(
                f"t-{index}: {sorted(strangers)} in {state} are none of its replicas "
                f"{self.current(index)}"
            )

    # --- the end ---------------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """Why the cluster is not whole; None where it is."""
        if znodes.REASSIGN_PARTITIONS in self._cluster.zookeeper.tree.entries:
            return f"{znodes.REASSIGN_PARTITIONS} is there"
        for index, history in self.history.items():
            now = history[-1]
            if now.is_moving:
                return f"t-{index} moves: {now}"
            for life in self._cluster.live():
                view = life.sim.partition(TOPIC, index)
                if view is None or life.broker.id in now.replicas:
                    continue
                if view[0] == "Leader":
                    return f"{life.process.name} leads t-{index}, and is none of {now.replicas}"
        return None

    def replicas(self, index: int) -> Sequence[int]:
        """Those that the store has now."""
        return self.current(index).replicas
