"""The coordinator's settings out of the broker's options."""

from __future__ import annotations

from pyrklog.config.broker import BrokerConfig
from pyrklog.groups.interfaces import GroupOptions
from pyrklog.groups.values import GroupSettings

MINUTE_MS = 60_000
MEMORY_SHARE = 16
"""The part of the memory that groups may take (isolation.md)."""


def group_settings(config: BrokerConfig, memory_bytes: int) -> GroupSettings:
    """What the groups of a broker with so much memory go by."""
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
    """What the coordinator's driver goes by."""
    number = config.integer
    return GroupOptions(
        partition_count=number("offsets.topic.num.partitions"),
        codec=number("offsets.topic.compression.codec"),
        load_buffer_bytes=number("offsets.load.buffer.size"),
        message_bytes_max=number("message.max.bytes"),
        commit_timeout_ms=number("offsets.commit.timeout.ms"),
        expiry_interval_ms=number("offsets.retention.check.interval.ms"),
    )
