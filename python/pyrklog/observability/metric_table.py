"""Every metric of ``/metrics``: name, type, labels, and where its value comes from. Pure.

observability.md has the same table, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

MS = 1e-3
NS = 1e-9

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """``name`` as samples have it: counters end in ``_total``, and each part of a histogram has its
    own. ``help`` is shown without those of other metrics, so it names what it is of."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """The name of the family in OpenMetrics."""
        if self.kind == "histogram":
            return self.name.rpartition("_")[0]
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name


class StatisticMetric(NamedTuple):
    """Where a statistic of the data plane goes; ``scale`` makes base units of it."""

    metric: Metric
    values: tuple[str, ...] = ()
    """Of the metric's labels."""
    scale: float = 1


def _counter(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, "counter", help_, labels)


def _gauge(name: str, help_: str, *labels: str) -> Metric:
    return Metric(name, "gauge", help_, labels)


_FETCHED = _counter(
    "pyrklog_fetched_bytes_total",
    "Bytes of records sent to consumers and followers, by the way of reading.",
    "path",
)
_THROTTLED = _counter(
    "pyrklog_throttled_replication_bytes_total",
    "Bytes of throttled replicas (KIP-73), as leader and as follower.",
    "role",
)
REQUESTS = _counter(
    "kafka_network_requestmetrics_requests_total", "Requests, by API, all versions.", "request"
)
REQUESTS_PREFIX = "requests."

