"""Where a record of a dead-letter topic came from, and whether and how it goes back. Pure.

Programs that write such topics name the origin in headers, each in its way. Of several families
that a record has, the one whose topic stands last counts: each writer adds its own at the end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pyrklog.base.internal_topics import is_internal
from pyrklog.cli.record_filter import Condition, all_hold, last_header
from pyrklog.cli.records import Headers, InputRecord, Record

COUNT_HEADER = "pyrklog.redrive.count"
"""How often a record has been redriven, in digits."""
FROM_HEADER = "pyrklog.redrive.from"
"""Where it was: ``TOPIC:PARTITION@OFFSET``."""
OURS = (COUNT_HEADER, FROM_HEADER)
NAME_MAX = 249
"""Characters of a topic's name."""
_COUNT_DIGITS_MAX = 9
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1


class Family(NamedTuple):
    """Headers of one kind of writer. ``prefixes``: of all that it adds."""

    topic: str
    partition: str
    prefixes: tuple[str, ...]
    timestamp: str | None = None


FAMILIES = (
    # Kafka Connect (KIP-298), and the bad records of pyrklog.scan and of format("pyrklog").
    Family(
        "__connect.errors.topic",
        "__connect.errors.partition",
        ("__connect.errors.",),
    ),
    # Kafka Streams (KIP-1034).
    Family(
        "__streams.errors.topic",
        "__streams.errors.partition",
        ("__streams.errors.",),
    ),
    # Spring for Apache Kafka: DeadLetterPublishingRecoverer, and topics of @RetryableTopic.
    Family(
        "kafka_dlt-original-topic",
        "kafka_dlt-original-partition",
        ("kafka_dlt-",),
        "kafka_dlt-original-timestamp",
    ),
    Family(
        "kafka_original-topic",
        "kafka_original-partition",
        ("kafka_original-", "kafka_exception-", "retry_topic-"),
        "kafka_original-timestamp",
    ),
    # Spring Cloud Stream.
    Family(
        "x-original-topic",
        "x-original-partition",
        ("x-original-", "x-exception-"),
        "x-original-timestamp",
    ),
    # SmallRye Reactive Messaging (Quarkus).
    Family(
        "dead-letter-topic",
        "dead-letter-partition",
        ("dead-letter-",),
    ),
)


class Reason(StrEnum):
    """Why a record stays where it is."""

    FILTER = "filter"
    NO_HEADER = "no_header"
    NO_TOPIC = "no_topic"
    SAME_TOPIC = "same_topic"
    INTERNAL = "internal"
    TOO_OFTEN = "too_often"
    GAPS = "gaps"
    REFUSED = "refused"


class Left(NamedTuple):
    """``topic``: where it would have gone, as far as that is known."""

    reason: Reason
    topic: str | None = None


class Moved(NamedTuple):
    """A record as it goes to ``topic``."""

    topic: str
    record: InputRecord


@dataclass(frozen=True)
class Rules:
    """``to`` and ``header`` (the name of one): at most one of them is given.

    ``partitions``: how many each topic of the cluster has. ``by_key``: partitions by the keys, not
    the original ones. ``now``: the present time instead of the original.
    """

    source: str
    partitions: Mapping[str, int]
    to: str | None = None
    header: str | None = None
    conditions: Sequence[Condition] = ()
    max_redrives: int = 3
    by_key: bool = False
    now: bool = False
    keeps_headers: bool = False

    def decide(self, record: Record) -> Moved | Left:
        if not all_hold(self.conditions, record):
            return Left(Reason.FILTER)
        family = family_of(record)
        topic = self._target(record, family)
        if topic is None:
            return Left(Reason.NO_HEADER)
        if topic == self.source:
            return Left(Reason.SAME_TOPIC, topic)
        if is_internal(topic):
            return Left(Reason.INTERNAL)
        if topic not in self.partitions:
            return Left(Reason.NO_TOPIC, topic if len(topic) <= NAME_MAX else None)
        count = redrives(record)
        if count >= self.max_redrives:
            return Left(Reason.TOO_OFTEN, topic)
        headers = record.headers if self.keeps_headers else without_errors(record)
        kept = tuple(one for one in headers if one[0] not in OURS)
        place = f"{record.topic}:{record.partition}@{record.offset}"
        ours = ((COUNT_HEADER, str(count + 1).encode()), (FROM_HEADER, place.encode()))
        return Moved(
            topic,
            InputRecord(
                key=record.key,
                value=record.value,
                headers=(*kept, *ours),
                partition=self._partition(record, family, topic),
                timestamp_ms=None if self.now else _timestamp(record, family),
            ),
        )

    def _target(self, record: Record, family: Family | None) -> str | None:
        if self.to is not None:
            return self.to
        name = self.header
        if name is None and family is not None:
            name = family.topic
        return None if name is None else _name(last_header(record, name))

    def _partition(self, record: Record, family: Family | None, topic: str) -> int | None:
        """The original one, if it is known to be one of the target's."""
        if self.by_key or family is None or _name(last_header(record, family.topic)) != topic:
            return None
        found = _integer(last_header(record, family.partition), 4, _INT32_MAX)
        return found if found is not None and found < self.partitions[topic] else None


def family_of(record: Record) -> Family | None:
    """Whose headers name where the record was first."""
    by_name = {one.topic: one for one in FAMILIES}
    return next((by_name[name] for name, _ in reversed(record.headers) if name in by_name), None)


def redrives(record: Record) -> int:
    """How often the record has been redriven; what is no count is none."""
    value = last_header(record, COUNT_HEADER) or b""
    is_count = value.isdigit() and len(value) <= _COUNT_DIGITS_MAX
    return int(value) if is_count else 0


def without_errors(record: Record) -> Headers:
    """The headers without those of the families that the record has."""
    names = {name for name, _ in record.headers}
    prefixes = tuple(prefix for one in FAMILIES if one.topic in names for prefix in one.prefixes)
    if not prefixes:
        return record.headers
    return tuple(one for one in record.headers if not one[0].startswith(prefixes))


def _name(value: bytes | None) -> str | None:
    """A topic's name; None for what cannot be one."""
    try:
        return (value or b"").decode() or None
    except UnicodeDecodeError:
        return None


def _timestamp(record: Record, family: Family | None) -> int | None:
    """The original one where a header has it."""
    found = None
    if family is not None and family.timestamp is not None:
        found = _integer(last_header(record, family.timestamp), 8, _INT64_MAX)
    return record.timestamp_ms if found is None else found


def _integer(value: bytes | None, width: int, most: int) -> int | None:
    """Digits, or as Java writes numbers: ``width`` bytes, big-endian."""
    if value is None:
        return None
    if value.isdigit() and len(value) <= len(str(most)):
        found = int(value)
    elif len(value) == width:
        found = int.from_bytes(value, "big", signed=True)
    else:
        return None
    return found if 0 <= found <= most else None
