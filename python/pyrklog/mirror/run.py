"""A mirror's rounds, and what becomes of failures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from pyrklog.mirror.cluster import ClusterAdmin
from pyrklog.mirror.copy import (
    COLUMNS,
    SCAN_MEMORY_BYTES,
    TRANSACTION_TIMEOUT_MS,
    Copier,
    Pace,
    producer_settings,
)
from pyrklog.mirror.errors import AwayError, Kind, MirrorError
from pyrklog.mirror.groups import Groups
from pyrklog.mirror.names import Cluster, Names, Patterns
from pyrklog.mirror.state import (
    Origin,
    Partition,
    Progress,
    Row,
    chain_row,
    check_origin,
    forgotten_row,
    origin_row,
    read_spans,
    read_state,
)
from pyrklog.mirror.topics import BROKER_DEFAULT, Plan, Topics, Wanted
from pyrklog.producing import (
    ClusterUnavailableError,
    ProduceError,
    Producer,
    RecordTooLargeError,
    TransactionFencedError,
)
from pyrklog.scanning import (
    BrokerNotAvailableError,
    LeaderNotAvailableError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    ScanError,
    TopicDeletedError,
    UnknownTopicError,
    scan,
)
from pyrklog.scanning.places import Place

REFRESH_S = 60.0
"""How often topics, partitions and options are looked at."""
SPANS_SINCE = timedelta(days=1)
"""How far back a start reads translations of offsets."""
SCAN_TIMEOUT_S = 30.0
"""Of a partition without progress: less than a transaction may be open."""
NEW_TOPIC_S = 10.0
MARKERS_S = 10.0
IDLE_S = 3600.0
"""After so long without a transaction a session ends: coordinators forget producers."""
WAIT_MIN_S, WAIT_MAX_S = 1.0, 30.0
_OUT_OF_TIME_S = 0.9 * TRANSACTION_TIMEOUT_MS / 1000
_STATE = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}
_OFFSETS = {"cleanup.policy": "delete", "retention.ms": str(7 * 86_400_000)}
_CHECKPOINTS = {"cleanup.policy": "compact"}
_PASSING = (
    AwayError,
    ClusterUnavailableError,
    BrokerNotAvailableError,
    LeaderNotAvailableError,
    # The next look at the topics does not find them.
    TopicDeletedError,
    UnknownTopicError,
)


class Options(NamedTuple):
    """What a user asks for. Times are seconds."""

    source: Cluster
    target: Cluster
    names: Names
    topics: Patterns
    groups: Patterns
    start: str = "earliest"
    once: bool = False
    missing: str = "fail"
    again: Sequence[str] = ()
    codec: str = "none"
    replicas: int = BROKER_DEFAULT
    pace: Pace = Pace()
    interval_s: float = 1.0
    group_interval_s: float = 60.0
    timeout_s: float = 30.0


class Told(Protocol):
    """Whom a mirror tells what it does."""

    def note(self, text: str) -> None:
        """What a user may want to know."""

    def began(self, plan: Plan, progress: Mapping[Partition, Progress]) -> None:
        """A session has begun, or its topics are others."""

    def copied(self, progress: Mapping[Partition, Progress]) -> None:
        """After each round."""


class Mirror:
    """Copies until it is told to end by an exception, or once."""

    def __init__(self, options: Options, told: Told) -> None:
        self._options = options
        self._told = told
        self._again = set(options.again)
        self._existing: set[str] = set()
        self._source = ClusterAdmin(options.source, options.timeout_s)
        self._target = ClusterAdmin(options.target, options.timeout_s)
        wanted = Wanted(options.topics, options.replicas)
        names = options.names
        self._topics = Topics(names, wanted, self._source, self._target, told.note)
        self._groups = Groups(names, options.groups, self._source, self._target, told.note)
        self._groups_at = 0.0
        self._groups_said = ""
        self._has_begun = False

    def run(self) -> None:
        """Raises MirrorError."""
        wait_s = WAIT_MIN_S
        said = ""
        while True:
            begun = time.monotonic()
            try:
                if self._explained():
                    return
                said = ""
            except _PASSING as error:
                text = str(error)
                if self._options.once or not self._has_begun:
                    raise MirrorError(text, kind=Kind.UNREACHABLE) from error
                if time.monotonic() - begun > REFRESH_S:
                    said, wait_s = "", WAIT_MIN_S
                if text != said:
                    self._told.note(f"{text}; trying again")
                    said = text
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, WAIT_MAX_S)

    def _explained(self) -> bool:
        """A session; what ends a mirror is a MirrorError."""
        try:
            return self._session()
        except _PASSING:
            raise
        except RecordTooLargeError as error:
            fix = "raise max.message.bytes of the topic at the target"
            raise MirrorError(str(error), fix) from error
        except OffsetOutOfRangeError as error:
            fix = (
                "--missing skip goes on at the first record that is left, --again TOPIC copies the "
                "topic from its beginning"
            )
            raise MirrorError(str(error), fix) from error
        except LogTruncatedError as error:
            fix = "--again TOPIC copies a topic from its beginning, behind what the target has"
            raise MirrorError(str(error), fix) from error
        except (ScanError, ProduceError, ValueError) as error:
            raise MirrorError(str(error)) from error

    def _session(self) -> bool:
        """With one producer. Whether all is done; otherwise another session is needed."""
        names, options = self._options.names, self._options
        self._target.topics()
        internal = {names.state_topic: _STATE, names.offsets_topic: _OFFSETS}
        if options.groups:
            internal[names.checkpoints_topic] = _CHECKPOINTS
        self._existing = {
            topic for topic, own in internal.items() if not self._target.create_internal(topic, own)
        }
        self._require_compacted(names.state_topic)
        settings = producer_settings(names, options.target.bootstrap, options.codec)
        producer = Producer(settings)
        copier: Copier | None = None
        try:
            copier, plan = self._copier(producer)
            self._has_begun = True
            return self._rounds(copier, plan)
        except TransactionFencedError as error:
            if copier is not None and copier.open_s >= _OUT_OF_TIME_S:
                raise AwayError(f"a transaction was open for too long: {error}") from error
            what = f"another mirror of the name {names.mirror} has begun, which ended this one"
            raise MirrorError(what, "run one of them, or give --name") from error
        except ClusterUnavailableError:
            raise
        except BaseException:
            # Else readers of committed records would wait until its time is over.
            with suppress(ProduceError):
                producer.abort()
            raise

    def _require_compacted(self, topic: str) -> None:
        """Raises MirrorError for a topic of progress that loses rows."""
        policy = self._target.options([topic])[topic].get("cleanup.policy", ("compact", False))[0]
        if policy != "compact":
            raise MirrorError(
                f"topic {topic} has cleanup.policy={policy}, with which progress is lost, and "
                "records can be copied twice",
                "set cleanup.policy=compact",
            )

    def _copier(self, producer: Producer) -> tuple[Copier, Plan]:
        """After the producer has been opened nobody else writes."""
        names = self._options.names
        state = read_state(names.state_topic, self._stored(names.state_topic))
        known = {
            partition: one
            for partition, one in state.partitions.items()
            if partition[0] not in self._again
        }
        ids = (self._source.topics()[0], self._target.topics()[0])
        origin = Origin(*ids, names.policy.value)
        check_origin(names.state_topic, state.origin, origin)
        plan = self._topics.sync({topic for topic, _ in known})
        ends = self._settled_ends(plan)
        _check_ends(known, ends)
        copier = Copier(names, producer, known, ends, self._options.pace)
        if self._options.groups:
            since = datetime.now(UTC) - SPANS_SINCE
            records = self._stored(names.offsets_topic, since)
            for partition, spans in read_spans(names.offsets_topic, records):
                if partition in known:
                    copier.learn_past(partition, spans)
        copier.learn_last()
        rows: list[Row] = [origin_row(names.state_topic, origin)] if state.origin is None else []
        rows += [forgotten_row(names.state_topic, one) for one in state.partitions.keys() - known]
        self._write_chains(copier, plan, state.chains, rows)
        self._again = set()
        return copier, plan

    def _stored(
        self, topic: str, since: datetime | None = None
    ) -> Iterator[tuple[bytes | None, bytes | None]]:
        exists = topic in self._existing
        return self._target.records(topic, since, waits=True, exists=exists)

    def _write_chains(
        self, copier: Copier, plan: Plan, known: dict[str, list[str]], rows: list[Row]
    ) -> None:
        topic = self._options.names.state_topic
        for of, chain in (plan.chains or {}).items():
            if known.get(of) != chain:
                rows.append(chain_row(topic, of, chain))
                known[of] = chain
        self._known_chains = known
        if rows:
            copier.write(rows)

    def _settled_ends(self, plan: Plan) -> dict[Partition, int]:
        """Of the target, once what a former session left is over: its markers come after the
        producer has been opened, and take offsets. Others' transactions may stay open."""
        until = time.monotonic() + MARKERS_S
        while True:
            ends = self._ends(plan)
            if self._ends(plan, "read_committed") == ends or time.monotonic() > until:
                return ends
            time.sleep(0.05)

    def _ends(self, plan: Plan, isolation: str = "read_uncommitted") -> dict[Partition, int]:
        """Of the target."""
        names = self._options.names
        topics = {names.at_target(topic): count for topic, count in plan.topics.items()}
        until = time.monotonic() + NEW_TOPIC_S
        while True:
            try:
                return self._target.ends(topics, isolation)
            except UnknownTopicError:
                # One that was just created.
                if time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def _rounds(self, copier: Copier, plan: Plan) -> bool:
        self._told.began(plan, copier.progress)
        refresh_at = time.monotonic() + REFRESH_S
        while True:
            if time.monotonic() >= refresh_at:
                new = self._topics.sync({topic for topic, _ in copier.progress})
                if new.grown or copier.idle_s > IDLE_S:
                    return False  # a producer does not learn of new partitions
                if new.topics != plan.topics:
                    copier.add_target(self._ends(new))
                    self._told.began(new, copier.progress)
                plan = new
                self._write_chains(copier, plan, self._known_chains, [])
                refresh_at = time.monotonic() + REFRESH_S
            is_done = self._round(copier, plan, refresh_at)
            is_end = is_done and self._options.once
            self._told.copied(copier.progress)
            if is_end or time.monotonic() - self._groups_at >= self._options.group_interval_s:
                self._sync_groups(copier, plan, is_last=is_end)
            if is_end:
                self._visible_ends(copier, plan)
                return True
            if is_done:
                time.sleep(self._options.interval_s)

    def _round(self, copier: Copier, plan: Plan, until: float) -> bool:
        """Copies up to the present end; False if that takes longer than ``until``."""
        if not plan.topics:
            return True
        with scan(
            {topic: list(range(count)) for topic, count in plan.topics.items()},
            start=starts(plan.topics, copier.progress, self._options),
            columns=COLUMNS,
            missing=self._options.missing,
            memory_bytes=SCAN_MEMORY_BYTES,
            batch_bytes=self._options.pace.batch_bytes(),
            timeout_s=SCAN_TIMEOUT_S,
            **self._source.reading(),
        ) as reading:
            return copier.copy(reading, until)

    def _visible_ends(self, copier: Copier, plan: Plan) -> dict[Partition, int] | None:
        """Of the target, once all that was committed is visible: a coordinator writes markers after
        it has answered. None, and a note, if that takes too long."""
        until = time.monotonic() + MARKERS_S
        while copier.is_behind(ends := self._ends(plan, "read_committed")):
            if time.monotonic() > until:
                self._told.note("not all of the target's transactions are visible yet")
                return None
            time.sleep(0.05)
        return ends

    def _sync_groups(self, copier: Copier, plan: Plan, *, is_last: bool) -> None:
        """What may pass, such as a coordinator that loads its groups, is tried again: for a while
        if there is no next time."""
        if not self._options.groups:
            return
        self._groups_at = time.monotonic()
        ends = self._visible_ends(copier, plan)
        if ends is None:
            return
        for topic, partition in copier.forget_foreign(ends):
            self._told.note(
                f"partition {partition} of topic {topic} at the target has records that others "
                "wrote: offsets of groups are translated anew from here on"
            )
        until = time.monotonic() + self._options.timeout_s
        while True:
            try:
                self._groups.sync(copier.spans, copier.write)
                self._groups_said = ""
                return
            except AwayError as error:
                if is_last and time.monotonic() > until:
                    raise
                if not is_last:
                    if error.what != self._groups_said:
                        self._told.note(f"{error.what}; trying again")
                        self._groups_said = error.what
                    return
            time.sleep(0.2)


def starts(
    topics: Mapping[str, int], progress: Mapping[Partition, Progress], options: Options
) -> dict[str, dict[int, Place]]:
    """Where each partition is read from. ``options.start`` is of topics that are new: a partition
    that is added to another one is copied from its beginning, as is a topic that is copied again.
    """
    known = {topic for topic, _ in progress}
    found: dict[str, dict[int, Place]] = {}
    for topic, count in topics.items():
        is_new = topic not in known and topic not in options.again
        start: Place = options.start if is_new else "earliest"
        for partition in range(count):
            one = progress.get((topic, partition))
            place: Place = start if one is None else (one.position, one.epoch)
            found.setdefault(topic, {})[partition] = place
    return found


def _check_ends(known: Mapping[Partition, Progress], ends: Mapping[Partition, int]) -> None:
    """Raises MirrorError if the target has lost what was mirrored."""
    for (topic, partition), one in known.items():
        end = ends.get((one.target, partition))
        if end is not None and end < one.target_end:
            raise MirrorError(
                f"partition {partition} of topic {one.target} ends at {end} at the target, before "
                f"{one.target_end}: mirrored records are lost there",
                f"--again {topic} copies the topic from its beginning",
            )