PLAIN: Mapping[str, StatisticMetric] = MappingProxyType(
    {
        "connections": StatisticMetric(_gauge("pyrklog_connections", "Open Kafka connections.")),
        "received_bytes": StatisticMetric(
            _counter("pyrklog_received_bytes_total", "Bytes received.")
        ),
        "sent_bytes": StatisticMetric(_counter("pyrklog_sent_bytes_total", "Bytes sent.")),
        "produced_bytes": StatisticMetric(
            _counter(
                "kafka_server_brokertopicmetrics_bytesin_total",
                "Bytes of record batches that producers appended.",
            )
        ),
        "fetched_bytes.cached": StatisticMetric(_FETCHED, ("cached",)),
        "fetched_bytes.copy": StatisticMetric(_FETCHED, ("copy",)),
        "fetched_bytes.sendfile": StatisticMetric(_FETCHED, ("sendfile",)),
        "fetched_bytes.window": StatisticMetric(_FETCHED, ("window",)),
        "fetched_bytes.inline": StatisticMetric(_FETCHED, ("inline",)),
        "throttled_replication_bytes.leader": StatisticMetric(_THROTTLED, ("leader",)),
        "throttled_replication_bytes.follower": StatisticMetric(_THROTTLED, ("follower",)),
        "network_threads_worked_ns": StatisticMetric(
            _counter(
                "pyrklog_network_threads_busy_seconds_total", "Time that network threads worked."
            ),
            scale=NS,
        ),
        "connections_muted": StatisticMetric(
            _counter("pyrklog_connections_muted_total", "Times that a connection had to wait.")
        ),
        "connections_moved": StatisticMetric(
            _counter("pyrklog_connections_moved_total", "Moves from one network thread to another.")
        ),
        "idle_closed": StatisticMetric(
            _counter("pyrklog_connections_idle_closed_total", "Connections closed as idle.")
        ),
        "protocol_errors": StatisticMetric(
            _counter("pyrklog_protocol_errors_total", "Connections closed for protocol errors.")
        ),
        "accepts_failed": StatisticMetric(
            _counter(
                "pyrklog_accepts_failed_total",
                "Connections not accepted for lack of descriptors or memory.",
            )
        ),
        "connections_at_limit": StatisticMetric(
            _counter(
                "pyrklog_connections_at_limit_total",
                "Times that accepting stopped at max.connections.",
            )
        ),
        "heavy_requests": StatisticMetric(
            _counter("pyrklog_heavy_requests_total", "Requests of very many elements.")
        ),
        "fetch_looks": StatisticMetric(
            _counter("pyrklog_fetch_partition_looks_total", "Partitions that fetches looked at.")
        ),
        "purgatory_produce": StatisticMetric(
            _gauge("pyrklog_delayed_produces", "Partitions of produces that wait for replicas.")
        ),
        "purgatory_fetch": StatisticMetric(
            _gauge("pyrklog_delayed_fetches", "Partitions of fetches that wait for records.")
        ),
        "purgatory_internal": StatisticMetric(
            _gauge(
                "pyrklog_delayed_internal_appends",
                "The broker's own appends that wait for replicas.",
            )
        ),
        "control_queue_depth": StatisticMetric(
            _gauge("pyrklog_control_requests", "Requests at the control plane.")
        ),
        "control_queue_placeless": StatisticMetric(
            _gauge(
                "pyrklog_control_requests_placeless",
                "Heartbeats and brokers' requests at the control plane.",
            )
        ),
        "control_queue_parked": StatisticMetric(
            _gauge(
                "pyrklog_control_requests_parked",
                "Requests that wait at the control plane without a place.",
            )
        ),
        "control_queue_waiting": StatisticMetric(
            _gauge(
                "pyrklog_control_connections_waiting",
                "Connections that wait for a place at the control plane.",
            )
        ),
        "control_queue_parked_bytes": StatisticMetric(
            _gauge(
                "pyrklog_control_parked_bytes",
                "Memory of the requests without a place at the control plane.",
            )
        ),
        "event_queue_depth": StatisticMetric(
            _gauge("pyrklog_event_queue_depth", "Events that the control plane has not taken.")
        ),
        "reader_threads": StatisticMetric(
            _gauge("pyrklog_reader_threads", "Threads that read from disks.")
        ),
        "reader_jobs": StatisticMetric(
            _counter("pyrklog_reader_jobs_total", "Reads that reader threads have done.")
        ),
        "validation_waiting": StatisticMetric(
            _gauge("pyrklog_validations_waiting", "Produce requests that wait for a validator.")
        ),
        "validation_running": StatisticMetric(
            _gauge("pyrklog_validations_running", "Produce requests at a validator.")
        ),
        "transaction_verifications": StatisticMetric(
            _gauge(
                "pyrklog_transaction_verifications",
                "Questions to transaction coordinators without an answer yet.",
            )
        ),
        "command_queue_depth": StatisticMetric(
            _gauge("pyrklog_log_commands_waiting", "Logs that wait to be opened or removed.")
        ),
        "receive_memory_bytes": StatisticMetric(
            _gauge("pyrklog_receive_memory_bytes", "Memory of requests not worked on yet.")
        ),
        "reply_memory_bytes": StatisticMetric(
            _gauge("pyrklog_reply_memory_bytes", "Memory of replies that are not sent yet.")
        ),
        "replies_refused": StatisticMetric(
            _counter("pyrklog_replies_refused_total", "Control answers that found no memory.")
        ),
        "fetch_sessions": StatisticMetric(
            _gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.")
        ),
        "fetch_session_partitions": StatisticMetric(
            _gauge(
                "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
                "Partitions in fetch sessions.",
            )
        ),
        "fetch_session_evictions": StatisticMetric(
            _counter(
                "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
                "Fetch sessions that made room for others.",
            )
        ),
        "cache_populated_bytes": StatisticMetric(
            _gauge("pyrklog_cache_populated_bytes", "Memory that the block cache has.")
        ),
        "cache_free_bytes": StatisticMetric(
            _gauge("pyrklog_cache_free_bytes", "Memory of the block cache that holds no records.")
        ),
        "cache_limit_bytes": StatisticMetric(
            _gauge("pyrklog_cache_limit_bytes", "Memory that the block cache may have.")
        ),
        "cache_transient_bytes": StatisticMetric(
            _gauge("pyrklog_cache_transient_bytes", "Memory of the block cache lent for a moment.")
        ),
        "cache_held_bytes": StatisticMetric(
            _gauge("pyrklog_cache_held_bytes", "Records that readers hold in the block cache.")
        ),
        "cache_appended_bytes": StatisticMetric(
            _counter("pyrklog_cache_appended_bytes_total", "Bytes appended to the block cache.")
        ),
        "cache_appends_refused": StatisticMetric(
            _counter(
                "pyrklog_cache_appends_refused_total",
                "Appends that found no room in the block cache.",
            )
        ),
        "cache_chunks_reclaimed": StatisticMetric(
            _counter(
                "pyrklog_cache_chunks_reclaimed_total",
                "Chunks of the block cache taken from older records.",
            )
        ),
        "cache_chunks_given_back": StatisticMetric(
            _counter(
                "pyrklog_cache_chunks_given_back_total",
                "Chunks of the block cache given back to the system.",
            )
        ),
        "cache_chunks_populated_by_appends": StatisticMetric(
            _counter(
                "pyrklog_cache_chunks_populated_by_appends_total",
                "Chunks of the block cache that an append had to wait for.",
            )
        ),
        "internal_appends": StatisticMetric(
            _counter("pyrklog_internal_appends_total", "Batches appended to internal topics.")
        ),
        "internal_appended_bytes": StatisticMetric(
            _counter("pyrklog_internal_appended_bytes_total", "Bytes appended to internal topics.")
        ),
        "internal_appends_refused": StatisticMetric(
            _counter(
                "pyrklog_internal_appends_refused_total",
                "Appends to internal topics that were refused.",
            )
        ),
        "internal_reads": StatisticMetric(
            _counter("pyrklog_internal_reads_total", "The broker's reads of internal topics.")
        ),
        "internal_read_bytes": StatisticMetric(
            _counter(
                "pyrklog_internal_read_bytes_total",
                "Bytes that the broker read of internal topics.",
            )
        ),
        "internal_damaged_batches": StatisticMetric(
            _counter(
                "pyrklog_internal_damaged_batches_total",
                "Unreadable batches that the broker met in internal topics.",
            )
        ),
    }
)

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "partitions": "kafka_server_replicamanager_partitioncount says it",
        "unwritten_bytes": "the sum of pyrklog_log_dir_unwritten_bytes",
        "connections_muted_for_room": "the sum of pyrklog_produce_muted_connections",
        "reader_queue_depth": "the sum of pyrklog_reader_queue_waiting",
    }
)
"""Statistics that no metric has, and why."""

