"""What the dashboards show: the cluster, its brokers one by one, topics and groups.

Variables of Grafana: ``$job`` is the scrape job, one a cluster; ``$instance`` are brokers.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyrklog.deploy.grafana import Dashboard, Panel, Query, Row, Unit, Variable

_JOB = Variable("job", "Cluster", "pyrklog_build_info, job")
_INSTANCE = Variable("instance", "Broker", 'pyrklog_build_info{job="$job"}, instance', several=True)
_CONTROLLER = "kafka_controller_kafkacontroller"
_REPLICAS = "kafka_server_replicamanager"
_UNCLEAN_ELECTIONS = "kafka_controller_controllerstats_uncleanleaderelections_total"
_SESSIONS = "kafka_server_fetchsessioncache"
_REQUESTS = "kafka_network_requestmetrics_requests_total"
_BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
_BYTES_OUT = "pyrklog_fetched_bytes_total"
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_numgroups"
_REQUEST_SECONDS = "pyrklog_request_seconds_bucket"

Metrics = str | Mapping[str, str]
"""One metric, or metrics by what tells their lines apart besides the broker."""


def _of_job(metric: str, *more: str) -> str:
    matchers = ", ".join(('job="$job"', *more))
    return f"{metric}{{{matchers}}}"


def _chosen(metric: str, *more: str) -> str:
    """Of the chosen brokers."""
    return _of_job(metric, 'instance=~"$instance"', *more)


def _rate(series: str) -> str:
    return f"rate({series}[$__rate_interval])"


def _by(label: str, series: str) -> str:
    return f"sum by ({label}) ({series})"


def _stat(title: str, expr: str, bad_from: float | None = None) -> Panel:
    return Panel(title, [Query(expr, "")], width=4, kind="stat", bad_from=bad_from)


def _legend(name: str) -> str:
    return f"{{{{instance}}}} {name}".rstrip()


def _gauges(title: str, unit: Unit, metrics: Metrics, about: str = "") -> Panel:
    named = {"": metrics} if isinstance(metrics, str) else metrics
    found = [Query(_chosen(metric), _legend(name)) for name, metric in named.items()]
    return Panel(title, found, unit, about=about)


def _rates(title: str, unit: Unit, metrics: Metrics, about: str = "") -> Panel:
    named = {"": metrics} if isinstance(metrics, str) else metrics
    found = [Query(_rate(_chosen(metric)), _legend(name)) for name, metric in named.items()]
    return Panel(title, found, unit, about=about)


def _sums(title: str, unit: Unit, label: str, series: str, about: str = "") -> Panel:
    """Rates added up by a label, one upon the other."""
    query = Query(_by(label, _rate(series)), f"{{{{{label}}}}}")
    return Panel(title, [query], unit, about=about, stacked=True)


def _quantiles(title: str, share: float, labels: str, series: str) -> Panel:
    """Below this time so large a share of the requests was answered."""
    merged = _by(f"le, {labels}", _rate(series))
    legend = " ".join(f"{{{{{label}}}}}" for label in labels.split(", "))
    return Panel(
        title,
        [Query(f"histogram_quantile({share}, {merged})", legend)],
        "s",
        about="Fetches without their wait for records.",
    )


_FROM_DISKS = _by("instance", _rate(_of_job(_BYTES_OUT, 'path=~"copy|sendfile|window"')))
_ALL_SENT = _by("instance", _rate(_of_job(_BYTES_OUT)))
_IS_WELL = [
    _stat("Brokers that answer", f"sum({_of_job('up')})"),
    _stat("Not ready", f"sum({_of_job('pyrklog_ready')} == bool 0)", 1),
    _stat("Controllers", f"sum({_of_job(f'{_CONTROLLER}_activecontrollercount')})", 2),
    _stat("Without a leader", f"max({_of_job(f'{_CONTROLLER}_offlinepartitionscount')})", 1),
    _stat("Refuse acks=all", f"sum({_of_job(f'{_REPLICAS}_underminisrpartitioncount')})", 1),
    _stat("Under-replicated", f"sum({_of_job(f'{_REPLICAS}_underreplicatedpartitions')})", 1),
    _stat("Unclean elections, last hour", f"sum(increase({_of_job(_UNCLEAN_ELECTIONS)}[1h]))", 1),
    _stat("Full log directories", f"sum({_of_job('pyrklog_log_dir_read_only')})", 1),
    _stat("Without ZooKeeper", f"sum({_of_job('pyrklog_metadata_store_reachable')} == bool 0)", 1),
    Panel(
        "Leaders not preferred",
        [
            Query(f"max({_of_job(f'{_CONTROLLER}_preferredreplicaimbalancecount')})", "partitions"),
            Query(f"max({_of_job('pyrklog_uneven_brokers')})", "uneven brokers"),
        ],
        width=4,
        kind="stat",
        about="Brokers are uneven above `leader.imbalance.per.broker.percentage`.",
    ),
    _stat("Topics", f"max({_of_job(f'{_CONTROLLER}_globaltopiccount')})"),
    _stat("Partitions", f"max({_of_job(f'{_CONTROLLER}_globalpartitioncount')})"),
    _stat("Groups", f"sum({_of_job(_GROUPS)})"),
    Panel(
        "Partitions on the move or at their minimum",
        [
            Query(f"sum({_of_job(f'{_REPLICAS}_reassigningpartitions')})", "reassigned"),
            Query(f"sum({_of_job(f'{_REPLICAS}_atminisrpartitioncount')})", "at the minimum"),
        ],
        width=4,
        kind="stat",
        about="At their minimum have just as many replicas in sync as `min.insync.replicas`; those "
        "with a single replica always do.",
    ),
    Panel(
        "Findings",
        [Query(f"{_of_job('pyrklog_health_findings')} > 0", "{{instance}} {{kind}}")],
        width=24,
        about="What brokers find wrong with themselves: `pyrklog cluster health` says more.",
    ),
]
CLUSTER = Dashboard(
    "pyrklog-cluster",
    "pyrklog: cluster",
    "Whether all is well, what goes in and out, and which broker carries how much.",
    [_JOB],
    [
        Row("Is all well?", _IS_WELL),
        Row(
            "Load",
            [
                _sums("Produced", "Bps", "instance", _of_job(_BYTES_IN)),
                _sums("Sent to consumers and followers", "Bps", "instance", _of_job(_BYTES_OUT)),
                _sums("Requests", "reqps", "request", _of_job(_REQUESTS)),
                _quantiles("Requests, p50", 0.5, "request", _of_job(_REQUEST_SECONDS)),
                _quantiles("Requests, p99", 0.99, "request", _of_job(_REQUEST_SECONDS)),
                Panel(
                    "Read from disks",
                    [Query(f"{_FROM_DISKS} / {_ALL_SENT}")],
                    "percentunit",
                    about="Share of the bytes sent. The rest came from the block cache.",
                ),
                Panel("Connections", [Query(_of_job("pyrklog_connections"))]),
                Panel("CPU, cores", [Query(_rate(_of_job("process_cpu_seconds_total")))]),
            ],
        ),
        Row(
            "Brokers side by side",
            [
                Panel("Leaders", [Query(_of_job(f"{_REPLICAS}_leadercount"))]),
                Panel("Replicas", [Query(_of_job(f"{_REPLICAS}_partitioncount"))]),
                Panel(
                    "Running for", [Query(f"time() - {_of_job('process_start_time_seconds')}")], "s"
                ),
            ],
        ),
    ],
)

_DIR = "{{log_dir}}"
_QUEUE = "{{log_dir}} {{queue}}"
_DISKS = [
    _gauges(
        "Bytes not written",
        "bytes",
        {_DIR: "pyrklog_log_dir_unwritten_bytes"},
        "Acknowledged from the block cache, and not in files yet.",
    ),
    _gauges(
        "Producers wait for room, the longest",
        "s",
        {_DIR: "pyrklog_produce_muted_oldest_wait_seconds"},
    ),
    _rates(
        "Produce requests refused for lack of room",
        "ops",
        {
            f"{_DIR} at once": "pyrklog_produce_muted_rejected_total",
            f"{_DIR} timed out": "pyrklog_produce_muted_timed_out_total",
        },
    ),
    _gauges("Reads wait, the longest", "s", {_QUEUE: "pyrklog_reader_queue_oldest_wait_seconds"}),
    _gauges(
        "Reads stand still",
        "s",
        {_QUEUE: "pyrklog_reader_queue_stalled_seconds"},
        "How long all threads of a queue have waited for the disk.",
    ),
    _gauges("Reads that wait", "short", {_QUEUE: "pyrklog_reader_queue_waiting"}),
    _rates("Reads done", "ops", "pyrklog_reader_jobs_total"),
    _gauges("Partitions that wait for a writer", "short", {_DIR: "pyrklog_writer_queue_waiting"}),
    _gauges("Logs to open or remove", "short", "pyrklog_log_commands_waiting"),
]
_MEMORY = [
    _gauges(
        "Block cache",
        "bytes",
        {
            "has": "pyrklog_cache_populated_bytes",
            "free": "pyrklog_cache_free_bytes",
            "may have": "pyrklog_cache_limit_bytes",
        },
    ),
    _sums(
        "Sent, by the way of reading",
        "Bps",
        "path",
        _chosen(_BYTES_OUT),
        "cached, inline: from memory; copy, sendfile, window: from disks.",
    ),
    _rates("Appended to the cache", "Bps", "pyrklog_cache_appended_bytes_total"),
    _rates(
        "Chunks of 1 MiB",
        "ops",
        {
            "reclaimed": "pyrklog_cache_chunks_reclaimed_total",
            "given back": "pyrklog_cache_chunks_given_back_total",
            "populated by appends": "pyrklog_cache_chunks_populated_by_appends_total",
        },
    ),
    _rates(
        "Appends without room in the cache",
        "ops",
        "pyrklog_cache_appends_refused_total",
        "They wait for the file.",
    ),
    _gauges(
        "Memory",
        "bytes",
        {
            "resident, with shared memory": "process_resident_memory_bytes",
            "requests": "pyrklog_receive_memory_bytes",
            "replies": "pyrklog_reply_memory_bytes",
        },
    ),
]
_TIMES = [
    _quantiles("Requests, p50", 0.5, "instance, request", _chosen(_REQUEST_SECONDS)),
    _quantiles("Requests, p99", 0.99, "instance, request", _chosen(_REQUEST_SECONDS)),
    *(
        _sums(
            f"Time of {request}",
            "s",
            "phase",
            _chosen("pyrklog_request_time_seconds_total", f'request="{request}"'),
            "Of all requests together, a second: in which phase they are.",
        )
        for request in ("Produce", "FetchConsumer")
    ),
    Panel(
        "Writes to files, the mean",
        [
            Query(
                f"{_rate(_chosen('pyrklog_log_dir_write_time_seconds_total'))}"
                f" / {_rate(_chosen('pyrklog_log_dir_writes_total'))}",
                _legend(_DIR),
            )
        ],
        "s",
    ),
    Panel(
        "Reads by readers, the mean",
        [
            Query(
                f"{_rate(_chosen('pyrklog_log_dir_read_time_seconds_total'))}"
                f" / {_rate(_chosen('pyrklog_log_dir_reads_total'))}",
                _legend(_DIR),
            )
        ],
        "s",
    ),
]
_NETWORK = [
    _rates("Received", "Bps", "pyrklog_received_bytes_total"),
    _rates("Sent", "Bps", "pyrklog_sent_bytes_total"),
    _rates(
        "Network threads busy",
        "short",
        "pyrklog_network_threads_busy_seconds_total",
        "So many threads' time.",
    ),
    _rates(
        "Connections closed, or not accepted",
        "ops",
        {
            "idle": "pyrklog_connections_idle_closed_total",
            "protocol errors": "pyrklog_protocol_errors_total",
            "not accepted": "pyrklog_accepts_failed_total",
            "at max.connections": "pyrklog_connections_at_limit_total",
        },
    ),
    _rates("Connections held back", "ops", "pyrklog_connections_muted_total"),
    _gauges(
        "Fetch sessions",
        "short",
        {
            "sessions": f"{_SESSIONS}_numincrementalfetchsessions",
            "partitions": f"{_SESSIONS}_numincrementalfetchpartitionscached",
        },
    ),
    _gauges(
        "What waits",
        "short",
        {
            "produces, for replicas": "pyrklog_delayed_produces",
            "fetches, for records": "pyrklog_delayed_fetches",
            "produces, for a validator": "pyrklog_validations_waiting",
        },
    ),
    _rates(
        "In-sync replicas",
        "ops",
        {
            "join": f"{_REPLICAS}_isrexpands_total",
            "leave": f"{_REPLICAS}_isrshrinks_total",
        },
        "By the leader's proposal. A broker that goes away leaves them by the controller's.",
    ),
    _rates(
        "Throttled replication", "Bps", {"{{role}}": "pyrklog_throttled_replication_bytes_total"}
    ),
    _sums("Requests", "reqps", "request", _chosen(_REQUESTS)),
]
_CONTROL = [
    _gauges(
        "Requests",
        "short",
        {
            "with a place": "pyrklog_control_requests",
            "without": "pyrklog_control_requests_parked",
            "connections that wait": "pyrklog_control_connections_waiting",
        },
    ),
    _gauges("Events not taken", "short", "pyrklog_event_queue_depth"),
    _rates("Answers without memory", "ops", "pyrklog_replies_refused_total"),
    _gauges("Groups", "short", _GROUPS),
    _rates(
        "Internal topics",
        "Bps",
        {
            "appended": "pyrklog_internal_appended_bytes_total",
            "read": "pyrklog_internal_read_bytes_total",
        },
    ),
    _rates("CPU, cores", "short", "process_cpu_seconds_total"),
]
BROKERS = Dashboard(
    "pyrklog-brokers",
    "pyrklog: brokers",
    "One broker, or several beside each other: disks, memory, network, control plane.",
    [_JOB, _INSTANCE],
    [
        Row("Requests", _TIMES),
        Row("Disks", _DISKS),
        Row("Memory and block cache", _MEMORY),
        Row("Network", _NETWORK),
        Row("Control plane", _CONTROL),
    ],
)


def _of_topics(metric: str, *more: str) -> str:
    """Of each partition, by whichever broker tells it."""
    series = _of_job(metric, 'topic=~"$topic"', *more)
    return f"max by (topic, partition) ({series})"


_ENDS = _of_topics("pyrklog_partition_log_end_offset")
_MEMBERS = _of_job("kafka_consumergroup_members", 'consumergroup=~"$group"')
_COMMITTED = _of_job(
    "kafka_consumergroup_current_offset", 'topic=~"$topic"', 'consumergroup=~"$group"'
)
_LAG = (
    f"{_ENDS} - on (topic, partition) group_right () "
    f"max by (consumergroup, topic, partition) ({_COMMITTED} >= 0)"
)
DETAIL = Dashboard(
    "pyrklog-detail",
    "pyrklog: topics and groups",
    "Topics and groups that a scrape job of /metrics/detail reads (`pyrklog deploy prometheus`).",
    [
        Variable("job", "Scrape job", "kafka_topic_partitions, job"),
        Variable("topic", "Topic", 'kafka_topic_partitions{job="$job"}, topic', several=True),
        Variable(
            "group",
            "Group",
            'kafka_consumergroup_members{job="$job"}, consumergroup',
            several=True,
        ),
    ],
    [
        Row(
            "Topics",
            [
                Panel(
                    "Records appended",
                    [Query(_by("topic", f"deriv(({_ENDS})[5m:1m])"), "{{topic}}")],
                    "ops",
                    about="A second, by the growth of log end offsets in five minutes.",
                ),
                Panel(
                    "Under-replicated partitions",
                    [
                        Query(
                            _by(
                                "topic",
                                _of_topics("kafka_topic_partition_under_replicated_partition"),
                            ),
                            "{{topic}}",
                        )
                    ],
                ),
                Panel(
                    "Partitions by leader",
                    [
                        Query(
                            f'count_values("broker", {_of_topics("kafka_topic_partition_leader")})',
                            "{{broker}}",
                        )
                    ],
                ),
            ],
        ),
        Row(
            "Groups",
            [
                Panel(
                    "Lag, records",
                    [
                        Query(
                            _by("consumergroup, topic", f"clamp_min({_LAG}, 0)"),
                            "{{consumergroup}} {{topic}}",
                        )
                    ],
                    width=12,
                    about="Log end offsets less committed offsets.",
                ),
                Panel(
                    "Members",
                    [Query(f"max by (consumergroup) ({_MEMBERS})", "{{consumergroup}}")],
                    width=12,
                ),
            ],
        ),
    ],
)

DASHBOARDS = (CLUSTER, BROKERS, DETAIL)
