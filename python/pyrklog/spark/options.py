"""The options of ``format("pyrklog")``: names, values and what they exclude.

A table for users: ``docs/using/spark.md``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyrklog.scanning.arguments import LIKE_A_PATTERN
from pyrklog.spark.admission import Limits
from pyrklog.spark.connection import Connection
from pyrklog.spark.decode_options import Decoding, decoding
from pyrklog.spark.given import Given, connection, duration_ms, topic_name
from pyrklog.spark.option_names import (
    KAFKA_PREFIX,
    KAFKA_WITHOUT_EFFECT,
    SPELLING,
    WITHOUT_EFFECT,
    mistake_in,
)
from pyrklog.spark.places import (
    EARLIEST,
    LATEST,
    Place,
    Places,
    assigned,
    offsets_option,
    timestamp_option,
    timestamps_option,
)
from pyrklog.spark.planning import TASKS_MAX, TaskLimits

TRIGGER_DELAY_DEFAULT_S = 15 * 60.0
"""The stock connector's ``maxTriggerDelay``."""
LARGE_BYTES = (64 << 10, 512 << 20)
"""Least and most, as of a scan."""

_SELECTIONS = ("assign", "subscribe", "subscribePattern", "table")
_STREAM_ONLY = (
    "commitGroup",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
)
_A_PART = "a table is the whole topic as it is now: what was overwritten may be gone"
_CUTS = "the last value of a key is known to the one task that reads its partition"
# What makes no sense beside ``table``, and why.
_NOT_OF_A_TABLE = {
    "decode": "a value that does not fit would be taken for a tombstone",
    "endingOffsets": _A_PART,
    "endingOffsetsByTimestamp": _A_PART,
    "endingTimestamp": _A_PART,
    "maxBytesPerPartition": _CUTS,
    "maxRecordsPerPartition": _CUTS,
    "minPartitions": _CUTS,
    "startingOffsets": _A_PART,
    "startingOffsetsByTimestamp": _A_PART,
    "startingOffsetsByTimestampStrategy": _A_PART,
    "startingTimestamp": _A_PART,
}
# Streams may have it without effect.
_OF_QUERIES = ("pushFilters",)
_BATCH_ONLY = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")


@dataclass(frozen=True)
class Assign:
    """These partitions."""

    partitions: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """All topics in whose name it is found, but internal ones."""

    pattern: re.Pattern[str]

    def selects(self, topic: str) -> bool:
        """As the stock connector since Spark 3.4. Kafka's own consumers match whole names."""
        return self.pattern.search(topic) is not None


Selection = Assign | Subscribe | Pattern


@dataclass(frozen=True)
class SourceOptions:
    """Checked, and with defaults filled in."""

    selection: Selection
    starting: Places
    ending: Places
    connection: Connection
    latest_if_no_record_is_so_late: bool
    fail_on_data_loss: bool
    include_headers: bool
    limits: Limits
    min_records: int | None
    max_delay_s: float
    tasks: TaskLimits
    commit_group: str | None
    is_table: bool
    """The last value of each key is read, instead of all records."""
    decoding: Decoding | None
    """None for raw values."""
    push_filters: bool
    """A query's filters narrow what a batch reads."""
    ignored: tuple[str, ...]
    """Options that were given and have no effect."""


