"""Puts the coordinators of groups and transactions together."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable

from pyrklog.admin.internal_topics import ClusterOffsetsTopic, ClusterTransactionTopic
from pyrklog.cluster.metadata import Metadata
from pyrklog.config.broker import BrokerConfig
from pyrklog.config.settings import from_options
from pyrklog.coordinators.calls import BrokerCalls
from pyrklog.groups.options import GroupOptions, group_settings
from pyrklog.groups.requests import GroupCoordinator
from pyrklog.handlers.service import ClusterService
from pyrklog.plane import clock
from pyrklog.plane.core_plane import Plane, memory_bytes
from pyrklog.replication.machine import Replicas
from pyrklog.transactions.marking.sender import MarkerSender, MarkerWriter
from pyrklog.transactions.messages import TopicPartition
from pyrklog.transactions.options import transaction_options
from pyrklog.transactions.parts import TransactionParts
from pyrklog.transactions.requests import TransactionCoordinator
from pyrklog.transactions.verification import TransactionVerifier

QUESTION_SECONDS = 3.0
"""How long another coordinator is asked about a first batch: longer than it holds the question."""


class Coordinators:
    """Of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        replicas: Replicas,
        service: ClusterService,
        plane: Plane,
        *,
        wall_ms: Callable[[], int] = clock.wall_ms,
        fresh_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.groups = GroupCoordinator(
            group_settings(config, memory_bytes()),
            from_options(GroupOptions, config),
            plane,
            ClusterOffsetsTopic(metadata, replicas, service),
            wall_ms=wall_ms,
            fresh_id=fresh_id,
        )
        calls = _broker_calls(config, metadata)
        writer = MarkerWriter(plane, wall_ms)
        writer.on_offsets_ended = self.groups.transaction_completed
        coordinator = TransactionCoordinator(
            transaction_options(config, memory_bytes()),
            plane,
            ClusterTransactionTopic(metadata, replicas, service),
            MarkerSender(metadata.node_id, writer, _Leaders(metadata), calls),
            wall_ms=wall_ms,
            next_producer_id=service.next_producer_id,
        )
        listener = config.listeners.inter_broker
        # On connections of their own: questions must not hold up markers, nor markers questions.
        questions = _broker_calls(config, metadata, QUESTION_SECONDS)
        verifier = TransactionVerifier(metadata.node_id, coordinator, questions, listener)
        self.transactions = TransactionParts(coordinator, writer, verifier, plane)


def _broker_calls(
    config: BrokerConfig, metadata: Metadata, patience_seconds: float = math.inf
) -> BrokerCalls | None:
    if config.zookeeper is None:
        return None
    from pyrklog.peers.broker_calls import calls_of

    return calls_of(metadata, patience_seconds)


class _Leaders:
    """Implements :class:`pyrklog.transactions.marking.sender.Leaders`."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def leader_of(self, partition: TopicPartition) -> int | None:
        known = self._metadata.image.partition(*partition)
        return None if known is None else known.leader
