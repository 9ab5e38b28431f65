from __future__ import annotations

from pyrklog.config.option import INT_MAX, integer, long, short

MEMBERS = (
    integer("group.min.session.timeout.ms", 6000, "Shortest session timeout of a group member."),
    integer("group.max.session.timeout.ms", 1800000, "Longest session timeout of a group member."),
    integer(
        "group.initial.rebalance.delay.ms",
        3000,
        "How long the first members of an empty group wait for more. The default is 0 without "
        "ZooKeeper and in pyrklog dev.",
        in_kafka="Default 3000 in any case.",
    ),
    integer("group.max.size", INT_MAX, "Most members of one consumer group.", minimum=1),
)

OFFSETS = (
    integer(
        "offset.metadata.max.bytes",
        4096,
        "Most bytes of a client's metadata with a committed offset.",
        importance="high",
    ),
    integer(
        "offsets.retention.minutes",
        10080,
        "Committed offsets expire when their group has had no members, or a lone consumer has not "
        "committed, for this long.",
        importance="high",
        minimum=1,
    ),
    long(
        "offsets.retention.check.interval.ms",
        600000,
        "How often committed offsets are checked for that.",
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
        "Bytes read at once when a partition's groups are loaded.",
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
        "Replicas of __consumer_offsets. With fewer brokers groups have no coordinator. A broker "
        "without ZooKeeper makes one replica if the option is not given.",
        importance="high",
        minimum=1,
    ),
    integer(
        "offsets.topic.segment.bytes",
        104857600,
        "Segment size of __consumer_offsets.",
        importance="high",
        minimum=1,
    ),
    integer(
        "offsets.topic.compression.codec",
        0,
        "Codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        importance="high",
        minimum=0,
        maximum=4,
    ),
)

GROUP_OPTIONS = (*MEMBERS, *OFFSETS, *OFFSETS_TOPIC)
