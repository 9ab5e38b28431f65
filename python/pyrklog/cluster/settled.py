"""When the partitions that a starting broker has are led."""

from __future__ import annotations

from collections.abc import Callable

import trio

from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import TopicPartition

LEADERS_WAIT_SECONDS = 0.3
"""How long listening waits until the known partitions are led."""


async def wait_for_leaders(
    metadata: Metadata, is_settled: Callable[[TopicPartition], bool]
) -> None:
    """Waits a little for this broker's partitions: not every client retries NOT_LEADER_OR_FOLLOWER
    (librdkafka's watermark look-up does not), and most starts need only milliseconds.
    """

    def are_settled() -> bool:
        return all(
            is_settled((name, index))
            for name, entry in metadata.image.topics.items()
            for index, partition in entry.partitions.items()
            if metadata.node_id in partition.replicas
        )

    with trio.move_on_after(LEADERS_WAIT_SECONDS):
        await metadata.changes.wait_until(are_settled)
