"""Options of the groups and their driver, from the broker's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from pyrklog.config.settings import from_options

if TYPE_CHECKING:
    from pyrklog.config.broker import BrokerConfig

CODEC_NONE = 0
MINUTE_MS = 60_000
MEMORY_SHARE = 16
"""The part of the memory for groups (isolation.md)."""


class GroupSettings(NamedTuple):
    """Options of all groups, with Kafka's names."""

    session_timeout_min_ms: Annotated[int, "group.min.session.timeout.ms"] = 6_000
    session_timeout_max_ms: Annotated[int, "group.max.session.timeout.ms"] = 1_800_000
    initial_rebalance_delay_ms: Annotated[int, "group.initial.rebalance.delay.ms"] = 3_000
    members_max: Annotated[int, "group.max.size"] = 2**31 - 1
    metadata_units_max: Annotated[int, "offset.metadata.max.bytes"] = 4_096
    """UTF-16 units of a committed offset's metadata."""
    retention_ms: int = 7 * 24 * 3_600_000
    memory_max_bytes: int = 2**30
    """Limit of all groups together (:mod:`.memory`)."""


class GroupOptions(NamedTuple):
    """Options of the driver, with Kafka's names."""

    partition_count: Annotated[int, "offsets.topic.num.partitions"] = 50
    """Partitions of ``__consumer_offsets`` before its creation."""
    codec: Annotated[int, "offsets.topic.compression.codec"] = CODEC_NONE
    load_buffer_bytes: Annotated[int, "offsets.load.buffer.size"] = 5_242_880
    message_bytes_max: Annotated[int, "message.max.bytes"] = 1_048_588
    """Limit of one batch."""
    commit_timeout_ms: Annotated[int, "offsets.commit.timeout.ms"] = 5_000
    expiry_interval_ms: Annotated[int, "offsets.retention.check.interval.ms"] = 600_000


def group_settings(config: BrokerConfig, memory_bytes: int) -> GroupSettings:
    return from_options(
        GroupSettings,
        config,
        retention_ms=config.integer("offsets.retention.minutes") * MINUTE_MS,
        memory_max_bytes=memory_bytes // MEMORY_SHARE,
    )
