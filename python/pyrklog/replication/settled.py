"""When the partitions that a starting broker has are led."""

from __future__ import annotations

import trio

from pyrklog.cluster.metadata import Metadata
from pyrklog.replication.driver import ReplicationDriver

LEADERS_WAIT_SECONDS = 0.3
"""How long listening waits until the known partitions are led."""


async def wait_for_leaders(
    node_id: int, metadata: Metadata, replication: ReplicationDriver
) -> None:
    """Waits a little for this broker's partitions: not every client retries NOT_LEADER_OR_FOLLOWER
    (librdkafka's watermark look-up does not), and most starts need only milliseconds.
    """
    replicas = replication.replicas

    def are_settled() -> bool:
        return all(
            replicas.is_settled((name, index))
            for name, entry in metadata.image.topics.items()
            for index, partition in entry.partitions.items()
            if node_id in partition.replicas
        )

    with trio.move_on_after(LEADERS_WAIT_SECONDS):
        await metadata.changes.wait_until(are_settled)