def parse(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Options by name, in any case, as Spark gives them. Raises OptionError."""
    given = Given({name.lower(): value for name, value in options.items()})
    _check_names(given, is_stream)
    parsed = SourceOptions(
        selection=_selection(given),
        starting=_starting(given, is_stream),
        ending=_ending(given),
        connection=_connection(given),
        latest_if_no_record_is_so_late=given.word(
            "startingOffsetsByTimestampStrategy", ("error", "latest")
        )
        == "latest",
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_headers=given.flag("includeHeaders", False),
        limits=Limits(given.count("maxOffsetsPerTrigger"), given.count("maxBytesPerTrigger")),
        min_records=given.count("minOffsetsPerTrigger"),
        max_delay_s=given.value("maxTriggerDelay", _seconds, TRIGGER_DELAY_DEFAULT_S),
        tasks=TaskLimits(
            given.count("minPartitions", TASKS_MAX),
            given.count("maxRecordsPerPartition"),
            given.count("maxBytesPerPartition"),
        ),
        commit_group=given.value("commitGroup", _group, None),
        is_table=given.has("table"),
        decoding=decoding(given),
        push_filters=given.word("pushFilters", ("false", "once")) == "once",
        ignored=_ignored(given, is_stream),
    )
    least, most = parsed.min_records, parsed.limits.records
    if least is not None and most is not None and least > most:
        given.mistakes.append(
            f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger with {most}"
        )
    found = parsed.decoding
    if found is not None and found.bad_records is not None:
        _check_bad_topic(found.bad_records, parsed.selection, given)
    given.raise_mistakes()
    return parsed


def _check_bad_topic(topic: str, selection: Selection, given: Given) -> None:
    if isinstance(selection, Pattern):
        is_read = selection.selects(topic)
    elif isinstance(selection, Assign):
        is_read = topic in selection.partitions
    else:
        is_read = topic in selection.topics
    if is_read:
        given.mistakes.append(
            f"badRecords is {topic}, which is read: what is written there would be read again"
        )


def _check_names(given: Given, is_stream: bool) -> None:
    for name in given.names():
        mistake = mistake_in(name)
        if mistake is None and is_stream and SPELLING[name] in _BATCH_ONLY:
            mistake = f"option {SPELLING[name]}: a stream has no end"
        if mistake is not None:
            given.mistakes.append(mistake)
    if given.has("table"):
        _check_table(given, is_stream)


def _check_table(given: Given, is_stream: bool) -> None:
    if is_stream:
        given.mistakes.append(
            "option table: a table is read as a batch: read it with spark.read, in foreachBatch "
            "to have it as it is at each batch of a stream"
        )
    given.mistakes += [
        f"option {name} beside table: {why}"
        for name, why in _NOT_OF_A_TABLE.items()
        if given.has(name)
    ]


def _ignored(given: Given, is_stream: bool) -> tuple[str, ...]:
    without = {*WITHOUT_EFFECT, *(KAFKA_PREFIX + name for name in KAFKA_WITHOUT_EFFECT)}
    without.update(_OF_QUERIES if is_stream else _STREAM_ONLY)
    known = (SPELLING.get(name) for name in given.names())
    return tuple(name for name in known if name in without)


def _selection(given: Given) -> Selection:
    named = [name for name in _SELECTIONS if given.has(name)]
    if len(named) != 1:
        found = f"{' and '.join(named)} are given" if named else "none is given"
        given.mistakes.append(f"one of the options {', '.join(_SELECTIONS)} is needed: {found}")
        return Subscribe(())
    if named == ["assign"]:
        text = given.text("assign") or ""
        try:
            partitions = assigned("assign", text)
            for topic in partitions:
                topic_name(topic)
        except ValueError as error:
            given.mistakes.append(str(error))
            return Subscribe(())
        return Assign(partitions)
    if named == ["subscribe"]:
        return Subscribe(given.value("subscribe", _topics, ()))
    if named == ["table"]:
        return Subscribe(given.value("table", lambda text: (topic_name(text),), ()))
    pattern = given.value("subscribePattern", _pattern, None)
    return Subscribe(()) if pattern is None else Pattern(pattern)


def _starting(given: Given, is_stream: bool) -> Places:
    default = Places("startingOffsets", LATEST if is_stream else EARLIEST)
    starting = _first_given(given, "starting", default)
    if not is_stream and _holds(starting, LATEST):
        given.mistakes.append(f"{starting.option}: a batch cannot start at latest (-1)")
    return starting


def _ending(given: Given) -> Places:
    ending = _first_given(given, "ending", Places("endingOffsets", LATEST))
    if _holds(ending, EARLIEST):
        given.mistakes.append(f"{ending.option}: a batch cannot end at earliest (-2)")
    return ending


def _first_given(given: Given, edge: str, default: Places) -> Places:
    """In the stock connector's order: a timestamp for all, timestamps, offsets."""
    readers: tuple[tuple[str, Callable[[str, str], Places]], ...] = (
        (f"{edge}Timestamp", timestamp_option),
        (f"{edge}OffsetsByTimestamp", timestamps_option),
        (f"{edge}Offsets", offsets_option),
    )
    found = [given.places(name, read, default) for name, read in readers if given.has(name)]
    return found[0] if found else default


def _holds(places: Places, place: Place) -> bool:
    return places.everywhere == place or place in places.single.values()


def _connection(given: Given) -> Connection:
    defaults = Connection("")
    return replace(
        connection(given),
        rack=given.text("kafka.client.rack") or defaults.rack,
        isolation=given.word("kafka.isolation.level", ("read_committed", "read_uncommitted")),
        timeout_s=given.seconds("kafka.default.api.timeout.ms", defaults.timeout_s),
        check_crcs=given.flag("kafka.check.crcs", defaults.check_crcs),
        large_bytes=given.value("largeBytes", _large, defaults.large_bytes),
    )


def _topics(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")]
    if LIKE_A_PATTERN.search(text):
        raise ValueError("no topic can have this name; a pattern is for option subscribePattern")
    found = tuple(dict.fromkeys(topic_name(name) for name in names if name))
    if not found:
        raise ValueError("it names no topic")
    return found


def _pattern(text: str) -> re.Pattern[str] | None:
    if not text:
        raise ValueError("it matches no topic")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"it is no regular expression of Python's: {error}") from error


def _group(text: str) -> str | None:
    if not text:
        raise ValueError("a group needs a name")
    return text


def _seconds(text: str) -> float:
    # A number alone has milliseconds, as with the stock connector.
    is_alone = text.isascii() and text.isdigit()
    return duration_ms(f"{text}ms" if is_alone else text) / 1000


def _large(text: str) -> int:
    least, most = LARGE_BYTES
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
        raise ValueError(f"it can be a whole number of bytes from {least} to {most}")
    return int(text)
