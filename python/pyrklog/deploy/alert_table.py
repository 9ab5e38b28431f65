"""The alerts, the gravest first.

Each expression is limited to scrape jobs whose names begin with ``pyrklog``: Kafka's names are also
those of Apache Kafka's exporters. Findings are the broker's own (health.md), so that an alert and
``pyrklog cluster health`` never differ.
"""

from __future__ import annotations

from pyrklog.deploy.alerts import Alert, Severity

JOB = '{job=~"pyrklog.*"}'
CONTROLLER = "kafka_controller_kafkacontroller"
REPLICAS = "kafka_server_replicamanager"
UNCLEAN_ELECTIONS = "kafka_controller_controllerstats_uncleanleaderelections_total"
HEALTH = "`pyrklog cluster health -b BROKER:9092` names the partitions and brokers, and says why"


def _of_finding(
    name: str,
    severity: Severity,
    kind: str,
    minutes: int,
    what: str,
    means: str,
    look: tuple[str, ...],
    do: tuple[str, ...],
) -> Alert:
    """An alert that a kind of finding makes."""
    expr = f'pyrklog_health_findings{{job=~"pyrklog.*", kind="{kind}"}} > 0'
    return Alert(
        name, severity, expr, minutes, f"{{{{ $labels.instance }}}}: {what}", means, look, do
    )


_BROKERS = (
    Alert(
        "PyrklogBrokerDown",
        "critical",
        f"up{JOB} == 0",
        1,
        "{{ $labels.instance }} does not answer",
        "Prometheus cannot read the broker's metrics: the broker has ended, hangs, or is not "
        "reached. A cluster goes on without one broker; another one must not end meanwhile.",
        (
            "`systemctl status pyrklog` (or `docker ps -a`) on the host: does it run, and with "
            "which exit code did it end?",
            "The last lines of its log: a broker that cannot start ends with `error[PK...]: ...` "
            "and a line `fix: ...`; `pyrklog explain PK...` tells more.",
            "`curl http://127.0.0.1:9192/health/live` on the host: where that answers, the network "
            "or the address of the scrape is at fault.",
        ),
        (
            "Exit code 78: the configuration. Do what the line says; `pyrklog serve --check` with "
            "the same options says whether it is good. systemd does not try again by itself.",
            "Exit code 75: something outside is in the way (ZooKeeper away, a port or directory "
            "in use). systemd tries again each five seconds; remove what the line names.",
            "Exit code 74: a disk. See PyrklogLogDirFailed. 70 is a bug: report the log.",
            "Killed (137): the kernel's log says whether memory was short. Start it again: "
            "nothing acknowledged is lost, unless the machine went down.",
        ),
    ),
    Alert(
        "PyrklogBrokerRestarts",
        "warning",
        f"changes(process_start_time_seconds{JOB}[30m]) > 2",
        0,
        "{{ $labels.instance }} has started {{ $value }} times in half an hour",
        "The broker ends again and again. Each end moves its leaders.",
        (
            "The log: the last lines before each start, and the exit code.",
            "The kernel's log (`journalctl -k`): was it killed for lack of memory?",
        ),
        (
            "As for PyrklogBrokerDown, by the exit code.",
            "Killed for lack of memory: give the host or container more, or lower "
            "`pyrklog.cache.max.bytes`.",
        ),
    ),
    Alert(
        "PyrklogBrokerNotReady",
        "critical",
        f"pyrklog_ready{JOB} == 0",
        5,
        "{{ $labels.instance }} runs, but is not ready",
        "The broker has been starting, or ending, for minutes. Clients do not get answers from it.",
        (
            "`curl http://127.0.0.1:9192/health/ready` on the host has the reason.",
            "The log: `waiting_for_controller`, `not_registered` or `not_left` say what is waited "
            "for. After a machine went down logs recover: disks are busy then.",
        ),
        (
            "Let logs recover.",
            "`waiting_for_controller`: give the broker the listener that the others have in "
            "`inter.broker.listener.name`, and see that brokers reach each other.",
            "An end that hangs: a second SIGTERM ends it at once; logs recover at the next start.",
        ),
    ),
)

