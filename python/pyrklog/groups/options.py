"""Options of the groups and their driver, from the broker's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyrklog.config.broker import BrokerConfig

CODEC_NONE = 0
MINUTE_MS = 60_000
MEMORY_SHARE = 16
"""The part of the memory for groups (isolation.md)."""


class GroupSettings(NamedTuple):
    """Options of all groups; Kafka's names are in ``config/group_options.py``."""

    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    members_max: int = 2**31 - 1
    metadata_units_max: int = 4_096
    """UTF-16 units of a committed offset's metadata."""
    retention_ms: int = 7 * 24 * 3_600_000
    memory_max_bytes: int = 2**30
    """Limit of all groups together (:mod:`.memory`)."""


class GroupOptions(NamedTuple):
    """Options of the driver; Kafka's names are in ``config/group_options.py``."""

    partition_count: int = 50
    """Partitions of ``__consumer_offsets`` before its creation."""
    codec: int = CODEC_NONE
    load_buffer_bytes: int = 5_242_880
    message_bytes_max: int = 1_048_588
    """Limit of one batch."""
    commit_timeout_ms: int = 5_000
    expiry_interval_ms: int = 600_000


def group_settings(config: BrokerConfig, memory_bytes: int) -> GroupSettings:
    number = config.integer
    return GroupSettings(
        session_timeout_min_ms=number("group.min.session.timeout.ms"),
        session_timeout_max_ms=number("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        members_max=number("group.max.size"),
        metadata_units_max=number("offset.metadata.max.bytes"),
        retention_ms=number("offsets.retention.minutes") * MINUTE_MS,
        memory_max_bytes=memory_bytes // MEMORY_SHARE,
    )


def group_options(config: BrokerConfig) -> GroupOptions:
    number = config.integer
    return GroupOptions(
        partition_count=number("offsets.topic.num.partitions"),
        codec=number("offsets.topic.compression.codec"),
        load_buffer_bytes=number("offsets.load.buffer.size"),
        message_bytes_max=number("message.max.bytes"),
        commit_timeout_ms=number("offsets.commit.timeout.ms"),
        expiry_interval_ms=number("offsets.retention.check.interval.ms"),
    )
