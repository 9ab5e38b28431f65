"""Controlled shutdown: others take over leadership, the broker leaves all ISRs. Pure."""

from __future__ import annotations

from pyrklog.base.pieces import pieces
from pyrklog.cluster.requests import TopicPartition
from pyrklog.controller.effects import Steps
from pyrklog.controller.leader_election import shutdown_election, without_replica
from pyrklog.controller.partitions import Procedures


class ControlledShutdown(Procedures):
    def shut_down(self, broker: int, remaining: list[TopicPartition]) -> Steps:
        """``remaining`` gets the partitions that it still leads although other replicas exist."""
        state = self._state
        state.shutting_down.add(broker)
        yield state.change("broker_leaves", broker=broker)
        shared = [
            partition
            for partition, _ in state.partitions_on([broker])
            if len(partition.replicas) > 1
            and partition.leadership is not None
            and partition.topic.name not in state.to_delete
        ]
        led = [partition for partition in shared if partition.leader == broker]
        leading = set(led)
        followed = [partition for partition in shared if partition not in leading]
        # Each piece's requests are sent at once: the broker sees progress and waits.
        for some in pieces(led):
            yield from self._partitions.to_online(some, shutdown_election)
            yield from self._batch.flush()
        # It follows until it ends, so that no request reaches it while it shuts down.
        for some in pieces(followed):
            yield from self._partitions.write_changed(
                some,
                lambda partition: (
                    partition.leadership
                    and without_replica(partition.leadership, broker, state.epoch)
                ),
            )
            yield from self._batch.flush()
        remaining += [partition.key for partition in led if partition.leader == broker]
