from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class LogConfig(NamedTuple):
    """The log's options; each name is Kafka's with dots as underscores."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    message_downconversion_enable: bool
    flush_messages: int
    flush_ms: int
    retention_ms: int
    retention_bytes: int
    file_delete_delay_ms: int
    cleanup_delete: bool
    cleanup_compact: bool
    delete_retention_ms: int
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int


class Throttled(NamedTuple):
    """Replicas with limited rates (KIP-73): (partition, broker), None = all."""

    leading: Sequence[tuple[int, int]] | None = ()
    following: Sequence[tuple[int, int]] | None = ()


class ResolvedTopic(NamedTuple):
    log: LogConfig
    min_insync_replicas: int
    unclean_leader_election: bool
    throttled: Throttled = Throttled()
