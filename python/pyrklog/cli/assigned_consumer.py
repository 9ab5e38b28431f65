"""Reads partitions assigned by the command, each from its start to its stop."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.consumer import RecordConsumer
from pyrklog.cli.failures import CliError, counted, missing_partition
from pyrklog.cli.held_back import HeldBack
from pyrklog.cli.offsets import OffsetRange, RangeError, ResolvedRange, resolve
from pyrklog.cli.options import Settings
from pyrklog.cli.topic_details import query_offsets

SHOWN_MAX = 3
GROUP_ID = "pyrklog-cli"
"""librdkafka requires a group id, but uses none without fetched or committed offsets."""


class AssignedConsumer(RecordConsumer):
    def __init__(
        self,
        settings: Settings,
        topics: Sequence[str],
        partitions: Sequence[int] | None,
        wanted: OffsetRange,
        *,
        read_committed: bool,
        ends_now: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Sends no request yet. ``partitions`` empty or None: all. ``ends_now``: waits for no
        record that is not there yet. ``more`` properties override ours."""
        super().__init__(settings, topics, read_committed=read_committed)
        self._ends_now = ends_now
        if ends_now:
            self._fix_of_missing = None  # a new topic has no records
            self._fix_of_gone = "begin behind what was deleted, with --from"
        self._more = dict(more or {})
        self._takes_more = not ends_now
        self._partitions = partitions or ()
        self._wanted = wanted
        self._bounded: dict[PartitionKey, ResolvedRange] = {}
        self._ends: dict[PartitionKey, int] = {}
        """Where logs ended at the start."""
        self._open: set[PartitionKey] = set()
        self._reached: set[PartitionKey] = set()
        """Partitions that were read up to where their logs ended at the start."""
        self._known: set[PartitionKey] = set()
        """All partitions of the topics that it has seen."""
        self._leaderless: set[PartitionKey] = set()
        """Partitions that are left out until they have a leader."""
        self._started_at = time.monotonic()
        self.held: dict[PartitionKey, HeldBack] = {}
        """Partitions whose stop is not reached, once it has started."""

    def start(self) -> None:
        """Connects, turns the range into offsets and begins to read.

        Raises :class:`RangeError` if all partitions end before the range, and :class:`CliError` if
        a partition is missing or no broker answers.
        """
        self._connect()
        existing = self._existing_topics()
        keys = [
            (name, partition)
            for name, all_of_them in existing.items()
            for partition in _chosen(name, list(all_of_them), self._partitions)
        ]
        self._known = {(name, partition) for name, found in existing.items() for partition in found}
        self._started_at = time.monotonic()
        if not self._ends_now:
            self._leaderless = {key for key in keys if existing[key[0]][key[1]] < 0}
        led = [key for key in keys if key not in self._leaderless]
        self._resolve(led)
        if self._leaderless:
            self._tell([f"{_places(self._leaderless)}: left out, without a leader"])
        self._open = self._unread(led)
        self._make_consumer(**{"group.id": GROUP_ID, "auto.offset.reset": "error", **self._more})
        self._consumer.assign(self._starts(self._open))

    def ranges(self) -> dict[PartitionKey, ResolvedRange]:
        """The offsets to read of each partition, once it has started."""
        return dict(self._bounded)

    def awaited(self) -> dict[PartitionKey, tuple[int, int]]:
        stops = {key: self._bounded[key].stop for key in sorted(self._open)}
        return {
            key: (self._ends[key], stop)
            for key, stop in stops.items()
            if stop is not None and stop > self._ends[key]
        }

    def check_progress(self) -> None:
        """As :class:`RecordConsumer`, but what is not written yet may take any time."""
        if not self._open <= self._at_end:
            super().check_progress()

    def held_back(self) -> dict[PartitionKey, HeldBack]:
        """Of partitions with a stop, as it was at the start; of others as it is now."""
        return {**super().held_back(), **self.held}

    def _unbounded(self) -> set[PartitionKey]:
        return self._open & self._at_end

    def finished(self, at_end: bool) -> bool:
        # Where records keep coming a log's end is never met.
        is_read = not (self._open - self._at_end - self._reached if at_end else self._open)
        return is_read and not self._waits_for_leaders(at_end)

    def _waits_for_leaders(self, at_end: bool) -> bool:
        """As long as leaders may take to move, and for ever where nothing else ends the reading."""
        if not self._leaderless or (not at_end and self._wanted.stop is None):
            return bool(self._leaderless)
        return time.monotonic() - self._started_at < self._settings.timeout_s

    def check_whole(self) -> None:
        if self._leaderless:
            problem = Problem.PARTLY_DONE if self._bounded else Problem.NO_LEADER
            what = f"{_places(self._leaderless)} was not read: there is no leader"
            raise CliError(problem, what, "see `pyrklog cluster health`")

    def _on_look(self, seen: Mapping[PartitionKey, bool]) -> None:
        """Takes partitions that have a leader by now, and new ones."""
        self._take_led({key for key in self._leaderless if seen.get(key)})
        new = seen.keys() - self._known
        self._known |= new
        if new:
            self._take_new(new)

    def _take_new(self, new: set[PartitionKey]) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        what = counted(len(new), "new partition")
        if self._partitions or self._wanted.stop is not None:
            self._tell([f"{what} left out: {_places(new)}"])
            return
        self._tell([f"{what}: {_places(new)}"])
        # An offset holds for all partitions. All else that is wanted of a new one begins with it.
        wanted = self._wanted.start
        start = wanted.value if wanted.kind == "offset" else 0
        self._bounded.update(dict.fromkeys(new, ResolvedRange(start, None)))
        self._ends.update(dict.fromkeys(new, 0))
        self._open |= new
        # Retention may have been there already.
        self._assign_more([TopicPartition(*key, OFFSET_BEGINNING) for key in sorted(new)])

    def _take_led(self, keys: set[PartitionKey]) -> None:
        if not keys:
            return
        try:
            self._resolve(sorted(keys), refuses_past=False)
        except CliError:
            return  # the leader has gone again: at another look
        self._leaderless -= keys
        self._tell([f"{_places(keys)}: read now, as there is a leader"])
        found = self._unread(keys)
        self._open |= found
        self._assign_more(self._starts(found))

    def _assign_more(self, places: list[Any]) -> None:
        from confluent_kafka import KafkaException

        for topic in sorted({place.topic for place in places}):
            try:
                # librdkafka looks for partitions that it does not know after five minutes only.
                self._consumer.list_topics(topic, timeout=self._settings.timeout_s)
            except KafkaException as error:
                raise self._connection.explain(error.args[0], f"topic {topic}") from None
        if places:
            self._consumer.incremental_assign(places)

    def _unread(self, keys: Iterable[PartitionKey]) -> set[PartitionKey]:
        ranges = {key: self._bounded[key] for key in keys}
        return {key for key, one in ranges.items() if one.stop is None or one.start < one.stop}

    def _starts(self, keys: Iterable[PartitionKey]) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [
            TopicPartition(*key, min(self._bounded[key].start, self._ends[key]))
            for key in sorted(keys)
        ]

    def _tell(self, remarks: Iterable[str]) -> None:
        if not self._settings.quiet:
            for remark in remarks:
                typer.echo(f"note: {remark}", err=True)

    def read(self, limit: int, wait_s: float) -> list[Any]:
        found: list[Any] = []
        for message in self._poll(limit, wait_s):
            key = (message.topic(), message.partition())
            if message.error() is not None:
                self._on_message_error(message, key)
            elif key in self._open and not self._past_stop(key, message.offset()):
                self._at_end.discard(key)
                # Before it only where the log ended before the start.
                if message.offset() >= self._bounded[key].start:
                    found.append(message)
                if message.offset() + 1 >= self._ends[key]:
                    self._reached.add(key)
                self._past_stop(key, message.offset() + 1)
        return found

    def _left(self) -> str:
        return f"{_places(self._open - self._at_end)} was not read to its end"

    def written(self, messages: Sequence[Any]) -> None:
        """Keeps no offsets: there is no group."""

    def _resolve(self, keys: list[PartitionKey], *, refuses_past: bool = True) -> None:
        """Turns the wanted range into offsets, with remarks for people."""
        from confluent_kafka.admin import OffsetSpec

        query, wanted = self._connection, self._wanted
        lows = query_offsets(query, keys, OffsetSpec.earliest())
        highs = query_offsets(query, keys, OffsetSpec.latest())
        stable = highs
        if self._committed:
            stable = query_offsets(query, keys, OffsetSpec.latest(), committed=True)
        at: dict[int, dict[PartitionKey, int]] = {
            place.value: query_offsets(query, keys, OffsetSpec.for_timestamp(place.value))
            for place in wanted
            if place is not None and place.kind == "time"
        }
        found: dict[PartitionKey, ResolvedRange] = {}
        remarks: dict[PartitionKey, str] = {}
        for key in keys:
            offsets = {timestamp_ms: answer[key] for timestamp_ms, answer in at.items()}
            found[key], remark = resolve(
                wanted,
                lows[key],
                highs[key],
                offsets.__getitem__,
                stable=None if self._ends_now else stable[key],
            )
            if remark is not None:
                remarks[key] = f"{key[0]} [{key[1]}]: {remark}"
        if refuses_past and keys and all(found[key].start > highs[key] for key in keys):
            raise RangeError(_listed(list(remarks.values())))
        self._tell(remarks.values())
        self._ends.update(highs)
        self._bounded.update({key: self._ended(key, found[key], stable[key]) for key in keys})

    def _ended(self, key: PartitionKey, found: ResolvedRange, stable: int) -> ResolvedRange:
        high = self._ends[key]
        if self._ends_now:
            stop = high if found.stop is None else min(found.stop, high)
            found = ResolvedRange(min(found.start, high), stop)
        return self._stop_where_stable(key, found, stable, high)

    def _stop_where_stable(
        self, key: PartitionKey, found: ResolvedRange, stable: int, high: int
    ) -> ResolvedRange:
        """Ends a range where an open transaction begins in it: what follows may never come."""
        reached = max(found.start, stable)
        if found.stop is None or not reached < found.stop <= high:
            return found
        self.held[key] = HeldBack(stable, found.stop)
        return found._replace(stop=reached)

    def _past_stop(self, key: PartitionKey, position: int) -> bool:
        """Pauses a partition at its stop; returns whether it is there."""
        stop = self._bounded[key].stop
        if stop is None or position < stop:
            return False
        from confluent_kafka import TopicPartition

        self._open.discard(key)
        self._consumer.pause([TopicPartition(*key)])
        return True

    def _on_message_error(self, message: Any, key: PartitionKey) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(key)
            if key in self._open:
                self._past_stop(key, message.offset())
            return
        self._on_error(error, key)


def _listed(texts: Sequence[str]) -> str:
    listed, more = ", ".join(texts[:SHOWN_MAX]), len(texts) - SHOWN_MAX
    return f"{listed}, and {more} more" if more > 0 else listed


def _places(keys: Iterable[PartitionKey]) -> str:
    return _listed([f"{topic} [{partition}]" for topic, partition in sorted(keys)])


def _chosen(name: str, existing: list[int], partitions: Sequence[int]) -> list[int]:
    if not partitions:
        return existing
    for partition in partitions:
        if partition not in existing:
            raise missing_partition(name, partition, len(existing))
    return sorted(set(partitions))
