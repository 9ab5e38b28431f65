"""The broker's own options; those that are defaults of topic options stand in ``log_options``."""

from __future__ import annotations

from types import MappingProxyType

from pyrklog.config.option import (
    CLUSTER_WIDE,
    INT_MAX,
    LONG_MAX,
    Value,
    boolean,
    integer,
    long,
    password,
    string,
)

FETCH_READ_PATHS = ("auto", "sendfile", "copy")
AT_START = MappingProxyType({"update_mode": CLUSTER_WIDE, "at_start": True})
"""Of options that Kafka changes at run time and that act from the next start on here."""


def _at_least_or(special: int, minimum: int) -> object:
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
    integer(
        "broker.id",
        -1,
        "Number of this broker in its cluster; -1 takes the number found in the log directories, "
        "else 1.",
        importance="high",
        minimum=-1,
    ),
    integer(
        "node.id",
        -1,
        "Another name of broker.id; where both are given they must be equal.",
        importance="high",
        minimum=-1,
    ),
    string(
        "broker.rack",
        None,
        "Rack (or zone) of this broker; replicas of a partition are spread over racks.",
    ),
)

CLUSTER = (
    string(
        "zookeeper.connect",
        None,
        "ZooKeeper of the cluster that this broker belongs to: HOST:PORT[,HOST:PORT...][/CHROOT]. "
        "Without it the broker is alone, on its embedded metadata store.",
        importance="high",
    ),
    integer(
        "zookeeper.session.timeout.ms",
        6000,
        "A broker that ZooKeeper has not heard of for this long is dead. Kafka's default is 18000.",
        importance="high",
        minimum=1,
    ),
    integer(
        "zookeeper.connection.timeout.ms",
        18000,
        "How long a start waits for ZooKeeper.",
        importance="high",
        minimum=1,
    ),
    password(
        "pyrklog.zookeeper.digest",
        "USER:PASSWORD by which ZooKeeper knows this broker (its digest scheme).",
    ),
    boolean(
        "zookeeper.set.acl",
        False,
        "What this broker makes in ZooKeeper belongs to the brokers: others may read it, and not "
        "even that where secrets may lie. Needs pyrklog.zookeeper.digest or a certificate. Nodes "
        "that are there already keep their ACLs.",
        importance="high",
    ),
    boolean(
        "pyrklog.failover.watchdog",
        True,
        "A small process beside the broker ends its session with ZooKeeper when the broker dies: "
        "others lead its partitions at once, and need not wait until the session expires.",
    ),
    boolean(
        "pyrklog.failover.suspicion",
        True,
        "A broker whose port refuses connections twice, 100 ms apart, or that answers neither the "
        "controller nor another broker, is suspected before its session ends: the controller "
        "moves its leaderships to other in-sync replicas, and if it is the controller, another "
        "broker becomes it. Give all brokers the same.",
    ),
    boolean("zookeeper.ssl.client.enable", False, "Speaks TLS with ZooKeeper."),
    string(
        "zookeeper.ssl.truststore.location",
        None,
        "PEM file of the certificates that ZooKeeper's own must come from.",
    ),
    string(
        "zookeeper.ssl.keystore.location",
        None,
        "PEM file with this broker's certificate and its key, where ZooKeeper asks for one.",
    ),
    password("zookeeper.ssl.keystore.password", "Password of the key in that file."),
    string(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        "HTTPS compares ZooKeeper's name with its certificate; an empty value does not.",
        importance="low",
    ),
    boolean(
        "broker.id.generation.enable",
        True,
        "Without broker.id, a new broker of a cluster takes the next free number.",
    ),
    integer(
        "reserved.broker.max.id",
        1000,
        "Numbers that are taken that way begin behind this one.",
        minimum=0,
    ),
)

REPLICATION = (
    integer(
        "num.replica.fetchers",
        1,
        "Threads, each with a connection, that fetch from each other broker.",
        importance="high",
        minimum=1,
        maximum=1024,
        **AT_START,
    ),
    long(
        "replica.lag.time.max.ms",
        30000,
        "A follower that has not had everything for this long is not in sync any more.",
        importance="high",
        minimum=1,
    ),
    integer(
        "replica.fetch.wait.max.ms",
        500,
        "How long a follower's request waits at the leader for something new.",
        importance="high",
        minimum=1,
    ),
    integer(
        "replica.fetch.min.bytes",
        1,
        "Bytes that it waits for.",
        importance="high",
        minimum=1,
    ),
    integer(
        "replica.fetch.max.bytes",
        1048576,
        "Bytes of one partition in an answer, but for a first batch that is larger.",
        minimum=1,
    ),
    integer(
        "replica.fetch.response.max.bytes",
        10485760,
        "Bytes of a whole answer, but for a first batch that is larger.",
        minimum=1,
    ),
    integer(
        "replica.fetch.backoff.ms",
        1000,
        "How long a partition, or a leader, that failed is left alone, at most; the first pause is "
        "20 ms, each one in a row twice as long.",
        minimum=1,
    ),
    integer(
        "replica.socket.timeout.ms",
        30000,
        "How long a follower waits for an answer beyond replica.fetch.wait.max.ms.",
        importance="high",
        minimum=1,
    ),
    string(
        "replica.selector.class",
        None,
        f"{RACK_AWARE_SELECTOR} sends consumers that say client.rack to an in-sync replica in that "
        "rack (broker.rack); without it they read from leaders.",
        check=_selector,
    ),
    long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second that this broker sends to throttled replicas (KIP-73).",
        minimum=0,
        update_mode=CLUSTER_WIDE,
    ),
    long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second that this broker fetches for throttled replicas (KIP-73).",
        minimum=0,
        update_mode=CLUSTER_WIDE,
    ),
    long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "Bytes a second that replicas are moved at between log directories (KIP-113).",
        minimum=0,
        update_mode=CLUSTER_WIDE,
        effective=False,
    ),
)

