"""A broker whose port refuses connections: others lead before it is proven dead. Pure.

A suspicion does no more than a controlled shutdown: elections of in-sync replicas by
compare-and-set, and the suspect leaves ISRs in which another replica stays. A suspected leader that
lives cannot acknowledge acks=all any more, since the new leader does not follow it, and its own ISR
changes are fenced. Nothing unclean, no deletion, no end of a reassignment (``cluster.md``, section
7).
"""

from __future__ import annotations

from pyrklog.controller.effects import Steps
from pyrklog.controller.leader_election import offline_election, without_replica
from pyrklog.controller.partitions import Procedures
from pyrklog.controller.state import Partition


class Suspects(Procedures):
    def suspect(self, broker: int) -> Steps:
        """Moves leaderships away from a live broker, which still gets all control requests."""
        state = self._state
        if broker not in state.brokers or broker in state.suspects:
            return
        state.suspects.add(broker)
        yield state.change("broker_suspected", broker=broker)
        shared = [p for p, _ in state.partitions_on([broker]) if self._is_held_by_others(p)]
        led = [partition for partition in shared if partition.leader == broker]
        leading = set(led)
        followed = [partition for partition in shared if partition not in leading]
        yield from self._partitions.to_online(led, offline_election)
        yield from self._partitions.write_changed(
            followed,
            lambda partition: (
                partition.leadership and without_replica(partition.leadership, broker, state.epoch)
            ),
        )
        yield from self._batch.flush()

    def trust(self, broker: int) -> Steps:
        """It has accepted connections again for a while."""
        if broker in self._state.suspects:
            self._state.suspects.discard(broker)
            yield self._state.change("broker_trusted", broker=broker)

    def _is_held_by_others(self, partition: Partition) -> bool:
        if partition.leadership is None or partition.topic.name in self._state.to_delete:
            return False
        return any(
            broker in self._state.brokers and broker not in self._state.suspects
            for broker in partition.leadership.isr
        )
