"""Options of consumer groups and of ``__consumer_offsets``, which keeps their state."""

from __future__ import annotations

from pyrklog.config.option import INT_MAX, integer, long, short

MEMBERS = (
    integer(
        "group.min.session.timeout.ms",
        6000,
        "Shortest session time-out that a member of a consumer group may ask for.",
    ),
    integer(
        "group.max.session.timeout.ms",
        1800000,
        "Longest session time-out that a member of a consumer group may ask for.",
    ),
    integer(
        "group.initial.rebalance.delay.ms",
        3000,
        "How long the first members of an empty group wait for more before it begins. The default "
        "of a broker without ZooKeeper, and of pyrklog dev, is 0: there a consumer mostly comes "
        "alone, and is not to wait.",
    ),
    integer("group.max.size", INT_MAX, "Most members of one consumer group.", minimum=1),
)

OFFSETS = (
    integer(
        "offset.metadata.max.bytes",
        4096,
        "Longest note that a client may keep with a committed offset.",
        importance="high",
    ),
    integer(
        "offsets.retention.minutes",
        10080,
        "Committed offsets are forgotten when their group has been without members, or a lone "
        "consumer has not committed, for this long.",
        importance="high",
        minimum=1,
    ),
    long(
        "offsets.retention.check.interval.ms",
        600000,
        "How often committed offsets are searched for those to forget.",
        importance="high",
        minimum=1,
    ),
    integer(
        "offsets.commit.timeout.ms",
        5000,
        "How long a commit waits for the in-sync replicas.",
        importance="high",
        minimum=1,
    ),
    integer(
        "offsets.load.buffer.size",
        5242880,
        "Bytes read at once when the groups of a partition are loaded.",
        importance="high",
        minimum=1,
    ),
)

OFFSETS_TOPIC = (
    integer(
        "offsets.topic.num.partitions",
        50,
        "Partitions of __consumer_offsets; do not change it once the topic exists.",
        importance="high",
        minimum=1,
    ),
    short(
        "offsets.topic.replication.factor",
        3,
        "Replicas of __consumer_offsets. With fewer brokers groups have no coordinator, unless the "
        "broker runs without ZooKeeper and the option is not given: then there is one replica.",
        importance="high",
        minimum=1,
    ),
    integer(
        "offsets.topic.segment.bytes",
        104857600,
        "Segment size of __consumer_offsets, which bounds how long groups take to load.",
        importance="high",
        minimum=1,
    ),
    integer(
        "offsets.topic.compression.codec",
        0,
        "Compression of what the broker writes to __consumer_offsets: 0 none, 1 gzip, 2 snappy, "
        "3 lz4, 4 zstd.",
        importance="high",
        minimum=0,
        maximum=4,
    ),
)

GROUP_OPTIONS = (*MEMBERS, *OFFSETS, *OFFSETS_TOPIC)