PLACES = (
    string(
        "pyrklog.data.dir",
        None,
        "Directory of everything this broker keeps: logs/ (unless log.dirs says otherwise) and "
        "meta/. Default: ~/.local/share/pyrklog/default.",
        importance="high",
    ),
    string(
        "pyrklog.meta.dir",
        None,
        "Directory of the embedded metadata store and of the state-change log. Default: meta/ in "
        "pyrklog.data.dir; beside the first of log.dirs where only those are given.",
    ),
    string(
        "pyrklog.adopt.zookeeper",
        None,
        "Where to read the options of topics when the first start adopts a directory of a Kafka "
        "with ZooKeeper: HOST:PORT/CHROOT, as its zookeeper.connect. Nothing is written there.",
    ),
    string(
        "log.dir",
        None,
        "The one log directory; log.dirs has precedence.",
        importance="high",
    ),
    string(
        "log.dirs",
        None,
        "Comma-separated log directories; new partitions go to the one that holds the fewest.",
        importance="high",
    ),
)

NETWORK = (
    string(
        "listeners",
        "PLAINTEXT://127.0.0.1:9092",
        "Comma-separated NAME://HOST:PORT to listen on. An empty host is every interface; port 0 "
        "is any free port. Unlike Kafka's, the default is reachable from this machine only.",
        importance="high",
    ),
    string(
        "advertised.listeners",
        None,
        "What clients are told to connect to, listener by listener; default: the listeners "
        "themselves.",
        importance="high",
    ),
    string(
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "Security protocol of each listener name; PLAINTEXT is served in this version.",
        importance="low",
    ),
    string(
        "inter.broker.listener.name",
        None,
        "Name of the listener that other brokers use; default: the first one.",
    ),
    string(
        "controller.listener.names",
        None,
        "Listeners of a KRaft controller; they are left out, since the controller here has none.",
        importance="high",
    ),
    integer(
        "num.network.threads",
        3,
        "Threads that receive, check and append, and send replies.",
        importance="high",
        minimum=1,
        maximum=1024,
        **AT_START,
    ),
    integer(
        "num.io.threads",
        8,
        "Threads that wait for a log directory's disk on behalf of readers, each directory's own; "
        "half as many queues, by topic, share them. They start when needed.",
        importance="high",
        minimum=1,
        maximum=1024,
        **AT_START,
    ),
    integer(
        "queued.max.requests",
        500,
        "Requests of the control plane that may wait at once; beyond it their connections are "
        "not read.",
        importance="high",
        minimum=1,
    ),
    long(
        "queued.max.request.bytes",
        -1,
        "Bytes of requests that are not worked on yet, over all connections: partly received ones, "
        "and those that the control plane has; -1 = an eighth of the memory. Replies that are not "
        "read yet have the same bound.",
        check=_at_least_or(-1, 1),
    ),
    integer(
        "socket.request.max.bytes",
        104857600,
        "Largest request; a connection that announces a larger one is closed. The default is a "
        "sixteenth of the memory where that is less, but no less than 16 MiB.",
        importance="high",
        minimum=1,
    ),
    integer(
        "socket.send.buffer.bytes",
        212992,
        "SO_SNDBUF of each connection; -1 = the system's default. The default is 102400, as in "
        "Kafka, with less than 2 GiB of memory.",
        importance="high",
        check=_at_least_or(-1, 1),
    ),
    integer(
        "socket.receive.buffer.bytes",
        102400,
        "SO_RCVBUF of each connection; -1 = the system's default.",
        importance="high",
        check=_at_least_or(-1, 1),
    ),
    long(
        "connections.max.idle.ms",
        600000,
        "A connection without a request for this long is closed; negative = never.",
    ),
    integer("max.connections", INT_MAX, "Connections over all listeners.", minimum=0, **AT_START),
    # Kafka takes 0 where max.connections.per.ip.overrides lets somebody in; those have no effect
    # here, and 0 would keep everybody out, who wants to change it back among them.
    integer(
        "max.connections.per.ip", INT_MAX, "Connections from one address.", minimum=1, **AT_START
    ),
)

