"""The coordinators' topics: where they are, and which machines may lack some of their records.

They have one partition each, and exist from the beginning. What their records mean is checked by
what clients see (:mod:`tests.sim.transactions.ledger`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.metastore import znodes
from pyrklog.metastore.interface import Create, Operation
from pyrklog.transactions.manager import TRANSACTION_TOPIC
from tests.sim.cluster import Cluster
from tests.sim.settings import Settings

REPLICAS, MINIMUM = 3, 2
PARTITION = 0


def _placed(settings: Settings) -> dict[str, tuple[int, ...]]:
    """By topic. They are led by different brokers at first."""
    if not settings.transactions:
        return {}
    first, *others = settings.brokers[-REPLICAS:]
    return {TRANSACTION_TOPIC: (*others, first), OFFSETS_TOPIC: (first, *others)}


class InternalTopics:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.replicas: Mapping[str, tuple[int, ...]] = _placed(cluster.settings)
        self._isr: dict[str, set[int]] = {name: set() for name in self.replicas}
        self._lacking: dict[str, set[int]] = {name: set() for name in self.replicas}
        """Brokers that lost power and are not back in the ISR."""

    def operations(self) -> list[Operation]:
        """What creates them."""
        options = znodes.encode_config({"min.insync.replicas": str(MINIMUM)})
        made: list[Operation] = []
        for name, replicas in self.replicas.items():
            topic_id = name.encode()[:16]
            assignment = znodes.TopicAssignment(topic_id, {PARTITION: replicas}, {}, {})
            made.append(Create(znodes.topic_path(name), znodes.encode_topic(assignment)))
            made.append(Create(znodes.topic_config_path(name), options))
        return made

    def _state(self, name: str) -> znodes.Leadership | None:
        path = znodes.state_path(name, PARTITION)
        entry = self._cluster.zookeeper.tree.get(path)
        return None if entry is None else znodes.decode_state(path, entry.node.data)

    def written(self, paths: set[str]) -> None:
        for name in self.replicas:
            state = self._state(name)
            if znodes.state_path(name, PARTITION) not in paths or state is None:
                continue
            self._lacking[name] -= set(state.isr) - self._isr[name]
            self._isr[name] = set(state.isr)
            self._cluster.heap.note(
                f"state {name} leader={state.leader} epoch={state.leader_epoch} "
                f"isr={list(state.isr)}"
            )

    def bears_loss_of(self, broker: int) -> bool:
        """Whether nothing may be lost if this machine loses power now."""
        return all(
            broker not in replicas or len(self._lacking[name] | {broker}) < MINIMUM
            for name, replicas in self.replicas.items()
        )

    def lost_power(self, broker: int) -> None:
        for name, replicas in self.replicas.items():
            if broker in replicas:
                self._lacking[name].add(broker)

    def unsettled(self) -> str | None:
        """Why they have not settled, or None."""
        for name, replicas in self.replicas.items():
            state = self._state(name)
            if state is None or state.leader < 0 or set(state.isr) != set(replicas):
                return f"{name} is led so: {state}"
            life = self._cluster.brokers[state.leader].life
            view = life.sim.partition(name, PARTITION) if life is not None else None
            if view is None or view[0] != "Leader" or view[1] != state.leader_epoch:
                return f"{name} is not led: {view}"
            if view[2][1] < view[2][3]:
                return f"{name} has the high watermark {view[2][1]} of {view[2][3]}"
        return None