_CLUSTER = (
    Alert(
        "PyrklogPartitionsOffline",
        "critical",
        f"max by (job) ({CONTROLLER}_offlinepartitionscount{JOB}) > 0",
        1,
        "{{ $labels.job }}: {{ $value }} partitions have no leader",
        "Nobody can read or write these partitions: all brokers with in-sync replicas of them are "
        "down, or their log directories have failed.",
        (HEALTH + ".", "`pyrklog topic describe TOPIC` has their replicas."),
        (
            "Bring back the brokers that were last in sync (ISR). Then the partition is whole.",
            "Where they are lost for ever: `pyrklog cluster elect-leaders --unclean TOPIC:P` lets "
            "another replica lead. **Records that it lacks are lost.** PyrklogUncleanElection "
            "fires then.",
        ),
    ),
    Alert(
        "PyrklogUncleanElection",
        "critical",
        # What a controller elects right after its start is in the first sample already: no
        # increase.
        f"increase({UNCLEAN_ELECTIONS}{JOB}[1h]) > 0"
        f" or {UNCLEAN_ELECTIONS}{JOB} > 0"
        f" and on (job, instance) time() - process_start_time_seconds{JOB} < 3600",
        0,
        "{{ $labels.instance }}, as the controller, elected a leader that may lack acknowledged "
        "records",
        "All in-sync replicas of a partition were gone, and another one leads it: the topic allows "
        "that (`unclean.leader.election.enable`), or `pyrklog cluster elect-leaders --unclean` "
        "asked for it. Records that the new leader lacks are no longer read, and replicas that "
        "come back cut them off. The alert ends an hour after the last such election.",
        (
            "That broker's log: `unclean_election` names each partition, its new leader and the "
            "replicas that were in sync before (`isr_before`).",
            "`pyrklog topic describe TOPIC --configs`: who leads now, and is "
            "`unclean.leader.election.enable` meant?",
            "`pyrklog group describe GROUP`: a lag below 0 is of a group that had read records "
            "which are gone.",
        ),
        (
            "Do not start a broker of `isr_before` that is down before you have copied its "
            "partition's folder: it has the records that the leader lacks, and cuts them off when "
            "it follows. `pyrklog log dump` reads the copy.",
            "Have producers send again what was acknowledged lately, where they can.",
            "Where a wait is better than a loss: `pyrklog topic alter TOPIC --set "
            "unclean.leader.election.enable=false`. Three replicas and `min.insync.replicas=2` "
            "make it rarer.",
        ),
    ),
    Alert(
        "PyrklogNoController",
        "critical",
        f"sum by (job) ({CONTROLLER}_activecontrollercount{JOB}) == 0",
        1,
        "{{ $labels.job }} has no controller",
        "Leaders that end are not replaced, and topics are neither made nor altered. Reads and "
        "writes go on.",
        (
            "PyrklogZooKeeperLost: without ZooKeeper a controller that ends is not replaced.",
            "The brokers' logs: `controller_failed`, `zookeeper_connection_lost`.",
        ),
        (
            "Bring ZooKeeper back: brokers elect a controller by themselves.",
            "With ZooKeeper well: restart the broker whose log has `controller_failed`, and report "
            "the log.",
        ),
    ),
    Alert(
        "PyrklogSeveralControllers",
        "critical",
        f"sum by (job) ({CONTROLLER}_activecontrollercount{JOB}) > 1",
        1,
        "{{ $labels.job }}: {{ $value }} brokers take themselves for the controller",
        "For a minute that is no accident of a fail-over: brokers of one scrape job belong to "
        "different clusters, or one of them is cut off from ZooKeeper. Brokers refuse a "
        "controller that was replaced.",
        (
            "Do all brokers name the same `zookeeper.connect`, chroot included? `pyrklog config "
            "diff broker` shows it.",
            "Which one does not reach ZooKeeper (PyrklogZooKeeperUnreached)?",
        ),
        (
            "Give each cluster a scrape job of its own, if these are two.",
            "Else repair the network of the one that is cut off, or stop that broker.",
        ),
    ),
    Alert(
        "PyrklogPartitionsUnderMinIsr",
        "critical",
        f"sum by (job) ({REPLICAS}_underminisrpartitioncount{JOB}) > 0",
        1,
        "{{ $labels.job }}: {{ $value }} partitions refuse acks=all",
        "These partitions have fewer in-sync replicas than `min.insync.replicas`: producers with "
        "`acks=all` get NOT_ENOUGH_REPLICAS and retry.",
        (HEALTH + ".", "Which brokers are down, or behind?"),
        (
            "Bring the missing brokers back; replicas that are behind catch up by themselves.",
            "Where a broker will be away for long, move its replicas: `pyrklog cluster reassign "
            "plan --brokers` with the others, then `apply`.",
        ),
    ),
    Alert(
        "PyrklogPartitionsUnderReplicated",
        "warning",
        f"sum by (job) ({REPLICAS}_underreplicatedpartitions{JOB}) > 0",
        10,
        "{{ $labels.job }}: {{ $value }} partitions lack in-sync replicas",
        "A broker is away or does not keep up. Nothing is lost, but one more failure may be.",
        (
            HEALTH + ".",
            "Is the broker's network or disk full (PyrklogReadsStuck, PyrklogWritesStuck)?",
        ),
        (
            "Bring the broker back. After a long absence it copies what it missed: the count "
            "falls meanwhile.",
            "Restart no other broker until `pyrklog cluster restart-safe BROKER` says yes.",
        ),
    ),
    Alert(
        "PyrklogZooKeeperLost",
        "critical",
        f"max by (job) (pyrklog_metadata_store_reachable{JOB}) == 0",
        1,
        "{{ $labels.job }}: no broker reaches ZooKeeper",
        "No leader is replaced, and no topic is made or altered. Reads and writes go on as long "
        "as all brokers live.",
        (
            "Does ZooKeeper run, and has it a quorum? `echo srvr | nc ZOOKEEPER 2181` on each of "
            "its servers.",
            "The brokers' logs: `zookeeper_connection_lost` has the reason.",
        ),
        (
            "Bring ZooKeeper back; brokers come back to it by themselves.",
            "Restart no broker meanwhile: it could not start (exit code 75).",
        ),
    ),
    Alert(
        "PyrklogZooKeeperUnreached",
        "warning",
        f"pyrklog_metadata_store_reachable{JOB} == 0",
        1,
        "{{ $labels.instance }} does not reach ZooKeeper",
        "After `zookeeper.session.timeout.ms` the others take this broker for dead, and lead its "
        "partitions.",
        (
            "Do other brokers reach it? Then the network of this host is at fault.",
            "The log: `zookeeper_connection_lost` has the reason.",
        ),
        ("Repair the way from the host to `zookeeper.connect`; nothing else is to be done.",),
    ),
    Alert(
        "PyrklogLeadersUneven",
        "info",
        f"max by (job) (pyrklog_uneven_brokers{JOB}) > 0",
        60,
        "{{ $labels.job }}: {{ $value }} brokers lead too few of the partitions that prefer them",
        "Of the partitions whose first replica such a broker is, others lead more than "
        "`leader.imbalance.per.broker.percentage` (10). The periodic election "
        "(`auto.leader.rebalance.enable`) is off, or elects nobody. What it leaves alone, "
        "up to that percentage, makes no alert.",
        (
            "`pyrklog topic skew` shows how much brokers and partitions carry.",
            HEALTH + ": a replica that is not in sync is not elected.",
        ),
        ("`pyrklog cluster elect-leaders --preferred`.",),
    ),
)