READING = (
    integer(
        "fetch.max.bytes",
        57671680,
        "Most bytes of one Fetch reply, whatever the client asks for.",
        minimum=1024,
    ),
    integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "Incremental fetch sessions kept at once.",
        minimum=0,
    ),
    string(
        "fetch.read.path",
        "auto",
        "How bytes of files reach the socket: copy, sendfile, or auto (small replies copied, large "
        "ones by sendfile, old data past the page cache).",
        choices=FETCH_READ_PATHS,
    ),
)

STORAGE = (
    long(
        "pyrklog.unwritten.max.bytes",
        -1,
        "Appended bytes of one log directory that may wait for the disk; beyond it producers to "
        "that directory wait. -1 stands for half of its block cache; outside the cache it is "
        "64 MiB at most.",
        minimum=-1,
    ),
    string(
        "pyrklog.cache.dir",
        None,
        "Where the block cache is kept: a directory in shared memory. Unset: /dev/shm, and none in "
        "a container.",
    ),
    long(
        "pyrklog.cache.max.bytes",
        -1,
        "The most memory that the block cache takes, over all log directories; 0 switches it off, "
        "-1 stands for 60 percent of the machine's memory, or of the limit of its memory group "
        "(cgroup) where that is less; of less than 1.1 GB for what lies beyond 448 MB, and for an "
        "eighth at least.",
        minimum=-1,
    ),
    boolean(
        "pyrklog.cache.keep",
        True,
        "An orderly end leaves the block cache in memory, and the next start on the same boot of "
        "the machine serves from it. It keeps half of what would be free without it at most; "
        "`pyrklog arena list` shows it, `pyrklog arena drop LOG_DIR` removes it.",
    ),
    boolean(
        "pyrklog.cache.drop",
        False,
        "Starts without what the last orderly end left of the block cache, and frees its memory.",
    ),
    integer(
        "pyrklog.cache.flush.bytes",
        1048576,
        "A partition's records go from the block cache to its file when there are so many bytes.",
        minimum=1,
    ),
    integer(
        "pyrklog.cache.flush.ms",
        500,
        "Fewer bytes of a partition stay in the block cache alone for at most this long; for a "
        "fifth of it where few partitions wait, and up to four times as long where thousands do.",
        minimum=0,
    ),
    integer(
        "pyrklog.cache.direct.min.bytes",
        65536,
        "So many bytes of the block cache and more are written around the operating system's page "
        "cache, where the file system can do that; a larger number than any write switches it off.",
        minimum=1,
    ),
    integer(
        "pyrklog.writer.threads.per.data.dir",
        8,
        "Threads that write records to files, for each log directory. One does it where few "
        "partitions are due at a time; the others help where many are, each with a little.",
        minimum=1,
        maximum=64,
    ),
    integer(
        "num.recovery.threads.per.data.dir",
        16,
        "Threads that open and recover logs at start, for each log directory. They mostly wait for "
        "the disk, so that more of them than Kafka's one help on any machine.",
        importance="high",
        minimum=1,
        maximum=256,
        **AT_START,
    ),
    integer(
        "log.flush.offset.checkpoint.interval.ms",
        60000,
        "How often recovery points are written.",
        importance="high",
        minimum=0,
    ),
    integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60000,
        "How often log start offsets are written.",
        importance="high",
        minimum=0,
    ),
    long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "How often high watermarks are written.",
        importance="high",
        minimum=1,
    ),
    long(
        "log.retention.check.interval.ms",
        300000,
        "How often logs are searched for segments to delete.",
        minimum=1,
    ),
    integer(
        "producer.id.expiration.ms",
        86400000,
        "A producer's state is forgotten when it has written nothing for this long.",
        importance="low",
        minimum=1,
        **AT_START,
    ),
)

TOPICS = (
    integer(
        "num.partitions",
        1,
        "Partitions of a topic that is created without a number.",
        minimum=1,
    ),
    integer(
        "default.replication.factor",
        1,
        "Replicas of a topic that is created without a number.",
        minimum=1,
        maximum=32767,
    ),
    boolean(
        "auto.create.topics.enable",
        True,
        "A Metadata request that names a missing topic creates it.",
        importance="high",
    ),
    boolean("delete.topic.enable", True, "Topics may be deleted.", importance="high"),
    boolean(
        "auto.leader.rebalance.enable",
        True,
        "Leadership goes back to the preferred replicas from time to time.",
        importance="high",
    ),
    long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often leadership is looked at.",
        importance="high",
        minimum=1,
    ),
    integer(
        "leader.imbalance.per.broker.percentage",
        10,
        "Share of a broker's preferred partitions that others may lead.",
        importance="high",
        minimum=0,
    ),
    integer(
        "min.insync.replicas",
        1,
        "In-sync replicas that acks=all needs; default of the topic option.",
        importance="high",
        minimum=1,
        update_mode=CLUSTER_WIDE,
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        "A replica that is not in sync may lead when no other lives; default of the topic option.",
        importance="high",
        update_mode=CLUSTER_WIDE,
    ),
)

BROKER_OPTIONS = (*IDENTITY, *CLUSTER, *REPLICATION, *PLACES, *NETWORK, *READING, *STORAGE, *TOPICS)