QUEUE: Mapping[str, StatisticMetric] = MappingProxyType(
    {
        f"reader_queue_{name}": StatisticMetric(metric, scale=scale)
        for name, metric, scale in (
            (
                "waiting",
                _gauge(
                    "pyrklog_reader_queue_waiting",
                    "Reads that wait for a thread.",
                    "log_dir",
                    "queue",
                ),
                1,
            ),
            (
                "running",
                _gauge(
                    "pyrklog_reader_queue_running",
                    "Reads that threads work on.",
                    "log_dir",
                    "queue",
                ),
                1,
            ),
            (
                "oldest_wait_ms",
                _gauge(
                    "pyrklog_reader_queue_oldest_wait_seconds",
                    "How long the first read has waited.",
                    "log_dir",
                    "queue",
                ),
                MS,
            ),
            (
                "stalled_ms",
                _gauge(
                    "pyrklog_reader_queue_stalled_seconds",
                    "How long all threads of the queue have stood still.",
                    "log_dir",
                    "queue",
                ),
                MS,
            ),
            (
                "rejected",
                _counter(
                    "pyrklog_reader_queue_rejected_total",
                    "Reads that the queue refused.",
                    "log_dir",
                    "queue",
                ),
                1,
            ),
        )
    }
)
"""``<statistic>.<directory>.<queue>``."""