_DISKS = (
    Alert(
        "PyrklogLogDirFull",
        "critical",
        f"max by (job, instance, log_dir) (pyrklog_log_dir_read_only{JOB}) == 1",
        0,
        "{{ $labels.instance }}: {{ $labels.log_dir }} takes no records, its disk is full",
        "A write found no space. Producers to this directory get KAFKA_STORAGE_ERROR, which they "
        "retry; reads go on. Acknowledged records are safe.",
        (
            "`df -h` on the host: what fills the volume, the broker or something else?",
            "`pyrklog topic skew -b BROKER:9092` names the largest partitions.",
        ),
        (
            "Make space: remove what is not the broker's, or lower retention: `pyrklog topic "
            "alter TOPIC --set retention.ms=MS`. **Never remove files of a log directory.**",
            "Or move partitions: `pyrklog cluster reassign plan`, then `apply`.",
            "Records are taken again by themselves (`log_dir_has_space`); no restart is needed.",
        ),
    ),
    _of_finding(
        "PyrklogLogDirFailed",
        "critical",
        "log_dir_failed",
        0,
        "a log directory has failed",
        "A write or sync failed, so the directory is offline until the broker restarts. Other "
        "replicas lead its partitions.",
        (
            "The log: `log_dir_failed` names the directory and the error.",
            "The kernel's log (`journalctl -k`): errors of the disk or file system.",
        ),
        (
            "Replace or repair the disk, then restart the broker: replicas are copied anew.",
            "A broker whose directories have all failed ends with exit code 74.",
        ),
    ),
    _of_finding(
        "PyrklogDiskFilling",
        "warning",
        "disk_filling",
        5,
        "a disk fills up",
        "The volume of a log directory is 90 % full, or will be full within a day if it goes on "
        "as now. When it is full the directory takes no records.",
        (
            "`curl http://127.0.0.1:9192/health/ready` on the host names the directory, and says "
            "when it will be full.",
            "`pyrklog topic skew` names the largest partitions.",
        ),
        (
            "Lower retention of the largest topics, enlarge the volume, or move partitions.",
            "Find out who produces more than before.",
        ),
    ),
    _of_finding(
        "PyrklogDiskHangs",
        "critical",
        "disk_hangs",
        1,
        "a disk does not answer",
        "The volume of a log directory has not told its free space for half a minute.",
        ("The kernel's log (`journalctl -k`): time-outs, resets, a network file system away.",),
        (
            "Repair the volume. Requests for its partitions wait meanwhile.",
            "Where that takes long, stop the broker: others lead its partitions.",
        ),
    ),
    Alert(
        "PyrklogReadsStuck",
        "warning",
        f"max by (job, instance, log_dir, queue) (pyrklog_reader_queue_stalled_seconds{JOB}) > 5",
        1,
        "{{ $labels.instance }}: reads of {{ $labels.log_dir }} stand still",
        "All threads of a queue have waited for the disk for seconds. Consumers of old data wait; "
        "those at the end of a log read memory.",
        ("The kernel's log, and `iostat -x 1`: is the disk slow, or does it hang?",),
        ("As for PyrklogDiskHangs. If only too much is read: move partitions to other disks.",),
    ),
    Alert(
        "PyrklogWritesStuck",
        "warning",
        f"max by (job, instance, log_dir) (pyrklog_produce_muted_oldest_wait_seconds{JOB}) > 5",
        1,
        "{{ $labels.instance }}: producers wait for room in {{ $labels.log_dir }}",
        "The disk does not keep up with what is produced. Producers are held back, and time out "
        "in the end.",
        (
            "`iostat -x 1`: is the disk busy with writes, or slow?",
            "The dashboard's bytes not written: does it fall in quiet minutes?",
        ),
        ("Move partitions to other directories or brokers, or take a faster disk.",),
    ),
    Alert(
        "PyrklogProduceRefused",
        "warning",
        "sum by (job, instance, log_dir) ("
        f"rate(pyrklog_produce_muted_rejected_total{JOB}[5m])"
        f" + rate(pyrklog_produce_muted_timed_out_total{JOB}[5m])) > 0",
        5,
        "{{ $labels.instance }}: produce requests to {{ $labels.log_dir }} are refused",
        "Producers waited for room in a log directory until their time-out, or too many waited. "
        "They retry; records are lost where a producer gives up.",
        ("As for PyrklogWritesStuck.",),
        ("As for PyrklogWritesStuck. Meanwhile raise the producers' `delivery.timeout.ms`.",),
    ),
    Alert(
        "PyrklogInternalTopicDamaged",
        "critical",
        # What a start has met while it loaded is in the first sample already: no increase.
        f"increase(pyrklog_internal_damaged_batches_total{JOB}[1h]) > 0"
        f" or pyrklog_internal_damaged_batches_total{JOB} > 0"
        f" and on (job, instance) time() - process_start_time_seconds{JOB} < 3600",
        0,
        "{{ $labels.instance }} met unreadable batches in an internal topic",
        "Offsets of groups, or states of transactions, could not be read: a disk has changed "
        "what was written.",
        (
            "The log: `offsets_records_skipped` or `transaction_records_skipped` has the place.",
            "`pyrklog log verify __consumer_offsets -b BROKER:9092`: are the replicas the same?",
            "The kernel's log for errors of the disk.",
        ),
        (
            "With a whole replica elsewhere: move this broker's replica to another broker "
            "(`pyrklog cluster reassign plan`, `apply`), which copies the leader's. Where this "
            "broker leads it, stop the broker first, so that another one leads.",
            "Replace the disk.",
        ),
    ),
)

