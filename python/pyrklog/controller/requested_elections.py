"""Elections on request: ElectLeaders (KIP-460) and the legacy znode. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.cluster.requests import Elected, ElectionKind, Refusal, TopicPartition
from pyrklog.controller.effects import DeleteNodes, Steps
from pyrklog.controller.leader_election import preferred_election, unclean_election
from pyrklog.controller.partitions import Procedures
from pyrklog.controller.state import Partition
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import PREFERRED_ELECTION


class RequestedElections(Procedures):
    def elect(
        self,
        kind: ElectionKind,
        keys: Sequence[TopicPartition] | None,
        results: dict[TopicPartition, Elected],
    ) -> Steps:
        """``keys`` None = all partitions; ``results`` gets one for each."""
        if keys is None:
            keys = [partition.key for partition in self._state.partitions()]
        wanted = []
        for key in keys:
            partition = self._state.partition(key)
            refusal = self._refusal(kind, key, partition)
            if partition is None or refusal is not None:
                results[key] = Elected(refusal or _FAILED[kind])
            else:
                wanted.append(partition)
        led = [partition for partition in wanted if partition.leadership is not None]
        yield self._state.change(
            "election_asked", kind=kind.name, partitions=len(keys), electable=len(wanted)
        )
        election = preferred_election if kind is ElectionKind.PREFERRED else unclean_election
        yield from self._partitions.to_online(led, election)
        yield from self._batch.flush()
        for partition in wanted:
            is_failed = self._is_needed(kind, partition)
            refusal = _FAILED[kind] if is_failed else Refusal(ErrorCode.NONE)
            results[partition.key] = Elected(refusal, partition.leader)

    def asked_by_znode(self, keys: Sequence[TopicPartition]) -> Steps:
        """Serves /admin/preferred_replica_election and removes the node in any case."""
        yield from self.elect(ElectionKind.PREFERRED, keys, {})
        yield DeleteNodes([PREFERRED_ELECTION])

    def _refusal(
        self, kind: ElectionKind, key: TopicPartition, partition: Partition | None
    ) -> Refusal | None:
        if partition is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if key[0] in self._state.to_delete | self._state.deletion_blocked:
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted.")
        if not self._is_needed(kind, partition):
            return Refusal(ErrorCode.ELECTION_NOT_NEEDED)
        return None

    def _is_needed(self, kind: ElectionKind, partition: Partition) -> bool:
        if kind is ElectionKind.PREFERRED:
            return partition.leader != partition.replicas[0]
        return partition.leader not in self._state.brokers


_FAILED = {
    ElectionKind.PREFERRED: Refusal(
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "The preferred replica does not live or is not in sync.",
    ),
    ElectionKind.UNCLEAN: Refusal(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition lives."
    ),
}
