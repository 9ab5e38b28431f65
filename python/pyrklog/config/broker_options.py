"""The broker's own options; ``log_options`` has the defaults of topic options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pyrklog.config.connection_overrides import ALLOWED, wrong_with_overrides
from pyrklog.config.http_place import ALLOWED as HTTP_ALLOWED
from pyrklog.config.http_place import NAME as HTTP_LISTENER
from pyrklog.config.http_place import wrong_with_place
from pyrklog.config.option import (
    CLUSTER_WIDE,
    DOUBLE_MAX,
    INT_MAX,
    LONG_MAX,
    Value,
    boolean,
    double,
    integer,
    long,
    password,
    string,
)

FETCH_READ_PATHS = ("auto", "sendfile", "copy")
AT_START: Mapping[str, Any] = MappingProxyType({"update_mode": CLUSTER_WIDE, "at_start": True})
"""Kafka changes these options at run time; here they act from the next start on."""


def _at_least_or(special: int, minimum: int) -> Callable[[Value], str | None]:
    def check(value: Value) -> str | None:
        if value == special or (isinstance(value, int) and value >= minimum):
            return None
        return f"must be {special} or at least {minimum}"

    return check


RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_SELECTORS = ("", RACK_AWARE_SELECTOR, "org.apache.kafka.common.replica.LeaderSelector")


def _selector(value: Value) -> str | None:
    if value in _SELECTORS:
        return None
    return f"must be one of {', '.join(_SELECTORS[1:])}: classes cannot be loaded here"


IDENTITY = (
    integer("broker.id", -1, importance="high", minimum=-1).described(
        "Number of this broker in its cluster; -1 = the one found in the log directories, else 1."
    ),
    integer("node.id", -1, importance="high", minimum=-1).described(
        "Another name of broker.id; if both are given they must be equal."
    ),
    string("broker.rack", None).described(
        "Rack (or zone) of this broker; replicas of a partition are spread over racks."
    ),
)

CLUSTER = (
    string("zookeeper.connect", None, importance="high").described(
        "ZooKeeper of the cluster that this broker belongs to: HOST:PORT[,HOST:PORT...][/CHROOT]. "
        "Unset: the broker is alone, with an embedded metadata store."
    ),
    integer("zookeeper.session.timeout.ms", 6000, importance="high", minimum=1).described(
        "A broker that ZooKeeper has not heard of for this long is dead.", in_kafka="Default 18000."
    ),
    integer("zookeeper.connection.timeout.ms", 18000, importance="high", minimum=1).described(
        "How long a start waits for ZooKeeper.", in_kafka="Default: zookeeper.session.timeout.ms."
    ),
    password(
        "pyrklog.zookeeper.digest", "USER:PASSWORD of this broker at ZooKeeper (digest scheme)."
    ),
    boolean("zookeeper.set.acl", False, importance="high").described(
        "Nodes that this broker makes in ZooKeeper belong to the brokers: others may read them, "
        "except where secrets may lie. Needs pyrklog.zookeeper.digest or a certificate. Existing "
        "nodes keep their ACLs."
    ),
    boolean("pyrklog.failover.watchdog", True).described(
        "A small process beside the broker ends its ZooKeeper session when the broker dies, so "
        "that others lead its partitions at once."
    ),
    boolean("pyrklog.failover.suspicion", True).described(
        "A broker is suspected before its session ends if its port refuses connections twice, 100 "
        "ms apart, or if it answers neither the controller nor another broker. Other in-sync "
        "replicas then lead its partitions, and another broker becomes controller if it was. Give "
        "all brokers the same value."
    ),
    boolean("zookeeper.ssl.client.enable", False).described("Use TLS with ZooKeeper."),
    string("zookeeper.ssl.truststore.location", None).described(
        "PEM file of the certificates to trust."
    ),
    string("zookeeper.ssl.keystore.location", None).described(
        "PEM file with this broker's certificate and key, if ZooKeeper asks for them."
    ),
    password("zookeeper.ssl.keystore.password", "Password of the key in that file."),
    string("zookeeper.ssl.endpoint.identification.algorithm", "HTTPS", importance="low").described(
        "HTTPS compares ZooKeeper's name with its certificate; an empty value does not."
    ),
    boolean("broker.id.generation.enable", True).described(
        "A new broker of a cluster without broker.id takes the next free number."
    ),
    integer("reserved.broker.max.id", 1000, minimum=0).described(
        "Such numbers begin after this one."
    ),
)

REPLICATION = (
    integer(
        "num.replica.fetchers", 1, importance="high", minimum=1, maximum=1024, **AT_START
    ).described(
        "Threads that fetch from each other broker, a connection each; as many again for replicas "
        "that are not in sync yet."
    ),
    long("replica.lag.time.max.ms", 30000, importance="high", minimum=1).described(
        "A follower that was not caught up for this long leaves the in-sync replicas."
    ),
    integer("replica.fetch.wait.max.ms", 500, importance="high", minimum=1).described(
        "How long a follower's request waits at the leader for new records.",
        in_kafka="0 is allowed.",
    ),
    integer("replica.fetch.min.bytes", 1, importance="high", minimum=1).described(
        "Bytes that a follower's request waits for.",
        in_kafka="0 is allowed.",
    ),
    integer("replica.fetch.max.bytes", 1048576, minimum=1).described(
        "Bytes of one partition in an answer; a larger first batch is sent whole.",
        in_kafka="0 is allowed.",
    ),
    integer("replica.fetch.response.max.bytes", 10485760, minimum=1).described(
        "Bytes of a whole answer; a larger first batch is sent whole.",
        in_kafka="0 is allowed.",
    ),
    integer("replica.fetch.backoff.ms", 1000, minimum=1).described(
        "Longest pause after a partition or leader failed; the first is 20 ms, each next one twice "
        "as long.",
        in_kafka="A fixed pause; 0 is allowed.",
    ),
    integer("replica.socket.timeout.ms", 30000, importance="high", minimum=1).described(
        "How long a follower waits for an answer beyond replica.fetch.wait.max.ms."
    ),
    long("pyrklog.expansion.rate", 20_000_000, minimum=0, update_mode=CLUSTER_WIDE).described(
        "Bytes a second that this broker fetches of older records, for replicas that started at "
        "their leaders' ends. 0 = none: such replicas wait until retention has deleted them."
    ),
    long("pyrklog.expansion.window.ms", 600_000, minimum=1_000, maximum=1_200_000).described(
        "`cluster expand --promote` deletes records that new replicas lack only if no consumer has "
        "fetched them for so long."
    ),
    string(
        "replica.selector.class",
        None,
        check=_selector,
        check_allows=", ".join(name.rpartition(".")[2] for name in _SELECTORS[1:]),
    ).described(
        f"{RACK_AWARE_SELECTOR} sends consumers with client.rack to an in-sync replica in that "
        "rack (broker.rack). Unset: consumers read from leaders.",
        in_kafka="Any class.",
    ),
    long(
        "leader.replication.throttled.rate", LONG_MAX, minimum=0, update_mode=CLUSTER_WIDE
    ).described("Bytes a second that this broker sends to throttled replicas (KIP-73)."),
    long(
        "follower.replication.throttled.rate", LONG_MAX, minimum=0, update_mode=CLUSTER_WIDE
    ).described("Bytes a second that this broker fetches for throttled replicas (KIP-73)."),
    integer("replication.quota.window.num", 11, importance="low", minimum=1).described(
        "These rates are averages over so many samples but one."
    ),
    integer("replication.quota.window.size.seconds", 1, importance="low", minimum=1).described(
        "Length of such a sample. A new rate begins with one second's worth."
    ),
    long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        minimum=0,
        update_mode=CLUSTER_WIDE,
    ).described("Bytes a second that replicas are moved at between log directories (KIP-113)."),
    integer(
        "alter.log.dirs.replication.quota.window.num", 11, importance="low", minimum=1
    ).described("This rate is an average over so many samples but one."),
    integer(
        "alter.log.dirs.replication.quota.window.size.seconds", 1, importance="low", minimum=1
    ).described("Length of such a sample. A new rate begins with one second's worth."),
    integer("num.replica.alter.log.dirs.threads", None, importance="high", minimum=1).described(
        "Threads that move replicas between log directories. Default: as many as directories."
    ),
)

PLACES = (
    string("pyrklog.data.dir", None, importance="high").described(
        "Directory of this broker's data: logs/ (unless log.dirs is given) and meta/. Default: "
        "pyrklog/default below $XDG_DATA_HOME, or below ~/.local/share."
    ),
    string("pyrklog.meta.dir", None).described(
        "Directory of the embedded metadata store, the state-change log and the histories of log "
        "ends. Default: meta/ in pyrklog.data.dir; beside the first of log.dirs if only that is "
        "given."
    ),
    string("pyrklog.adopt.zookeeper", None).described(
        "ZooKeeper (HOST:PORT/CHROOT) whose topic options are read when the first start adopts a "
        "directory of Kafka in ZooKeeper mode. Nothing is written there."
    ),
    string("log.dir", None, importance="high").described(
        "The one log directory; log.dirs has precedence.", in_kafka="Default /tmp/kafka-logs."
    ),
    string("log.dirs", None, importance="high").described(
        "Comma-separated log directories; new partitions go to the one with the fewest."
    ),
)

NETWORK = (
    string("listeners", "PLAINTEXT://127.0.0.1:9092", importance="high").described(
        "Comma-separated NAME://HOST:PORT to listen on. An empty host is every interface; port 0 "
        "is any free port.",
        in_kafka="Default PLAINTEXT://:9092, every interface.",
    ),
    string("advertised.listeners", None, importance="high").described(
        "Addresses that clients are told to connect to; default: the listeners. Clients of a "
        "listener that is left out are served, but told of no broker."
    ),
    string(
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        importance="low",
    ).described("Security protocol of each listener name. Only PLAINTEXT is served."),
    string("inter.broker.listener.name", None).described(
        "Name of the listener that other brokers use; default: see security.inter.broker.protocol."
    ),
    string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ).described(
        "Without inter.broker.listener.name other brokers use the listener of this name; without "
        "one of the default's name, the first that is advertised.",
        in_kafka="Without such a listener the broker does not start.",
    ),
    string(HTTP_LISTENER, None, check=wrong_with_place, check_allows=HTTP_ALLOWED).described(
        "Where metrics and health are served over HTTP, to anybody who reaches it; an empty host "
        "is every interface, port 0 any free port. Unset: 127.0.0.1, the port of the first of "
        "listeners + 100, or a hundred more where a listener has that one."
    ),
    string("controller.listener.names", None, importance="high").described(
        "Listeners of a KRaft controller: left out."
    ),
    integer(
        "num.network.threads", 3, importance="high", minimum=1, maximum=1024, **AT_START
    ).described(
        "Threads that receive requests, check and append records, and send replies.",
        in_kafka="These threads receive and send only.",
    ),
    integer(
        "num.io.threads", 8, importance="high", minimum=1, maximum=1024, update_mode=CLUSTER_WIDE
    ).described(
        "Threads of each log directory that wait for its disk on behalf of readers. They start "
        "when needed; half as many queues, by topic, as there were threads at the start share "
        "them.",
        in_kafka="Threads that serve all requests.",
    ),
    integer("queued.max.requests", 500, importance="high", minimum=1).described(
        "Requests of the control plane that may wait at once; further ones wait in their "
        "connections.",
        in_kafka="Counts all requests.",
    ),
    long("queued.max.request.bytes", -1).described(
        "Bytes of requests that are partly received or at the control plane, over all connections; "
        "0 and less = an eighth of the memory. Unread replies have the same bound.",
        in_kafka="0 and less = no bound; less than socket.request.max.bytes ends the start.",
    ),
    integer("socket.request.max.bytes", 104857600, importance="high", minimum=1).described(
        "Largest request; a larger one closes its connection. The default is a sixteenth of the "
        "memory if that is less, but at least 16 MiB.",
        in_kafka="The default does not depend on the memory.",
    ),
    integer("max.request.partition.size.limit", 2000, minimum=1).described(
        "Most partitions of one answer to DescribeTopicPartitions; clients ask for the rest."
    ),
    integer(
        "socket.send.buffer.bytes",
        212992,
        importance="high",
        check=_at_least_or(-1, 1),
        check_allows="-1, ≥ 1",
    ).described(
        "SO_SNDBUF of each connection; -1 = the system's default. The default is 102400 with less "
        "than 2 GiB of memory.",
        in_kafka="Default 102400.",
    ),
    integer(
        "socket.receive.buffer.bytes",
        102400,
        importance="high",
        check=_at_least_or(-1, 1),
        check_allows="-1, ≥ 1",
    ).described("SO_RCVBUF of each connection; -1 = the system's default."),
    long("connections.max.idle.ms", 600000).described(
        "A connection that is idle for this long is closed; negative = never."
    ),
    integer("max.connections", INT_MAX, minimum=0, update_mode=CLUSTER_WIDE).described(
        "Connections over all listeners; behind `listener.name.NAME.` those of one. With lower "
        "limits existing connections stay. 0 = none may come; only at a start."
    ),
    integer("max.connections.per.ip", INT_MAX, minimum=0, update_mode=CLUSTER_WIDE).described(
        "Connections from one address; 0 only with max.connections.per.ip.overrides."
    ),
    string(
        "max.connections.per.ip.overrides",
        "",
        check=wrong_with_overrides,
        check_allows=ALLOWED,
        update_mode=CLUSTER_WIDE,
    ).described(
        "Connections from addresses with a limit of their own. Names are resolved at the start "
        "and at each change of the broker's options."
    ),
    integer("max.connection.creation.rate", INT_MAX, minimum=0, update_mode=CLUSTER_WIDE).described(
        "New connections a second over all listeners but the brokers' own; behind "
        "`listener.name.NAME.` those of one. Further ones wait. 0, only at a start, counts as 1."
    ),
    integer("telemetry.max.bytes", 1048576, importance="low", minimum=1).described(
        "Most bytes, compressed or not, of metrics that a client pushes at once (KIP-714); they "
        "may expand to twice as many. More than 15 MiB counts as 15 MiB.",
        in_kafka="No bound on the expansion.",
    ),
)

READING = (
    integer("fetch.max.bytes", 57671680, minimum=1024).described("Most bytes of one Fetch reply."),
    integer("max.incremental.fetch.session.cache.slots", 1000, minimum=0).described(
        "Incremental fetch sessions kept at once."
    ),
    string("fetch.read.path", "auto", choices=FETCH_READ_PATHS).described(
        "How bytes of files reach the socket: copied, by sendfile, or auto (small replies copied, "
        "large ones by sendfile, old data past the page cache)."
    ),
)

STORAGE = (
    long("pyrklog.unwritten.max.bytes", -1, minimum=-1).described(
        "Appended bytes of a log directory that may wait for the disk; beyond it its producers "
        "wait. -1 = half of its block cache; outside the cache 64 MiB at most."
    ),
    string("pyrklog.cache.dir", None).described(
        "Directory of the block cache, in shared memory. Unset: /dev/shm; in a container no block "
        "cache."
    ),
    long("pyrklog.cache.max.bytes", -1, minimum=-1).described(
        "Most memory of the block cache, over all log directories. 0 = no block cache; -1 = 60 % "
        "of the machine's memory or the limit of its memory group (cgroup), the smaller; below "
        "1.1 GB what exceeds 448 MB, at least an eighth."
    ),
    boolean("pyrklog.cache.keep", True).described(
        "An orderly end leaves the block cache in memory, at most half of what would be free "
        "without it; the next start before a reboot serves from it. `pyrklog arena list` shows it, "
        "`pyrklog arena drop LOG_DIR` removes it."
    ),
    boolean("pyrklog.cache.drop", False).described(
        "Start without the block cache that the last orderly end left, and free its memory."
    ),
    long("pyrklog.lag.history.max.bytes", 33554432, minimum=0).described(
        "Most memory of the histories that tell consumer lag in seconds, half for log ends, half "
        "for the past lag of groups; on the disk twice as much. 0 = lag in records only, no past "
        "lag."
    ),
    integer("pyrklog.cache.flush.bytes", 1048576, minimum=1).described(
        "A partition's records are written from the block cache to its file once there are so many "
        "bytes."
    ),
    integer("pyrklog.cache.flush.ms", 500, minimum=0).described(
        "Fewer bytes of a partition are written after this time; after a fifth of it if few "
        "partitions wait."
    ),
    integer("pyrklog.cache.direct.min.bytes", 65536, minimum=1).described(
        "Writes of so many bytes and more go around the operating system's page cache, if the file "
        "system can do that. A larger number than any write switches it off."
    ),
    integer("pyrklog.writer.threads.per.data.dir", 8, minimum=1, maximum=64).described(
        "Threads of each log directory that write records to files. Where few partitions are due, "
        "one does the work."
    ),
    integer(
        "num.recovery.threads.per.data.dir",
        16,
        importance="high",
        minimum=1,
        maximum=256,
        update_mode=CLUSTER_WIDE,
    ).described(
        "Threads of each log directory that open and recover logs at start. They mostly wait for "
        "the disk.",
        in_kafka="Default 1.",
    ),
    integer(
        "log.flush.offset.checkpoint.interval.ms", 60000, importance="high", minimum=0
    ).described("How often recovery points are written."),
    integer(
        "log.flush.start.offset.checkpoint.interval.ms", 60000, importance="high", minimum=0
    ).described("How often log start offsets are written."),
    long(
        "replica.high.watermark.checkpoint.interval.ms", 5000, importance="high", minimum=1
    ).described("How often high watermarks are written."),
    long("log.retention.check.interval.ms", 300000, minimum=1).described(
        "How often logs are searched for segments to delete."
    ),
    boolean("log.cleaner.enable", True).described("Whether logs are compacted."),
    integer("log.cleaner.threads", 1, minimum=0, update_mode=CLUSTER_WIDE).described(
        "Threads that compact logs, for all log directories."
    ),
    long(
        "log.cleaner.dedupe.buffer.size", 134217728, minimum=0, update_mode=CLUSTER_WIDE
    ).described(
        "Memory that all of these threads may take for keys, 24 bytes each; more than 1 MiB for "
        "each thread.",
        in_kafka="The memory is taken at the start.",
    ),
    double(
        "log.cleaner.io.buffer.load.factor", 0.9, importance="low", update_mode=CLUSTER_WIDE
    ).described("How full that memory may get; what does not fit is compacted later."),
    double("log.cleaner.io.max.bytes.per.second", DOUBLE_MAX, update_mode=CLUSTER_WIDE).described(
        "Bytes that these threads together read and write in a second."
    ),
    long("log.cleaner.backoff.ms", 15000, minimum=0, update_mode=CLUSTER_WIDE).described(
        "Pause of a thread that finds nothing to compact."
    ),
    integer(
        "producer.id.expiration.ms",
        86400000,
        importance="low",
        minimum=1,
        update_mode=CLUSTER_WIDE,
    ).described("A producer's state is forgotten after this time without a batch."),
)

TOPICS = (
    integer("num.partitions", 1, minimum=1).described(
        "Partitions of a topic created without a number."
    ),
    integer("default.replication.factor", 1, minimum=1, maximum=32767).described(
        "Replicas of a topic created without a number."
    ),
    boolean("auto.create.topics.enable", True, importance="high").described(
        "A Metadata request that names a missing topic creates it."
    ),
    boolean("delete.topic.enable", True, importance="high").described("Topics may be deleted."),
    boolean("auto.leader.rebalance.enable", True, importance="high").described(
        "Leadership returns to preferred replicas periodically."
    ),
    long("leader.imbalance.check.interval.seconds", 300, importance="high", minimum=1).described(
        "How often leadership is checked for that."
    ),
    integer("leader.imbalance.per.broker.percentage", 10, importance="high", minimum=0).described(
        "Percentage of a broker's preferred partitions that others may lead."
    ),
    integer(
        "min.insync.replicas", 1, importance="high", minimum=1, update_mode=CLUSTER_WIDE
    ).described("In-sync replicas that acks=all needs."),
    boolean(
        "unclean.leader.election.enable", False, importance="high", update_mode=CLUSTER_WIDE
    ).described("A replica that is not in sync may lead when no other lives."),
)

BROKER_OPTIONS = (*IDENTITY, *CLUSTER, *REPLICATION, *PLACES, *NETWORK, *READING, *STORAGE, *TOPICS)
