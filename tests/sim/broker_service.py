"""The part of ``ClusterService`` that the simulation's requests need."""

from __future__ import annotations

from pyrklog.admin.producer_ids import ProducerIds
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import NO_TOPIC_ID
from pyrklog.handlers.service import TopicInfo
from pyrklog.peers.witness import Witness


class BrokerService:
    def __init__(self, metadata: Metadata, producer_ids: ProducerIds, listener: str) -> None:
        self.node_id = metadata.node_id
        self._metadata = metadata
        self.next_producer_id = producer_ids.next
        self.observe = Witness(metadata.node_id, lambda: metadata.image.brokers, listener).look

    def topic(self, name: str) -> TopicInfo | None:
        entry = self._metadata.image.topics.get(name)
        if entry is None:
            return None
        return TopicInfo(name, entry.id or NO_TOPIC_ID, len(entry.partitions), False)
