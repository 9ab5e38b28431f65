"""Every metric of ``/metrics`` but times (:mod:`.latency_table`): name, type, labels, and where its
value comes from. Pure.

observability.md has the same table, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from pyrklog.observability.metric import Metric, counter, gauge

MS = 1e-3
NS = 1e-9


class StatisticMetric(NamedTuple):
    """Where a statistic of the data plane goes; ``scale`` makes base units of it."""

    metric: Metric
    values: tuple[str, ...] = ()
    """Of the metric's labels."""
    scale: float = 1


_FETCHED = counter(
    "pyrklog_fetched_bytes_total",
    "Bytes of records sent to consumers and followers, by the way of reading.",
    "path",
)
_THROTTLED = counter(
    "pyrklog_throttled_replication_bytes_total",
    "Bytes of throttled replicas (KIP-73), as leader and as follower.",
    "role",
)
REQUESTS = counter(
    "kafka_network_requestmetrics_requests_total", "Requests, by API, all versions.", "request"
)
REQUESTS_PREFIX = "requests."

PLAIN: Mapping[str, StatisticMetric] = MappingProxyType(
    {
        "connections": StatisticMetric(gauge("pyrklog_connections", "Open Kafka connections.")),
        "received_bytes": StatisticMetric(
            counter("pyrklog_received_bytes_total", "Bytes received.")
        ),
        "sent_bytes": StatisticMetric(counter("pyrklog_sent_bytes_total", "Bytes sent.")),
        "produced_bytes": StatisticMetric(
            counter(
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
            counter(
                "pyrklog_network_threads_busy_seconds_total", "Time that network threads worked."
            ),
            scale=NS,
        ),
        "connections_muted": StatisticMetric(
            counter("pyrklog_connections_muted_total", "Times that a connection had to wait.")
        ),
        "connections_moved": StatisticMetric(
            counter("pyrklog_connections_moved_total", "Moves from one network thread to another.")
        ),
        "idle_closed": StatisticMetric(
            counter("pyrklog_connections_idle_closed_total", "Connections closed as idle.")
        ),
        "protocol_errors": StatisticMetric(
            counter("pyrklog_protocol_errors_total", "Connections closed for protocol errors.")
        ),
        "accepts_failed": StatisticMetric(
            counter(
                "pyrklog_accepts_failed_total",
                "Connections not accepted for lack of descriptors or memory.",
            )
        ),
        "connections_at_limit": StatisticMetric(
            counter(
                "pyrklog_connections_at_limit_total",
                "Times that accepting stopped at max.connections.",
            )
        ),
        "heavy_requests": StatisticMetric(
            counter("pyrklog_heavy_requests_total", "Requests of very many elements.")
        ),
        "fetch_looks": StatisticMetric(
            counter("pyrklog_fetch_partition_looks_total", "Partitions that fetches looked at.")
        ),
        "purgatory_produce": StatisticMetric(
            gauge("pyrklog_delayed_produces", "Partitions of produces that wait for replicas.")
        ),
        "purgatory_fetch": StatisticMetric(
            gauge("pyrklog_delayed_fetches", "Partitions of fetches that wait for records.")
        ),
        "purgatory_internal": StatisticMetric(
            gauge(
                "pyrklog_delayed_internal_appends",
                "The broker's own appends that wait for replicas.",
            )
        ),
        "control_queue_depth": StatisticMetric(
            gauge("pyrklog_control_requests", "Requests at the control plane.")
        ),
        "control_queue_placeless": StatisticMetric(
            gauge(
                "pyrklog_control_requests_placeless",
                "Heartbeats and brokers' requests at the control plane.",
            )
        ),
        "control_queue_parked": StatisticMetric(
            gauge(
                "pyrklog_control_requests_parked",
                "Requests that wait at the control plane without a place.",
            )
        ),
        "control_queue_waiting": StatisticMetric(
            gauge(
                "pyrklog_control_connections_waiting",
                "Connections that wait for a place at the control plane.",
            )
        ),
        "control_queue_parked_bytes": StatisticMetric(
            gauge(
                "pyrklog_control_parked_bytes",
                "Memory of the requests without a place at the control plane.",
            )
        ),
        "event_queue_depth": StatisticMetric(
            gauge("pyrklog_event_queue_depth", "Events that the control plane has not taken.")
        ),
        "reader_threads": StatisticMetric(
            gauge("pyrklog_reader_threads", "Threads that read from disks.")
        ),
        "reader_jobs": StatisticMetric(
            counter("pyrklog_reader_jobs_total", "Reads that reader threads have done.")
        ),
        "validation_waiting": StatisticMetric(
            gauge("pyrklog_validations_waiting", "Produce requests that wait for a validator.")
        ),
        "validation_running": StatisticMetric(
            gauge("pyrklog_validations_running", "Produce requests at a validator.")
        ),
        "transaction_verifications": StatisticMetric(
            gauge(
                "pyrklog_transaction_verifications",
                "Questions to transaction coordinators without an answer yet.",
            )
        ),
        "command_queue_depth": StatisticMetric(
            gauge("pyrklog_log_commands_waiting", "Logs that wait to be opened or removed.")
        ),
        "receive_memory_bytes": StatisticMetric(
            gauge("pyrklog_receive_memory_bytes", "Memory of requests not worked on yet.")
        ),
        "reply_memory_bytes": StatisticMetric(
            gauge("pyrklog_reply_memory_bytes", "Memory of replies that are not sent yet.")
        ),
        "replies_refused": StatisticMetric(
            counter("pyrklog_replies_refused_total", "Control answers that found no memory.")
        ),
        "fetch_sessions": StatisticMetric(
            gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.")
        ),
        "fetch_session_partitions": StatisticMetric(
            gauge(
                "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
                "Partitions in fetch sessions.",
            )
        ),
        "fetch_session_evictions": StatisticMetric(
            counter(
                "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
                "Fetch sessions that made room for others.",
            )
        ),
        "cache_populated_bytes": StatisticMetric(
            gauge("pyrklog_cache_populated_bytes", "Memory that the block cache has.")
        ),
        "cache_free_bytes": StatisticMetric(
            gauge("pyrklog_cache_free_bytes", "Memory of the block cache that holds no records.")
        ),
        "cache_limit_bytes": StatisticMetric(
            gauge("pyrklog_cache_limit_bytes", "Memory that the block cache may have.")
        ),
        "cache_transient_bytes": StatisticMetric(
            gauge("pyrklog_cache_transient_bytes", "Memory of the block cache lent for a moment.")
        ),
        "cache_held_bytes": StatisticMetric(
            gauge("pyrklog_cache_held_bytes", "Records that readers hold in the block cache.")
        ),
        "cache_appended_bytes": StatisticMetric(
            counter("pyrklog_cache_appended_bytes_total", "Bytes appended to the block cache.")
        ),
        "cache_appends_refused": StatisticMetric(
            counter(
                "pyrklog_cache_appends_refused_total",
                "Appends that found no room in the block cache.",
            )
        ),
        "cache_chunks_reclaimed": StatisticMetric(
            counter(
                "pyrklog_cache_chunks_reclaimed_total",
                "Chunks of the block cache taken from older records.",
            )
        ),
        "cache_chunks_given_back": StatisticMetric(
            counter(
                "pyrklog_cache_chunks_given_back_total",
                "Chunks of the block cache given back to the system.",
            )
        ),
        "cache_chunks_populated_by_appends": StatisticMetric(
            counter(
                "pyrklog_cache_chunks_populated_by_appends_total",
                "Chunks of the block cache that an append had to wait for.",
            )
        ),
        "internal_appends": StatisticMetric(
            counter("pyrklog_internal_appends_total", "Batches appended to internal topics.")
        ),
        "internal_appended_bytes": StatisticMetric(
            counter("pyrklog_internal_appended_bytes_total", "Bytes appended to internal topics.")
        ),
        "internal_appends_refused": StatisticMetric(
            counter(
                "pyrklog_internal_appends_refused_total",
                "Appends to internal topics that were refused.",
            )
        ),
        "internal_reads": StatisticMetric(
            counter("pyrklog_internal_reads_total", "The broker's reads of internal topics.")
        ),
        "internal_read_bytes": StatisticMetric(
            counter(
                "pyrklog_internal_read_bytes_total",
                "Bytes that the broker read of internal topics.",
            )
        ),
        "internal_damaged_batches": StatisticMetric(
            counter(
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
                gauge(
                    "pyrklog_reader_queue_waiting",
                    "Reads that wait for a thread.",
                    "log_dir",
                    "queue",
                ),
                1,
            ),
            (
                "running",
                gauge(
                    "pyrklog_reader_queue_running",
                    "Reads that threads work on.",
                    "log_dir",
                    "queue",
                ),
                1,
            ),
            (
                "oldest_wait_ms",
                gauge(
                    "pyrklog_reader_queue_oldest_wait_seconds",
                    "How long the first read has waited.",
                    "log_dir",
                    "queue",
                ),
                MS,
            ),
            (
                "stalled_ms",
                gauge(
                    "pyrklog_reader_queue_stalled_seconds",
                    "How long all threads of the queue have stood still.",
                    "log_dir",
                    "queue",
                ),
                MS,
            ),
            (
                "rejected",
                counter(
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
            gauge(
                "pyrklog_produce_muted_connections",
                "Producers that wait for room in the directory.",
                "log_dir",
            )
        ),
        "produce_muted_bytes": StatisticMetric(
            gauge(
                "pyrklog_produce_muted_bytes",
                "Memory of the requests of producers that wait for room.",
                "log_dir",
            )
        ),
        "produce_muted_oldest_wait_ms": StatisticMetric(
            gauge(
                "pyrklog_produce_muted_oldest_wait_seconds",
                "How long the first producer that waits for room has waited.",
                "log_dir",
            ),
            scale=MS,
        ),
        "produce_muted_rejected": StatisticMetric(
            counter(
                "pyrklog_produce_muted_rejected_total",
                "Produce requests refused at once for lack of room in the directory.",
                "log_dir",
            )
        ),
        "produce_muted_timed_out": StatisticMetric(
            counter(
                "pyrklog_produce_muted_timed_out_total",
                "Produce requests refused at their timeout for lack of room in the directory.",
                "log_dir",
            )
        ),
        "writer_queue_waiting": StatisticMetric(
            gauge("pyrklog_writer_queue_waiting", "Partitions that wait for a writer.", "log_dir")
        ),
        "unwritten_bytes": StatisticMetric(
            gauge(
                "pyrklog_log_dir_unwritten_bytes",
                "Bytes of records that are not in files yet.",
                "log_dir",
            )
        ),
        "read_window_bytes": StatisticMetric(
            gauge("pyrklog_read_window_bytes", "Memory of readers of old data.", "log_dir")
        ),
        "read_kept_bytes": StatisticMetric(
            gauge("pyrklog_read_kept_bytes", "Old data kept in the page cache.", "log_dir")
        ),
        "log_dir_read_only": StatisticMetric(
            gauge(
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
        "brokers": gauge("kafka_brokers", "Registered brokers; at the controller only."),
        "replicas": gauge(
            "kafka_server_replicamanager_partitioncount", "Partitions with a replica here."
        ),
        "leaders": gauge("kafka_server_replicamanager_leadercount", "Partitions led here."),
        "under_replicated": gauge(
            "kafka_server_replicamanager_underreplicatedpartitions",
            "Partitions led here with replicas that are not in sync.",
        ),
        "under_min_isr": gauge(
            "kafka_server_replicamanager_underminisrpartitioncount",
            "Partitions led here that refuse acks=all.",
        ),
        "at_min_isr": gauge(
            "kafka_server_replicamanager_atminisrpartitioncount",
            "Partitions led here with just as many in-sync replicas as acks=all needs.",
        ),
        "reassigned": gauge(
            "kafka_server_replicamanager_reassigningpartitions",
            "Partitions led here that a reassignment moves.",
        ),
        "offline_replicas": gauge(
            "kafka_server_replicamanager_offlinereplicacount",
            "Replicas here whose log directory has failed.",
        ),
        "is_controller": gauge(
            "kafka_controller_kafkacontroller_activecontrollercount",
            "1 where this broker is the controller.",
        ),
        "offline": gauge(
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "Partitions without a leader; 0 where this broker is not the controller.",
        ),
        "not_preferred": gauge(
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
            "Partitions not led by their first replica; 0 where not the controller.",
        ),
        "uneven_brokers": gauge(
            "pyrklog_uneven_brokers",
            "Brokers whose preferred partitions too often have another leader, by "
            "leader.imbalance.per.broker.percentage; 0 where not the controller.",
        ),
        "topics": gauge(
            "kafka_controller_kafkacontroller_globaltopiccount",
            "Topics; 0 where not the controller.",
        ),
        "partitions": gauge(
            "kafka_controller_kafkacontroller_globalpartitioncount",
            "Partitions; 0 where not the controller.",
        ),
    }
)
"""Fields of :class:`.tally.Tally`."""

BROKER: Mapping[str, Metric] = MappingProxyType(
    {
        "groups": gauge(
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "Groups that this broker coordinates.",
        ),
        "is_store_reachable": gauge(
            "pyrklog_metadata_store_reachable", "1 while ZooKeeper, or the own store, answers."
        ),
        "is_ready": gauge("pyrklog_ready", "1 while /health/ready says so."),
        "http_connections": gauge("pyrklog_http_connections", "Open HTTP connections."),
        "cpu_seconds": counter("process_cpu_seconds_total", "CPU time of the broker."),
        "resident_bytes": gauge(
            "process_resident_memory_bytes", "Memory of the broker, shared memory included."
        ),
        "start_time_seconds": gauge(
            "process_start_time_seconds", "Start of the broker, in seconds since the epoch."
        ),
        "lag_groups_left_out": gauge(
            "pyrklog_lag_groups_left_out", "Groups beyond those whose lag this broker looks at."
        ),
        "lag_histories": gauge("pyrklog_lag_histories", "Partitions with a history of log ends."),
        "lag_histories_left_out": gauge(
            "pyrklog_lag_histories_left_out",
            "Partitions here beyond those with a history of log ends.",
        ),
        "lag_history_points": gauge(
            "pyrklog_lag_history_points", "Points of the histories of log ends."
        ),
        "lag_forgotten_points": counter(
            "pyrklog_lag_history_forgotten_points_total",
            "Points of the histories of log ends that were forgotten for lack of room.",
        ),
        "isr_expands": counter(
            "kafka_server_replicamanager_isrexpands_total",
            "Times that a replica has joined the in-sync replicas of a partition led here.",
        ),
        "isr_shrinks": counter(
            "kafka_server_replicamanager_isrshrinks_total",
            "Times that this broker as leader had a replica that is behind leave the in-sync ones.",
        ),
        "unclean_elections": counter(
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "Leaders elected by this broker as controller that may lack acknowledged records.",
        ),
    }
)
"""Fields of :class:`.samples.Readings`."""

GROUP_LAG_SECONDS = gauge(
    "pyrklog_group_lag_seconds",
    "The group's longest lag in seconds, at least; of the twenty groups that are most behind, "
    "those with members first.",
    "consumergroup",
)

BUILD = gauge("pyrklog_build_info", "1, with the version of the broker.", "version")
FINDINGS = gauge(
    "pyrklog_health_findings", "What the broker finds wrong with itself, by kind.", "kind"
)
LEFT_OUT_SERIES = gauge(
    "pyrklog_metrics_left_out_series", "Series that the bound of the answer left out."
)