LOG_DIR: Mapping[str, StatisticMetric] = MappingProxyType(
    {
        "produce_muted_waiting": StatisticMetric(
            _gauge(
                "pyrklog_produce_muted_connections",
                "Producers that wait for room in the directory.",
                "log_dir",
            )
        ),
        "produce_muted_bytes": StatisticMetric(
            _gauge(
                "pyrklog_produce_muted_bytes",
                "Memory of the requests of producers that wait for room.",
                "log_dir",
            )
        ),
        "produce_muted_oldest_wait_ms": StatisticMetric(
            _gauge(
                "pyrklog_produce_muted_oldest_wait_seconds",
                "How long the first producer that waits for room has waited.",
                "log_dir",
            ),
            scale=MS,
        ),
        "produce_muted_rejected": StatisticMetric(
            _counter(
                "pyrklog_produce_muted_rejected_total",
                "Produce requests refused at once for lack of room in the directory.",
                "log_dir",
            )
        ),
        "produce_muted_timed_out": StatisticMetric(
            _counter(
                "pyrklog_produce_muted_timed_out_total",
                "Produce requests refused at their timeout for lack of room in the directory.",
                "log_dir",
            )
        ),
        "writer_queue_waiting": StatisticMetric(
            _gauge("pyrklog_writer_queue_waiting", "Partitions that wait for a writer.", "log_dir")
        ),
        "unwritten_bytes": StatisticMetric(
            _gauge(
                "pyrklog_log_dir_unwritten_bytes",
                "Bytes of records that are not in files yet.",
                "log_dir",
            )
        ),
        "read_window_bytes": StatisticMetric(
            _gauge("pyrklog_read_window_bytes", "Memory of readers of old data.", "log_dir")
        ),
        "read_kept_bytes": StatisticMetric(
            _gauge("pyrklog_read_kept_bytes", "Old data kept in the page cache.", "log_dir")
        ),
        "log_dir_read_only": StatisticMetric(
            _gauge(
                "pyrklog_log_dir_read_only",
                "1 while the directory takes no records for lack of space.",
                "log_dir",
            )
        ),
    }
)
"""``<statistic>.<directory>``."""

CLUSTER: Mapping[str, Metric] = MappingProxyType(
    {
        "brokers": _gauge("kafka_brokers", "Registered brokers; at the controller only."),
        "replicas": _gauge(
            "kafka_server_replicamanager_partitioncount", "Partitions with a replica here."
        ),
        "leaders": _gauge("kafka_server_replicamanager_leadercount", "Partitions led here."),
        "under_replicated": _gauge(
            "kafka_server_replicamanager_underreplicatedpartitions",
            "Partitions led here with replicas that are not in sync.",
        ),
        "under_min_isr": _gauge(
            "kafka_server_replicamanager_underminisrpartitioncount",
            "Partitions led here that refuse acks=all.",
        ),
        "offline_replicas": _gauge(
            "kafka_server_replicamanager_offlinereplicacount",
            "Replicas here whose log directory has failed.",
        ),
        "is_controller": _gauge(
            "kafka_controller_kafkacontroller_activecontrollercount",
            "1 where this broker is the controller.",
        ),
        "offline": _gauge(
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "Partitions without a leader; 0 where this broker is not the controller.",
        ),
        "not_preferred": _gauge(
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
            "Partitions not led by their first replica; 0 where not the controller.",
        ),
        "uneven_brokers": _gauge(
            "pyrklog_uneven_brokers",
            "Brokers whose preferred partitions too often have another leader, by "
            "leader.imbalance.per.broker.percentage; 0 where not the controller.",
        ),
        "topics": _gauge(
            "kafka_controller_kafkacontroller_globaltopiccount",
            "Topics; 0 where not the controller.",
        ),
        "partitions": _gauge(
            "kafka_controller_kafkacontroller_globalpartitioncount",
            "Partitions; 0 where not the controller.",
        ),
    }
)
"""Fields of :class:`.tally.Tally`."""

BROKER: Mapping[str, Metric] = MappingProxyType(
    {
        "groups": _gauge(
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "Groups that this broker coordinates.",
        ),
        "is_store_reachable": _gauge(
            "pyrklog_metadata_store_reachable", "1 while ZooKeeper, or the own store, answers."
        ),
        "is_ready": _gauge("pyrklog_ready", "1 while /health/ready says so."),
        "http_connections": _gauge("pyrklog_http_connections", "Open HTTP connections."),
        "cpu_seconds": _counter("process_cpu_seconds_total", "CPU time of the broker."),
        "resident_bytes": _gauge(
            "process_resident_memory_bytes", "Memory of the broker, shared memory included."
        ),
        "start_time_seconds": _gauge(
            "process_start_time_seconds", "Start of the broker, in seconds since the epoch."
        ),
        "lag_groups_left_out": _gauge(
            "pyrklog_lag_groups_left_out", "Groups beyond those whose lag this broker looks at."
        ),
        "lag_histories": _gauge("pyrklog_lag_histories", "Partitions with a history of log ends."),
        "lag_histories_left_out": _gauge(
            "pyrklog_lag_histories_left_out",
            "Partitions here beyond those with a history of log ends.",
        ),
        "lag_history_points": _gauge(
            "pyrklog_lag_history_points", "Points of the histories of log ends."
        ),
        "lag_forgotten_points": _counter(
            "pyrklog_lag_history_forgotten_points_total",
            "Points of the histories of log ends that were forgotten for lack of room.",
        ),
    }
)
"""Fields of :class:`.samples.Readings`."""

