"""Every metric of ``/metrics/detail``: of topics, partitions and groups. Pure.

observability.md has the same table, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyrklog.observability.metric import Metric, counter, gauge

_PARTITION = ("topic", "partition")
DETAIL: Mapping[str, Metric] = MappingProxyType(
    {
        "partitions": gauge(
            "kafka_topic_partitions", "Partitions of the topic; at the controller only.", "topic"
        ),
        "served_bytes": counter(
            "pyrklog_topic_fetched_bytes_total",
            "Bytes of records of the topic that this broker found for fetches: in the block cache, "
            "or in files.",
            *("topic", "source"),
        ),
        "leader": gauge(
            "kafka_topic_partition_leader",
            "Broker id of the partition's leader; -1: none. One broker tells it.",
            *_PARTITION,
        ),
        "replicas": gauge(
            "kafka_topic_partition_replicas",
            "Replicas of the partition. One broker tells it.",
            *_PARTITION,
        ),
        "in_sync": gauge(
            "kafka_topic_partition_in_sync_replica",
            "Replicas of the partition in sync. One broker tells it.",
            *_PARTITION,
        ),
        "is_preferred": gauge(
            "kafka_topic_partition_leader_is_preferred",
            "1 where the partition's first replica leads. One broker tells it.",
            *_PARTITION,
        ),
        "is_under_replicated": gauge(
            "kafka_topic_partition_under_replicated_partition",
            "1 where replicas of the partition are not in sync. One broker tells it.",
            *_PARTITION,
        ),
        "log_end": gauge(
            "pyrklog_partition_log_end_offset",
            "Log end offset of this broker's replica of the partition.",
            *_PARTITION,
        ),
        "high_watermark": gauge(
            "kafka_topic_partition_current_offset",
            "High watermark of the partition, at its leader only.",
            *_PARTITION,
        ),
        "log_start": gauge(
            "kafka_topic_partition_oldest_offset",
            "Log start offset of the partition, at its leader only.",
            *_PARTITION,
        ),
        "size_bytes": gauge(
            "pyrklog_partition_bytes",
            "Bytes of records of this broker's replica of the partition.",
            *_PARTITION,
        ),
        "members": gauge("kafka_consumergroup_members", "Members of the group.", "consumergroup"),
        "committed": gauge(
            "kafka_consumergroup_current_offset",
            "The group's committed offset; -1: none, but in other partitions of the topic.",
            "consumergroup",
            *_PARTITION,
        ),
        "lag": gauge(
            "kafka_consumergroup_lag",
            "Log end minus the group's committed offset in the partition; -1 also without one.",
            "consumergroup",
            *_PARTITION,
        ),
        "lag_seconds": gauge(
            "pyrklog_group_partition_lag_seconds",
            "How long ago the first unread record was appended, at least; 0 without any.",
            "consumergroup",
            *_PARTITION,
        ),
        "lost": gauge(
            "pyrklog_group_lost_records",
            "Records by which retention has overtaken the group's committed offset.",
            "consumergroup",
            *_PARTITION,
        ),
    }
)
"""Of ``/metrics/detail``."""
