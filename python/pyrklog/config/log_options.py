"""Topic options, and the broker options that are their defaults.

Each topic option names its fallback broker options, the strongest first, with the factor between
their units (hours to milliseconds). The first fallback may change at run time for the whole
cluster.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pyrklog.config.option import (
    CLUSTER_WIDE,
    INT_MAX,
    LONG_MAX,
    Option,
    Value,
    boolean,
    double,
    integer,
    items,
    long,
    string,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CLEANUP_POLICIES = ("compact", "delete")
_METADATA_VERSION = re.compile(
    r"(0\.8\.[0-2]|0\.9\.0|0\.10\.[0-2]|0\.11\.0|1\.[01]|2\.[0-8]|3\.\d)(-IV\d+|\.\d+)*"
)
RETENTION_ZERO = "must be -1 (never), or at least 1; 0 would delete the records of every topic"


class Fallback(NamedTuple):
    name: str
    factor: int = 1


class TopicOption(NamedTuple):
    """A topic option and its fallbacks; without any, no broker option changes its default."""

    option: Option
    fallbacks: tuple[Fallback, ...] = ()


def _throttled(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if value == ("*",):
        return None
    for item in value:
        partition, colon, broker = item.partition(":")
        if not (colon and _is_number(partition) and _is_number(broker)):
            return (
                "{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= INT_MAX


def _retention_of_broker(value: Value) -> str | None:
    """As in Kafka, 0 is allowed for one topic, but not as the default of all."""
    return RETENTION_ZERO if value == 0 else None


def _gzip_level(value: Value) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return "Value must be between 1 and 9 or equal to -1"


def _version_of_kafka(value: Value) -> str | None:
    if _METADATA_VERSION.fullmatch(str(value)):
        return None
    return f"Version {value} is not a valid version"


_TOPIC_DEFAULTS = (
    integer("log.segment.bytes", 1073741824, importance="high", minimum=14).described(
        "Size at which a segment is closed and a new one begun."
    ),
    long("log.roll.ms", None, importance="high", minimum=1).described(
        "Age at which a segment is closed; default: log.roll.hours."
    ),
    integer("log.roll.hours", 168, importance="high", minimum=1).described(
        "Age in hours at which a segment is closed."
    ),
    long("log.roll.jitter.ms", None, importance="high", minimum=0).described(
        "Random time taken off the age, so that segments do not all close at once."
    ),
    integer("log.roll.jitter.hours", 0, importance="high", minimum=0).described(
        "Random time in hours taken off the age; log.roll.jitter.ms has precedence."
    ),
    integer("log.index.size.max.bytes", 10485760, minimum=4).described(
        "Size at which a full index closes its segment."
    ),
    integer("log.index.interval.bytes", 4096, minimum=0).described(
        "Bytes of log between two index entries."
    ),
    long("log.flush.interval.messages", LONG_MAX, importance="high", minimum=1).described(
        "A log is synced after so many records, before they are acknowledged."
    ),
    long("log.flush.interval.ms", None, importance="high", minimum=0).described(
        "Longest time that a record stays unsynced; default: log.flush.scheduler.interval.ms."
    ),
    long("log.flush.scheduler.interval.ms", LONG_MAX, importance="high", minimum=1).described(
        "Default of log.flush.interval.ms."
    ),
    long("log.retention.bytes", -1, importance="high").described(
        "Size of a partition beyond which its oldest segments are deleted; -1 = no limit."
    ),
    long(
        "log.retention.ms",
        None,
        importance="high",
        check=_retention_of_broker,
        check_allows="not 0",
    ).described("Age at which records are deleted; default: log.retention.minutes; -1 = never."),
    integer("log.retention.minutes", None, importance="high").described(
        "Age in minutes at which records are deleted; default: log.retention.hours."
    ),
    integer("log.retention.hours", 168, importance="high").described(
        "Age in hours at which records are deleted; negative = never."
    ),
    integer("message.max.bytes", 1048588, importance="high", minimum=0).described(
        "Largest batch that is accepted."
    ),
    items("log.cleanup.policy", ("delete",), choices=CLEANUP_POLICIES).described(
        "What happens to old records: delete (by time and size), compact (keep the last of each "
        "key), or both."
    ),
    long("log.segment.delete.delay.ms", 60000, importance="high", minimum=0).described(
        "How long a deleted segment's file is kept."
    ),
    string("compression.type", "producer", importance="high", choices=COMPRESSION_TYPES).described(
        "How batches are stored: as the producer sent them, or recompressed with the named codec."
    ),
    string("log.message.timestamp.type", "CreateTime", choices=TIMESTAMP_TYPES).described(
        "Whose clock stamps records: the producer's (CreateTime) or the broker's."
    ),
    long("log.message.timestamp.before.max.ms", LONG_MAX, minimum=0).described(
        "How far a producer's timestamp may lie in the past."
    ),
    long("log.message.timestamp.after.max.ms", LONG_MAX, minimum=0).described(
        "How far a producer's timestamp may lie in the future."
    ),
    long("log.message.timestamp.difference.max.ms", LONG_MAX, minimum=0).described(
        "Older form of the two bounds above, used if they are not given."
    ),
    integer("compression.gzip.level", -1, check=_gzip_level, check_allows="-1, 1 to 9").described(
        "Level of gzip where the broker compresses; -1 = 6."
    ),
    integer("compression.lz4.level", 9, minimum=1, maximum=17).described(
        "Level of lz4 where the broker compresses: 9 is fast, any other searches for longer "
        "matches; those from 10 on are the same."
    ),
    integer("compression.zstd.level", 3, minimum=-131072, maximum=22).described(
        "Level of zstd where the broker compresses. Above 14 a batch of more than 256 KiB gets "
        "smaller tables than zstd's own."
    ),
    long("log.cleaner.delete.retention.ms", 86400000, minimum=0).described(
        "How long compaction keeps tombstones and transaction markers after it first met them."
    ),
    long("log.local.retention.bytes", -2, minimum=-2, effective=False).described(
        "Size kept here when older segments lie in remote storage."
    ),
    long("log.local.retention.ms", -2, minimum=-2, effective=False).described(
        "Age kept here when older segments lie in remote storage."
    ),
    long("log.cleaner.max.compaction.lag.ms", LONG_MAX, minimum=1).described(
        "Longest time that a record stays uncompacted."
    ),
    boolean("log.message.downconversion.enable", True, importance="low").described(
        "Whether consumers without record batches (before 0.11) get converted ones, else an error."
    ),
    string(
        "log.message.format.version",
        "3.0-IV1",
        check=_version_of_kafka,
        check_allows="a version of Kafka",
        effective=False,
    ).described("Version of the record format; only the current one exists here."),
    double("log.cleaner.min.cleanable.ratio", 0.5, minimum=0, maximum=1).described(
        "Share of a log that must be uncompacted before compaction starts."
    ),
    long("log.cleaner.min.compaction.lag.ms", 0, minimum=0).described(
        "Shortest time that a record stays uncompacted."
    ),
    boolean("log.preallocate", False, effective=False).described(
        "Whether a segment's file gets its full size at once."
    ),
)

_BY_NAME = {option.name: option for option in _TOPIC_DEFAULTS}


def _as_broker(name: str, broker_name: str) -> TopicOption:
    """A topic option with the type, default, bounds and text of the broker option behind it."""
    option = _BY_NAME[broker_name]._replace(name=name, importance="medium")
    return TopicOption(option, (Fallback(broker_name),))


TOPIC_OPTIONS = (
    _as_broker("cleanup.policy", "log.cleanup.policy"),
    _as_broker("compression.type", "compression.type"),
    _as_broker("compression.gzip.level", "compression.gzip.level"),
    _as_broker("compression.lz4.level", "compression.lz4.level"),
    _as_broker("compression.zstd.level", "compression.zstd.level"),
    _as_broker("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _as_broker("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    TopicOption(
        long("flush.messages", LONG_MAX, minimum=1).described(
            "Records after which the log is synced to disk before they are acknowledged."
        ),
        (Fallback("log.flush.interval.messages"),),
    ),
    TopicOption(
        long("flush.ms", LONG_MAX, minimum=0).described(
            "Longest time that a record stays unsynced."
        ),
        (Fallback("log.flush.interval.ms"), Fallback("log.flush.scheduler.interval.ms")),
    ),
    TopicOption(
        items(
            "follower.replication.throttled.replicas",
            (),
            check=_throttled,
            check_allows="*, PARTITION:BROKER,...",
        ).described(
            "Replicas (PARTITION:BROKER,... or *) whose fetching counts towards "
            "follower.replication.throttled.rate of their broker."
        )
    ),
    _as_broker("index.interval.bytes", "log.index.interval.bytes"),
    TopicOption(
        items(
            "leader.replication.throttled.replicas",
            (),
            check=_throttled,
            check_allows="*, PARTITION:BROKER,...",
        ).described(
            "Replicas (PARTITION:BROKER,... or *) that lead, and whose answers to followers count "
            "towards leader.replication.throttled.rate of their broker."
        )
    ),
    _as_broker("local.retention.bytes", "log.local.retention.bytes"),
    _as_broker("local.retention.ms", "log.local.retention.ms"),
    _as_broker("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _as_broker("max.message.bytes", "message.max.bytes"),
    _as_broker("message.downconversion.enable", "log.message.downconversion.enable"),
    _as_broker("message.format.version", "log.message.format.version"),
    _as_broker("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _as_broker("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _as_broker("message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms"),
    _as_broker("message.timestamp.type", "log.message.timestamp.type"),
    _as_broker("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _as_broker("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    TopicOption(
        integer("min.insync.replicas", 1, minimum=1).described(
            "In-sync replicas that a write with acks=all needs."
        ),
        (Fallback("min.insync.replicas"),),
    ),
    _as_broker("preallocate", "log.preallocate"),
    TopicOption(
        boolean("remote.log.copy.disable", False, effective=False).described(
            "Whether segments go on being copied to remote storage."
        )
    ),
    TopicOption(
        boolean("remote.log.delete.on.disable", False, effective=False).described(
            "Whether remote segments go when remote storage is turned off."
        )
    ),
    TopicOption(
        items("pyrklog.adopted.unconfirmed", ()).described(
            "Options with which the topic keeps everything since it was adopted, because Kafka's "
            "are not known, until they are confirmed."
        )
    ),
    TopicOption(
        boolean("remote.storage.enable", False, effective=False).described(
            "Whether old segments go to remote storage."
        )
    ),
    _as_broker("retention.bytes", "log.retention.bytes"),
    TopicOption(
        long("retention.ms", 604800000, minimum=-1).described(
            "Age at which records are deleted; -1 = never."
        ),
        (
            Fallback("log.retention.ms"),
            Fallback("log.retention.minutes", MINUTE_MS),
            Fallback("log.retention.hours", HOUR_MS),
        ),
    ),
    _as_broker("segment.bytes", "log.segment.bytes"),
    _as_broker("segment.index.bytes", "log.index.size.max.bytes"),
    TopicOption(
        long("segment.jitter.ms", 0, minimum=0).described("Random time taken off segment.ms."),
        (Fallback("log.roll.jitter.ms"), Fallback("log.roll.jitter.hours", HOUR_MS)),
    ),
    TopicOption(
        long("segment.ms", 604800000, minimum=1).described("Age at which a segment is closed."),
        (Fallback("log.roll.ms"), Fallback("log.roll.hours", HOUR_MS)),
    ),
    TopicOption(
        boolean("unclean.leader.election.enable", False).described(
            "Whether a replica that is not in sync may lead when no other lives."
        ),
        (Fallback("unclean.leader.election.enable"),),
    ),
)

_AT_START = "log.message.format.version"
"""The one first fallback that Kafka changes only at a start."""
_AT_RUN_TIME = {item.fallbacks[0].name for item in TOPIC_OPTIONS if item.fallbacks} - {_AT_START}
BROKER_LOG_OPTIONS = tuple(
    option._replace(update_mode=CLUSTER_WIDE) if option.name in _AT_RUN_TIME else option
    for option in _TOPIC_DEFAULTS
)
"""The broker options that are defaults of topic options."""