_RESOURCES = (
    _of_finding(
        "PyrklogFileHandlesScarce",
        "warning",
        "file_handles",
        5,
        "file handles run out",
        "The process uses 80 % of the file handles that it may have. Without one the broker opens "
        "no segment and accepts no connection.",
        (
            "`ls /proc/PID/fd | wc -l` beside `grep files /proc/PID/limits`.",
            "`pyrklog topic list --sort size` names topics with many segments.",
        ),
        (
            "Raise `LimitNOFILE` of the unit (or `ulimit -n`), then restart the broker.",
            "Fewer partitions, or larger `segment.bytes`, need fewer handles.",
        ),
    ),
    Alert(
        "PyrklogConnectionsNotAccepted",
        "warning",
        f"increase(pyrklog_accepts_failed_total{JOB}[10m]) > 0",
        0,
        "{{ $labels.instance }} could not accept connections",
        "The process is out of file descriptors, or the kernel of memory for sockets.",
        (
            "`ls /proc/PID/fd | wc -l` beside `grep files /proc/PID/limits`.",
            "The log: `file_limit_low` at the start. Needed are three for each segment of each "
            "partition, and one for each connection.",
        ),
        (
            "Raise `LimitNOFILE` in the unit (`--ulimit nofile` of a container), and restart.",
            "A client that opens connections without end: find it in `ss -tn`.",
        ),
    ),
    Alert(
        "PyrklogConnectionsAtLimit",
        "warning",
        f"increase(pyrklog_connections_at_limit_total{JOB}[10m]) > 0",
        0,
        "{{ $labels.instance }} has as many connections as max.connections allows",
        "Clients wait for others to disconnect.",
        ("`ss -tn state established '( sport = :9092 )'`: who has so many?",),
        (
            "Raise `max.connections` (`pyrklog config alter broker`), or `LimitNOFILE` where half "
            "of it is the limit.",
            "Hold back a single client with `max.connections.per.ip`.",
        ),
    ),
    _of_finding(
        "PyrklogCacheThrashing",
        "warning",
        "cache_thrashing",
        10,
        "the block cache is too small",
        "Records leave the cache before their consumers come: it holds less than a minute of "
        "what is appended, and a quarter of what is sent comes from disks.",
        ("The dashboard: bytes sent by the way of reading, and the cache's size.",),
        (
            "Raise `pyrklog.cache.max.bytes`, or the memory of the host or container.",
            "Find consumers that are far behind; move partitions to other brokers.",
        ),
    ),
    _of_finding(
        "PyrklogCacheSmall",
        "info",
        "cache_small",
        15,
        "there is hardly a block cache",
        "The broker has less than 64 MiB of shared memory, or none: records are acknowledged "
        "when they are in the file, which is slower.",
        (
            "The log at the start says why. In a container that is so without `pyrklog.cache.dir`.",
            "`df -h /dev/shm`: is it too small?",
        ),
        (
            "A container: give it a directory of the host's shared memory, as its recipe says.",
            "A host: enlarge `/dev/shm`, or name another tmpfs with `pyrklog.cache.dir`.",
            "Where that is intended: `pyrklog.cache.max.bytes=0` ends the alert.",
        ),
    ),
    _of_finding(
        "PyrklogClockSkew",
        "warning",
        "clock_skew",
        5,
        "the clock is off",
        "The broker's clock and ZooKeeper's differed by more than half a second when the broker "
        "registered: retention by time and times of appends are off by so much.",
        ("`timedatectl` (or `chronyc tracking`) on the broker's and ZooKeeper's hosts.",),
        (
            "Run a time service on each host.",
            "The broker measures again when it registers: at its next start.",
        ),
    ),
    Alert(
        "PyrklogProtocolErrors",
        "info",
        f"increase(pyrklog_protocol_errors_total{JOB}[10m]) > 10",
        0,
        "{{ $labels.instance }} closes connections that do not speak Kafka's protocol",
        "Something connects again and again that is no Kafka client (a web browser, a TLS client, "
        "a port scanner, a probe of a balancer), or a client too old for this broker.",
        ("The log: `connection_refused` names the peer and what it sent or asked for.",),
        (
            "Correct, update or stop that client.",
            "A probe asks `/health/ready` at the HTTP port instead.",
        ),
    ),
    Alert(
        "PyrklogSeriesLeftOut",
        "info",
        "max by (job, instance, detail_topic, detail_group) "
        '(pyrklog_metrics_left_out_series{job=~"(detail-)?pyrklog.*"}) > 0',
        15,
        "{{ $labels.instance }} leaves {{ $value }} series out of its metrics",
        "A scrape has at most 500 series, and a topic or group in detail 5,000: alerts may miss "
        "what was left out.",
        (
            "Is it the job of the brokers, or one of `/metrics/detail` (`detail-...`)? The labels "
            "`detail_topic` and `detail_group` name what that one asks for.",
        ),
        (
            "In detail: ask for a topic, or a group with its topic.",
            "Of `/metrics`: report it.",
        ),
    ),
)

_GROUPS = (
    Alert(
        "PyrklogGroupBehind",
        "warning",
        f"max by (job, consumergroup) (pyrklog_group_lag_seconds{JOB}) > 900",
        10,
        "group {{ $labels.consumergroup }} is {{ $value }} seconds behind",
        "The group has not read records that are older than a quarter of an hour. Its consumers "
        "are too slow, stand still, or do not run. Retention may delete what they have not read.",
        (
            "`pyrklog group describe GROUP -b BROKER:9092` names partitions, members, trend and "
            "lost records.",
            "The consumers' own logs: errors, rebalances, or a slow sink.",
        ),
        (
            "Trend down: wait, it catches up.",
            "Trend up or flat with members: add consumers, up to the number of partitions.",
            "No members: start the consumers. Where nobody uses the group, "
            "`pyrklog group delete GROUP` ends the alert.",
            "A group that may be so late by design (a nightly job): leave it out of the rule.",
        ),
    ),
)

ALERTS = tuple(
    sorted(
        (*_BROKERS, *_CLUSTER, *_DISKS, *_RESOURCES, *_GROUPS),
        key=lambda one: ("critical", "warning", "info").index(one.severity),
    )
)