GROUP_LAG_SECONDS = _gauge(
    "pyrklog_group_lag_seconds",
    "The group's longest lag in seconds, at least; of the twenty groups that are most behind, "
    "those with members first.",
    "consumergroup",
)

_PARTITION = ("topic", "partition")
DETAIL: Mapping[str, Metric] = MappingProxyType(
    {
        "partitions": _gauge(
            "kafka_topic_partitions", "Partitions of the topic; at the controller only.", "topic"
        ),
        "served_bytes": _counter(
            "pyrklog_topic_fetched_bytes_total",
            "Bytes of records of the topic that this broker found for fetches: in the block cache, "
            "or in files.",
            *("topic", "source"),
        ),
        "leader": _gauge(
            "kafka_topic_partition_leader",
            "Broker id of the partition's leader; -1: none. One broker tells it.",
            *_PARTITION,
        ),
        "replicas": _gauge(
            "kafka_topic_partition_replicas",
            "Replicas of the partition. One broker tells it.",
            *_PARTITION,
        ),
        "in_sync": _gauge(
            "kafka_topic_partition_in_sync_replica",
            "Replicas of the partition in sync. One broker tells it.",
            *_PARTITION,
        ),
        "is_preferred": _gauge(
            "kafka_topic_partition_leader_is_preferred",
            "1 where the partition's first replica leads. One broker tells it.",
            *_PARTITION,
        ),
        "is_under_replicated": _gauge(
            "kafka_topic_partition_under_replicated_partition",
            "1 where replicas of the partition are not in sync. One broker tells it.",
            *_PARTITION,
        ),
        "log_end": _gauge(
            "pyrklog_partition_log_end_offset",
            "Log end offset of this broker's replica of the partition.",
            *_PARTITION,
        ),
        "high_watermark": _gauge(
            "kafka_topic_partition_current_offset",
            "High watermark of the partition, at its leader only.",
            *_PARTITION,
        ),
        "log_start": _gauge(
            "kafka_topic_partition_oldest_offset",
            "Log start offset of the partition, at its leader only.",
            *_PARTITION,
        ),
        "size_bytes": _gauge(
            "pyrklog_partition_bytes",
            "Bytes of records of this broker's replica of the partition.",
            *_PARTITION,
        ),
        "members": _gauge("kafka_consumergroup_members", "Members of the group.", "consumergroup"),
        "committed": _gauge(
            "kafka_consumergroup_current_offset",
            "The group's committed offset; -1: none, but in other partitions of the topic.",
            "consumergroup",
            *_PARTITION,
        ),
        "lag": _gauge(
            "kafka_consumergroup_lag",
            "Log end minus the group's committed offset in the partition; -1 also without one.",
            "consumergroup",
            *_PARTITION,
        ),
        "lag_seconds": _gauge(
            "pyrklog_group_partition_lag_seconds",
            "How long ago the first unread record was appended, at least; 0 without any.",
            "consumergroup",
            *_PARTITION,
        ),
        "lost": _gauge(
            "pyrklog_group_lost_records",
            "Records by which retention has overtaken the group's committed offset.",
            "consumergroup",
            *_PARTITION,
        ),
    }
)
"""Of ``/metrics/detail``."""

BUILD = _gauge("pyrklog_build_info", "1, with the version of the broker.", "version")
FINDINGS = _gauge(
    "pyrklog_health_findings", "What the broker finds wrong with itself, by kind.", "kind"
)
LEFT_OUT_SERIES = _gauge(
    "pyrklog_metrics_left_out_series", "Series that the bound of the answer left out."
)
