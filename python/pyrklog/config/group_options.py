from __future__ import annotations

from pyrklog.config.option import INT_MAX, integer, long, short

MEMBERS = (
    integer("group.min.session.timeout.ms", 6000).described(
        "Shortest session timeout of a group member."
    ),
    integer("group.max.session.timeout.ms", 1800000).described(
        "Longest session timeout of a group member."
    ),
    integer("group.initial.rebalance.delay.ms", 3000).described(
        "How long the first members of an empty group wait for more. The default is 0 without "
        "ZooKeeper and in pyrklog dev.",
        in_kafka="Default 3000 in any case.",
    ),
    integer("group.max.size", INT_MAX, minimum=1).described("Most members of one consumer group."),
)

OFFSETS = (
    integer("offset.metadata.max.bytes", 4096, importance="high").described(
        "Most bytes of a client's metadata with a committed offset."
    ),
    integer("offsets.retention.minutes", 10080, importance="high", minimum=1).described(
        "Committed offsets expire when their group has had no members, or a lone consumer has not "
        "committed, for this long."
    ),
    long("offsets.retention.check.interval.ms", 600000, importance="high", minimum=1).described(
        "How often committed offsets are checked for that."
    ),
    integer("offsets.commit.timeout.ms", 5000, importance="high", minimum=1).described(
        "How long a commit waits for the in-sync replicas."
    ),
    integer("offsets.load.buffer.size", 5242880, importance="high", minimum=1).described(
        "Bytes read at once when a partition's groups are loaded."
    ),
)

OFFSETS_TOPIC = (
    integer("offsets.topic.num.partitions", 50, importance="high", minimum=1).described(
        "Partitions of __consumer_offsets; do not change it once the topic exists."
    ),
    short("offsets.topic.replication.factor", 3, importance="high", minimum=1).described(
        "Replicas of __consumer_offsets. With fewer brokers groups have no coordinator. A broker "
        "without ZooKeeper makes one replica if the option is not given."
    ),
    integer("offsets.topic.segment.bytes", 104857600, importance="high", minimum=1).described(
        "Segment size of __consumer_offsets."
    ),
    integer(
        "offsets.topic.compression.codec", 0, importance="high", minimum=0, maximum=4
    ).described("Codec of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
)

GROUP_OPTIONS = (*MEMBERS, *OFFSETS, *OFFSETS_TOPIC)
