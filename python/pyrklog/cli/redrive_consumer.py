"""Reads what a group has not redriven yet of a dead-letter topic, up to its end at the start.

Members of the group divide the partitions, so that two runs at a time move no record twice. A dry
run is no member: it reads all partitions, and commits nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError
from pyrklog.cli.group_consumer import GroupConsumer
from pyrklog.cli.group_state import committed_offsets
from pyrklog.cli.held_back import HeldBack
from pyrklog.cli.interrupts import held
from pyrklog.cli.offsets import BEGINNING
from pyrklog.cli.options import Settings
from pyrklog.cli.redrive_first import check_first, refuse_lost
from pyrklog.cli.redrive_progress import Progress, parse_progress
from pyrklog.cli.topic_details import query_offsets

QUEUE_BYTES_MAX = 32 * 2**20
SESSION_MS = 10_000
"""So long the next run waits for the partitions of a killed one."""
_CONSUMER = {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": SESSION_MS,
    "queued.max.messages.kbytes": QUEUE_BYTES_MAX // 1024,
    "fetch.max.bytes": 2**24,
}


class Seen(NamedTuple):
    """What the last read got from brokers, with what is not redriven again."""

    records: int = 0
    bytes: int = 0
    """Of keys and values."""


class RedriveConsumer(GroupConsumer):
    _fix_of_missing = None
    _follows_new_topics = False
    _fix_of_gone = "start again"

    def __init__(
        self, settings: Settings, topic: str, group: str, *, dry: bool, again: bool
    ) -> None:
        """``again``: from the beginning, whatever was redriven before. Sends no request yet."""
        super().__init__(settings, [topic], group, BEGINNING, read_committed=True)
        self._dry = dry
        self._has_share = dry
        """Whether the group has told which partitions are this member's, if any."""
        self._again = again
        self._starts: dict[PartitionKey, int] = {}
        self._stops: dict[PartitionKey, int] = {}
        self._ends: dict[PartitionKey, int] = {}
        self._position: dict[PartitionKey, int] = {}
        self._progress: dict[PartitionKey, Progress] = {}
        self._kept: dict[PartitionKey, tuple[int, str]] = {}
        """What is committed."""
        self._holes: list[tuple[PartitionKey, int, int]] = []
        """Offsets without a record that the last read has passed."""
        self.seen = Seen()
        self.held: dict[PartitionKey, HeldBack] = {}
        """What open transactions hold back."""

    def start(self) -> None:
        """Joins the group, or reads without it. Raises :class:`CliError` if the topic is missing,
        no broker answers, ``again`` meets members of the group, or, without it, the group may have
        forgotten its progress."""
        self._connect()
        (topic,) = self._topics
        keys = [(topic, one) for one in self._existing_topics()[topic]]
        self._find_stops(keys)
        if not self._again:
            lengths = {key: (self._starts[key], stop) for key, stop in self._stops.items()}
            check_first(self._connection, self._group, lengths, is_told_only=self._dry)
        elif not self._dry:
            self._begin_anew()
        self._make_consumer(**{"group.id": self._group, **_CONSUMER})
        if self._dry:
            self._assigned = set(keys)
            self._load()
            self._assign_all()
            return
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _find_stops(self, keys: list[PartitionKey]) -> None:
        from confluent_kafka.admin import OffsetSpec

        latest = OffsetSpec.latest()
        self._starts = query_offsets(self._connection, keys, OffsetSpec.earliest())
        self._ends = query_offsets(self._connection, keys, latest)
        self._stops = query_offsets(self._connection, keys, latest, committed=True)
        self.held = {
            key: HeldBack(stop, self._ends[key])
            for key, stop in self._stops.items()
            if stop < self._ends[key]
        }

    def _begin_anew(self) -> None:
        from pyrklog.cli.group_seek import Move, apply
        from pyrklog.cli.group_state import describe_group

        if not describe_group(self._connection, self._group).is_idle:
            what = f"group {self._group} has members: another redrive of this topic runs"
            raise CliError(Problem.GROUP_ACTIVE, what, "wait for it, or stop it")
        moves = [Move(*key, None, start) for key, start in self._starts.items()]
        apply(self._connection, self._group, moves)

    def _assign_all(self) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.assign(
            [
                TopicPartition(*key, max(one.next, self._starts[key]))
                for key, one in self._progress.items()
            ]
        )

    def _load(self) -> None:
        """What the group has done of partitions that are new here."""
        new = self._assigned - set(self._progress)
        if not new:
            return
        committed = {}
        if not (self._again and self._dry):
            committed = committed_offsets(self._connection, self._group, new)
        self._look_beyond(committed)
        for key in new:
            start = self._starts.get(key, 0)
            offset, metadata = committed.get(key, (start, ""))
            if offset > self._ends.get(key, offset):
                refuse_lost(
                    self._connection,
                    self._group,
                    key,
                    (offset, self._ends[key]),
                    is_told_only=self._dry,
                )
                offset, metadata = start, ""
            self._progress[key] = parse_progress(offset, metadata)
            self._position[key] = offset
            self._kept[key] = self._committed_state(key)

    def _look_beyond(self, committed: Mapping[PartitionKey, tuple[int, str]]) -> None:
        """Asks anew for ends before what is committed: another run that began later may have read
        on. What is to be redriven here still stops where it did."""
        from confluent_kafka.admin import OffsetSpec

        beyond = [
            key for key, (offset, _) in committed.items() if offset > self._ends.get(key, offset)
        ]
        if beyond:
            self._ends |= query_offsets(self._connection, beyond, OffsetSpec.latest())

    def _committed_state(self, key: PartitionKey) -> tuple[int, str]:
        progress = self._progress[key]
        return progress.next, progress.metadata()

    def finished(self, _at_end: bool = True) -> bool:
        return self._has_share and all(
            self._position.get(key, -1) >= self._stops.get(key, 0) for key in self._assigned
        )

    def read(self, limit: int, wait_s: float) -> list[Any]:
        """Messages that are not redriven yet, of partitions that this member has."""
        from confluent_kafka import KafkaError

        messages = self._poll(limit, wait_s)
        self._load()
        self._holes.clear()
        found: list[Any] = []
        given = [one for one in messages if one.error() is None]
        self.seen = Seen(len(given), sum(len(one) + len(one.key() or b"") for one in given))
        for message in messages:
            key = (message.topic(), message.partition())
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._on_error(error, key)
            elif key not in self._assigned:
                continue
            elif self._reach(key, message.offset(), error is not None):
                found.append(message)
        return found

    def _reach(self, key: PartitionKey, offset: int, is_end: bool) -> bool:
        """Moves the position; returns whether there is a record to look at."""
        if offset < self._position[key]:
            return False
        hole = (self._position[key], min(offset, self._stops.get(key, 0)))
        if hole[0] < hole[1]:
            self._holes.append((key, *hole))
        self._position[key] = offset if is_end else offset + 1
        if is_end or offset >= self._stops.get(key, 0):
            return False
        return not self._progress[key].covers(offset)

    def has_room(self, key: PartitionKey, offset: int) -> bool:
        """Whether the group can remember this record besides all that are expected."""
        return self._progress[key].has_room(offset)

    def expect(self, key: PartitionKey, offset: int) -> None:
        """Notes a record that is sent: :meth:`commit` settles it."""
        self._progress[key].expect(offset)

    def is_expecting(self, key: PartitionKey) -> bool:
        return self._progress[key].is_expecting

    def done(self, key: PartitionKey, offset: int) -> None:
        """Notes a record as redriven."""
        if key in self._assigned:
            self._progress[key].add(offset, offset + 1)

    def commit(self) -> None:
        """Keeps what is done. Raises :class:`CliError` if the group does not take it."""
        from confluent_kafka import KafkaException, TopicPartition

        for key, start, stop in self._holes:
            if key in self._progress:
                self._progress[key].bridge(start, stop)
        for progress in self._progress.values():
            progress.settle()
        if self._dry:
            return
        changed = {
            key: state
            for key in self._progress
            if (state := self._committed_state(key)) != self._kept[key]
        }
        if not changed:
            return
        places = [
            TopicPartition(*key, offset, metadata=metadata)
            for key, (offset, metadata) in changed.items()
        ]
        try:
            with held:
                done = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            raise self._not_kept(error.args[0]) from None
        failed = [place.error for place in done or [] if place.error is not None]
        if failed:
            raise self._not_kept(failed[0])
        self._kept.update(changed)

    def _not_kept(self, error: Any) -> CliError:
        about = f"group {self._group} did not keep what was redriven last"
        found = self._connection.explain(error, about)
        if error.name() == "OFFSET_METADATA_TOO_LARGE":
            fix = "raise offset.metadata.max.bytes to 4096; a second run moves some records again"
        else:
            fix = "a second run moves some records again: their headers tell which"
        return CliError(found.problem, found.what, fix)

    def _on_assign(self, consumer: Any, places: Sequence[Any]) -> None:
        self._has_share = True
        super()._on_assign(consumer, places)

    def _forget(self, keys: set[PartitionKey]) -> None:
        # Until the group has assigned them anew nobody can say what is left to this member.
        self._has_share = False
        super()._forget(keys)
        for key in keys:
            self._progress.pop(key, None)
            self._position.pop(key, None)
            self._kept.pop(key, None)

    def _left(self) -> str:
        return f"group {self._group} has given partitions that were not read to their end"

    def written(self, messages: Sequence[Any]) -> None:
        """Not used: :meth:`done` and :meth:`commit` keep single records."""
