"""The coordinators' internal topics in this broker's view of the cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping

from pyrklog.base.logs import get_logger
from pyrklog.cluster.metadata import Metadata
from pyrklog.config.broker import BrokerConfig
from pyrklog.coordinators.interfaces import BrokerEndpoint, InternalTopic
from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.handlers.service import ClusterService, TopicSpec
from pyrklog.plane.values import PartitionImage
from pyrklog.replication.machine import Replicas
from pyrklog.transactions.manager import TRANSACTION_TOPIC

CREATION_TIMEOUT_MS = 5_000

log = get_logger("coordinators")


class ClusterInternalTopic(ABC):
    """Implements :class:`.interfaces.InternalTopic`."""

    name: str
    replication_factor_option: str

    def __init__(self, metadata: Metadata, replicas: Replicas, service: ClusterService) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._service = service
        self._told_brokers: int | None = None
        """Number of brokers at the last warning that they are too few."""

    def _partitions(self) -> Mapping[int, PartitionImage]:
        entry = self._metadata.image.topics.get(self.name)
        return {} if entry is None else entry.partitions

    def partition_count(self) -> int | None:
        return len(self._partitions()) or None

    def led_partitions(self) -> Mapping[int, int]:
        node_id = self._service.node_id
        since = {
            index: self._replicas.serving_since((self.name, index))
            for index, partition in self._partitions().items()
            if partition.leader == node_id
        }
        return {index: epoch for index, epoch in since.items() if epoch is not None}

    def assigned_partitions(self) -> Collection[int]:
        node_id = self._service.node_id
        found = self._partitions().items()
        return [index for index, partition in found if partition.leader == node_id]

    def leader_endpoint(self, partition: int, listener: str) -> BrokerEndpoint | None:
        known = self._partitions().get(partition)
        if known is None:
            return None
        for broker in self._metadata.image.brokers:
            if broker.id == known.leader:
                for name, host, port in broker.endpoints:
                    if name == listener:
                        return BrokerEndpoint(broker.id, host, port)
        return None

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        await self._metadata.changes.wait_until(condition)

    async def create(self) -> ErrorCode:
        replicas = self._replication_factor()
        brokers = len(self._metadata.image.brokers)
        if brokers < replicas:
            if brokers != self._told_brokers:
                self._told_brokers = brokers
                log.warning(
                    "internal_topic_waits_for_brokers",
                    topic=self.name,
                    brokers=brokers,
                    needed=replicas,
                    fix=f"start more brokers, or set {self.replication_factor_option} to what the "
                    "cluster has",
                )
            return ErrorCode.INVALID_REPLICATION_FACTOR
        result = await self._service.create_own_topic(
            self._spec(self._metadata.config, replicas), timeout_ms=CREATION_TIMEOUT_MS
        )
        exists = result.error is ErrorCode.TOPIC_ALREADY_EXISTS
        return ErrorCode.NONE if exists else result.error

    @abstractmethod
    def _spec(self, config: BrokerConfig, replicas: int) -> TopicSpec:
        """The topic as it is created."""

    def _replication_factor(self) -> int:
        """As configured (KIP-115): the topic keeps its first factor, so a request during the
        cluster's start must not set a lower one. Without ZooKeeper the default is 1."""
        config = self._metadata.config
        if config.zookeeper is None and self.replication_factor_option not in config.given:
            return 1
        return config.integer(self.replication_factor_option)


class ClusterOffsetsTopic(ClusterInternalTopic):
    name = OFFSETS_TOPIC
    replication_factor_option = "offsets.topic.replication.factor"

    def _spec(self, config: BrokerConfig, replicas: int) -> TopicSpec:
        return TopicSpec(
            self.name,
            partition_count=config.integer("offsets.topic.num.partitions"),
            replication_factor=replicas,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
            },
        )


class ClusterTransactionTopic(ClusterInternalTopic):
    name = TRANSACTION_TOPIC
    replication_factor_option = "transaction.state.log.replication.factor"

    def _spec(self, config: BrokerConfig, replicas: int) -> TopicSpec:
        # As Kafka: a topic with fewer replicas than the option has them all in sync.
        least = min(config.integer("transaction.state.log.min.isr"), replicas)
        return TopicSpec(
            self.name,
            partition_count=config.integer("transaction.state.log.num.partitions"),
            replication_factor=replicas,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(least),
                "segment.bytes": str(config.integer("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )


def _is_the_topic(topic: ClusterInternalTopic) -> InternalTopic:
    return topic  # the type checker compares class and interface
