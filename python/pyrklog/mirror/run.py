"""A mirror's rounds, and what becomes of failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from pyrklog.mirror.cluster import ClusterAdmin, Logs
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
from pyrklog.mirror.heartbeats import Heartbeats
from pyrklog.mirror.names import HEARTBEATS, Cluster, Names, Patterns
from pyrklog.mirror.state import (
    Origin,
    Partition,
    Progress,
    Row,
    State,
    again_row,
    chain_row,
    check_origin,
    forgotten_row,
    origin_row,
    patterns_row,
    read_spans,
    read_state,
)
from pyrklog.mirror.topics import BROKER_DEFAULT, Plan, Topics, Wanted
from pyrklog.producing import (
    ClusterUnavailableError,
    ProduceError,
    Producer,
    ProducerAuthenticationError,
    RecordTooLargeError,
    TransactionFencedError,
)
from pyrklog.scanning import (
    AuthenticationError,
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
OFFLINE_REFRESH_S = 10.0
"""The same while a partition has no leader."""
SPANS_SINCE = timedelta(days=1)
"""How far back a start reads translations of offsets."""
SCAN_TIMEOUT_S = 30.0
"""Of a partition without progress: less than a transaction may be open."""
NEW_TOPIC_S = 10.0
MARKERS_S = 10.0
IDLE_S = 3600.0
"""After so long without a transaction a session ends: coordinators forget producers."""
SESSION_S = 12 * 3600.0
"""A session ends after so long in any case; a partition forgets a producer that has not written to
it for a day."""
WAIT_MIN_S, WAIT_MAX_S = 1.0, 30.0
_OUT_OF_TIME_S = 0.9 * TRANSACTION_TIMEOUT_MS / 1000
_STATE = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}
_OFFSETS = {"cleanup.policy": "delete", "retention.ms": str(7 * 86_400_000)}
_CHECKPOINTS = _BEATS = {"cleanup.policy": "compact"}
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
    heartbeat_s: float | None = None
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
        self._first: frozenset[str] | None = None
        """Topics that ``--start`` is of: those that come later are copied whole."""
        self._is_begun = False
        """All topics that there were have progress."""
        self._source = ClusterAdmin(options.source, options.timeout_s)
        self._target = ClusterAdmin(options.target, options.timeout_s)
        names, beats = options.names, options.heartbeat_s
        wanted = Wanted(
            options.topics,
            options.replicas,
            is_whole=options.once,
            has_heartbeats=beats is not None,
        )
        self._due: Callable[[], Sequence[Row]] = (
            tuple if beats is None else Heartbeats(names, beats).due
        )
        self._topics = Topics(names, wanted, self._source, self._target, told.note)
        self._groups = Groups(names, options.groups, self._source, self._target, told.note)
        self._session_at = 0.0
        self._groups_at = 0.0
        self._groups_said = ""
        self._whole: set[str] = set()
        """Topics that are to be copied from their beginning, whatever ``--start`` says."""
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
        except (AuthenticationError, ProducerAuthenticationError) as error:
            raise MirrorError(str(error), kind=Kind.DENIED) from error
        except (ScanError, ProduceError, ValueError) as error:
            raise MirrorError(str(error)) from error

    def _session(self) -> bool:
        """With one producer. Whether all is done; otherwise another session is needed."""
        names, options = self._options.names, self._options
        for admin in (self._source, self._target):
            admin.check_access()
        self._target.topics()
        internal = {names.state_topic: _STATE, names.offsets_topic: _OFFSETS}
        if options.groups:
            internal[names.checkpoints_topic] = _CHECKPOINTS
        if options.heartbeat_s is not None:
            internal[HEARTBEATS] = _BEATS
        self._existing = {
            topic for topic, own in internal.items() if not self._target.create_internal(topic, own)
        }
        if names.state_topic in self._existing:
            self._require_compacted(names.state_topic)
            # The producer ends another one of this name, which may be of other clusters.
            rows = self._target.records(names.state_topic, exists=True)
            self._origin(read_state(names.state_topic, rows))
        settings = producer_settings(names, options.target, options.codec)
        producer = Producer(settings)
        self._session_at = time.monotonic()
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
        origin = self._origin(state)
        plan = self._topics.sync({topic for topic, _ in known})
        self._topics.refuse_doubles(plan, {topic for topic, _ in state.partitions})
        self._is_begun = state.patterns == self._options.topics.texts
        if self._first is None:
            self._first = frozenset() if self._is_begun else frozenset(plan.topics)
        self._whole = (state.again | self._asked_again(state, plan)) - {topic for topic, _ in known}
        logs = self._settled_logs(plan, known)
        copier = Copier(
            names,
            producer,
            known,
            logs.ends,
            self._options.pace,
            target_ids=logs.topic_ids,
            due=self._due,
        )
        if self._options.groups:
            since = datetime.now(UTC) - SPANS_SINCE
            records = self._stored(names.offsets_topic, since)
            for partition, spans in read_spans(names.offsets_topic, records):
                if partition in known:
                    copier.learn_past(partition, spans)
        copier.learn_last()
        self._write_chains(copier, plan, state.chains, self._first_rows(state, origin, known))
        self._again = set()
        return copier, plan

    def _origin(self, state: State) -> Origin:
        """Of this mirror. Raises MirrorError if the topic of progress is another one's."""
        names = self._options.names
        ids = (self._source.topics()[0], self._target.topics()[0])
        origin = Origin(*ids, names.policy.value)
        check_origin(names.state_topic, state.origin, origin)
        return origin

    def _asked_again(self, state: State, plan: Plan) -> set[str]:
        """Of ``--again``; a note for what is no topic of the mirror's."""
        known = {topic for topic, _ in state.partitions} | set(plan.topics)
        for topic in sorted(self._again - known):
            self._told.note(f"--again {topic}: no such topic is copied")
        return self._again & known

    def _first_rows(
        self, state: State, origin: Origin, known: Mapping[Partition, Progress]
    ) -> list[Row]:
        """What a session changes in the topic of progress before it copies anything."""
        topic = self._options.names.state_topic
        rows: list[Row] = [origin_row(topic, origin)] if state.origin is None else []
        rows += [forgotten_row(topic, one) for one in state.partitions.keys() - known]
        # Kept until the copy has begun: the next session begins there, too.
        rows += [again_row(topic, one, is_due=True) for one in self._whole - state.again]
        rows += [again_row(topic, one, is_due=False) for one in state.again - self._whole]
        return rows

    def _stored(
        self, topic: str, since: datetime | None = None
    ) -> Iterator[tuple[bytes | None, bytes | None]]:
        exists = topic in self._existing
        return self._target.records(topic, since, waits=True, exists=exists)

    def _write_chains(
        self, copier: Copier, plan: Plan, known: dict[str, list[str]], rows: list[Row]
    ) -> None:
        topic = self._options.names.state_topic
        changed = {of: one for of, one in (plan.chains or {}).items() if known.get(of) != one}
        rows += [chain_row(topic, of, chain) for of, chain in changed.items()]
        self._known_chains = known | changed
        if rows:
            copier.write(rows)
        if changed:
            # Of two mirrors that start at once each would look before the other has written.
            self._wait_until_visible(topic)
            self._topics.check_circles(plan)

    def _wait_until_visible(self, topic: str) -> None:
        """All that was committed to a topic of one partition at the target."""
        until = time.monotonic() + MARKERS_S
        end = self._target.ends({topic: 1}, "read_uncommitted")[topic, 0]
        while self._target.ends({topic: 1}, "read_committed")[topic, 0] < end:
            if time.monotonic() > until:
                raise AwayError(f"what was committed to topic {topic} is not visible yet")
            time.sleep(0.05)

    def _settled_logs(self, plan: Plan, known: Mapping[Partition, Progress]) -> Logs:
        """Of the target, once what a former session left is over: its markers come after the
        producer has been opened, and take offsets. Others' transactions may stay open."""
        until = time.monotonic() + MARKERS_S
        while True:
            logs = self._intact_logs(plan, known)
            if self._logs(plan, "read_committed").ends == logs.ends or time.monotonic() > until:
                return logs
            time.sleep(0.05)

    def _intact_logs(self, plan: Plan, known: Mapping[Partition, Progress]) -> Logs:
        """Of the target, with what was mirrored. A new leader may show less for a moment. Raises
        MirrorError if that was lost."""
        until = time.monotonic() + MARKERS_S
        while True:
            logs = self._logs(plan)
            lost = lost_at_target(known, logs)
            if lost is None:
                return logs
            if time.monotonic() > until:
                raise lost
            time.sleep(0.1)

    def _logs(self, plan: Plan, isolation: str = "read_uncommitted") -> Logs:
        """Of the target."""
        names = self._options.names
        partitions = {names.at_target(one): some for one, some in plan.partitions().items()}
        until = time.monotonic() + NEW_TOPIC_S
        while True:
            try:
                return self._target.logs(partitions, isolation)
            except UnknownTopicError:
                # One that was just created.
                if time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def _rounds(self, copier: Copier, plan: Plan) -> bool:
        self._told.began(plan, copier.progress)
        refresh_at = _next_look(plan)
        while True:
            if time.monotonic() >= refresh_at:
                new = self._look_again(copier, plan)
                if new is None:
                    return False
                plan = new
                refresh_at = _next_look(plan)
            is_done = self._round(copier, plan, refresh_at)
            if not self._is_begun:
                names, topics = self._options.names, self._options.topics
                copier.write([patterns_row(names.state_topic, topics.texts)])
                self._is_begun = True
            is_end = is_done and self._options.once
            self._told.copied(copier.progress)
            if is_end or time.monotonic() - self._groups_at >= self._options.group_interval_s:
                self._sync_groups(copier, plan, is_last=is_end)
            if is_end:
                self._visible_ends(copier, plan)
                return True
            if is_done:
                time.sleep(self._options.interval_s)

    def _look_again(self, copier: Copier, plan: Plan) -> Plan | None:
        """What there is to copy now; None if that takes another session."""
        new = self._topics.sync({topic for topic, _ in copier.progress})
        is_old = time.monotonic() - self._session_at > SESSION_S
        if new.grown or is_old or copier.idle_s > IDLE_S:
            return None
        self._topics.refuse_doubles(new, plan.topics)
        logs = self._intact_logs(new, copier.progress)
        if (new.topics, new.offline) != (plan.topics, plan.offline):
            copier.add_target(logs.ends, logs.topic_ids)
            self._told.began(new, copier.progress)
        self._write_chains(copier, new, self._known_chains, [])
        return new

    def _round(self, copier: Copier, plan: Plan, until: float) -> bool:
        """Copies up to the present end; False if that takes longer than ``until``."""
        partitions = {topic: some for topic, some in plan.partitions().items() if some}
        if not partitions:
            copier.commit([])
            return True
        later = plan.topics.keys() - (self._first or ())
        whole = self._whole | later
        with scan(
            partitions,
            start=starts(partitions, copier.progress, self._options.start, whole),
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
        while copier.is_behind(ends := self._logs(plan, "read_committed").ends):
            if time.monotonic() > until:
                self._intact_logs(plan, copier.progress)
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


def _next_look(plan: Plan) -> float:
    return time.monotonic() + (OFFLINE_REFRESH_S if plan.offline else REFRESH_S)


def starts(
    partitions: Mapping[str, Sequence[int]],
    progress: Mapping[Partition, Progress],
    start: str,
    whole: Collection[str],
) -> dict[str, dict[int, Place]]:
    """Where each partition is read from. ``start`` is of topics that are new, without those that
    are copied ``whole``; a partition that is added to a topic is copied from its beginning."""
    known = {topic for topic, _ in progress} | set(whole)
    found: dict[str, dict[int, Place]] = {}
    for topic, numbers in partitions.items():
        first: Place = "earliest" if topic in known else start
        for number in numbers:
            one = progress.get((topic, number))
            place: Place = first if one is None else (one.position, one.epoch)
            found.setdefault(topic, {})[number] = place
    return found


def lost_at_target(known: Mapping[Partition, Progress], logs: Logs) -> MirrorError | None:
    """Returns a MirrorError if mirrored records are gone at the target; None if they are there."""
    for (topic, partition), one in known.items():
        fix = f"--again {topic} copies the topic from its beginning"
        topic_id = logs.topic_ids.get(one.target, "")
        if one.target_id and topic_id and topic_id != one.target_id:
            what = f"topic {one.target} was deleted at the target and created anew"
            return MirrorError(f"{what}: mirrored records are lost there", fix)
        end = logs.ends.get((one.target, partition))
        if end is not None and end < one.target_end:
            what = f"partition {partition} of topic {one.target} ends at {end} at the target"
            lost = f"before {one.target_end}: mirrored records are lost there"
            return MirrorError(f"{what}, {lost}", fix)
    return None
