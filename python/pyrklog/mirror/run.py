"""A mirror's rounds, and what becomes of failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from pyrklog.mirror.claims import new_claims, without_doubles
from pyrklog.mirror.cluster import ClusterAdmin, Logs
from pyrklog.mirror.copy import COLUMNS, SCAN_MEMORY_BYTES, Copier, producer_settings
from pyrklog.mirror.errors import (
    AwayError,
    Kind,
    MirrorError,
    MovedError,
    SlowError,
    how_again,
)
from pyrklog.mirror.groups import Groups
from pyrklog.mirror.heartbeats import Heartbeats
from pyrklog.mirror.keeping import Keeping
from pyrklog.mirror.names import HEARTBEATS, Offsets
from pyrklog.mirror.options import Options, Told
from pyrklog.mirror.others import Others
from pyrklog.mirror.own_progress import read_own, require_compacted
from pyrklog.mirror.refused import explain
from pyrklog.mirror.silent import Silent
from pyrklog.mirror.state import (
    Origin,
    Partition,
    Progress,
    Row,
    State,
    again_row,
    chain_row,
    check_origin,
    claim_row,
    forgotten_row,
    origin_row,
    patterns_row,
    read_spans,
    read_state,
)
from pyrklog.mirror.stopped import FAILURES, PASSING, stopped
from pyrklog.mirror.target_logs import TargetLogs
from pyrklog.mirror.topics import Look, Plan, Topics, Wanted
from pyrklog.mirror.transaction_size import TransactionSize
from pyrklog.producing import (
    ClusterUnavailableError,
    ProduceError,
    Producer,
    TransactionFencedError,
)
from pyrklog.scanning import LogTruncatedError, OffsetOutOfRangeError, ScanError, scan
from pyrklog.scanning.places import Place

REFRESH_S = 60.0
"""How often topics, partitions and options are looked at."""
OFFLINE_REFRESH_S = 10.0
"""The same while a partition has no leader."""
SPANS_SINCE = timedelta(days=1)
"""How far back a start reads translations of offsets."""
SCAN_TIMEOUT_S = 30.0
"""Of a partition without progress: less than a transaction may be open."""
IDLE_S = 3600.0
"""After so long without a transaction a session ends: coordinators forget producers."""
SESSION_S = 12 * 3600.0
"""A session ends after so long in any case; a partition forgets a producer that has not written to
it for a day."""
WAIT_MIN_S, WAIT_MAX_S = 1.0, 30.0
MOVED_WITHIN_S, MOVED_WAIT_S, MOVED_MAX = 10.0, 0.5, 100
"""A session that lasts so long has found its place; of others at most so many follow in a row."""
_STATE = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}
_OFFSETS = {"cleanup.policy": "delete", "retention.ms": str(7 * 86_400_000)}
_CHECKPOINTS = _BEATS = {"cleanup.policy": "compact"}


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
        self._others = Others(self._target, names.target, told.note)
        self._silent = Silent("source", self._source.silent, told.note)
        self._keeping: Keeping | None = None
        if options.offsets is Offsets.KEEP:
            self._keeping = Keeping(
                names, self._source, self._target, told.note, is_whole=options.once
            )
        self._logs = TargetLogs(
            names,
            self._target,
            told.note,
            is_whole=options.once,
            recopies=self._keeping is not None,
        )
        self._groups = Groups(
            names,
            options.groups,
            self._source,
            self._target,
            told.note,
            lambda: self._stored(names.checkpoints_topic),
            is_whole=options.once,
        )
        self._session_at = 0.0
        self._groups_at = 0.0
        self._groups_said = ""
        self._whole: set[str] = set()
        """Topics that are to be copied from their beginning, whatever ``--start`` says."""
        self._has_begun = False
        self._size = TransactionSize()
        self._claimed: dict[str, str] = {}

    @property
    def is_partial(self) -> bool:
        """Whether topics that were asked for are not mirrored."""
        return self._topics.is_partial or self._others.has_waiting

    def look(self) -> Look:
        """What a run would copy, and what the target has; nothing is changed there. Raises
        MirrorError, also for what a run refuses."""
        try:
            state = self._state_before()
            look = self._looked(state)
            self._refuse_filled(state, look, look.topics)
            if self._keeping is not None:
                self._keeping.writer(self._options.codec)
            if state.origin is not None:
                require_compacted(self._target, self._options.names.state_topic)
        except FAILURES as error:
            raise self._stopped(error) from error
        self._asked_again(state, look)
        return look

    def run(self) -> None:
        """Raises MirrorError."""
        wait_s = WAIT_MIN_S
        said = ""
        moved = 0
        while True:
            begun = time.monotonic()
            try:
                if self._explained():
                    return
                said = ""
            except SlowError as error:
                self._told.note(error.what)
            except MovedError as error:
                # Readers do not see yet what was appended last, perhaps by another session.
                moved = 0 if time.monotonic() - begun > MOVED_WITHIN_S else moved + 1
                if moved <= MOVED_MAX:
                    time.sleep(MOVED_WAIT_S)
                    continue
                # A follower there hangs, and stays in sync for as long as nobody removes it.
                if self._options.once or not self._has_begun:
                    raise MirrorError(error.what, kind=Kind.UNREACHABLE) from error
                if error.what != said:
                    self._told.note(f"{error.what}; trying again")
                    said = error.what
                time.sleep(WAIT_MAX_S)
            except PASSING as error:
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
        except PASSING:
            raise
        except FAILURES as error:
            raise self._stopped(error) from error

    def _stopped(self, error: Exception) -> MirrorError:
        names, keeps = self._options.names, self._keeping is not None
        again = how_again("TOPIC", names.at_target("TOPIC"), keeps=keeps)
        return stopped(error, names, again)

    def _session(self) -> bool:
        """With one producer. Whether all is done; otherwise another session is needed."""
        names, options = self._options.names, self._options
        for admin in (self._source, self._target):
            admin.check_access()
        # A mirror that is refused leaves nothing behind, and ends no other process of its name.
        state = self._state_before()
        self._origin(state)
        if state.origin is None or self._again:
            look = self._looked(state)
            self._refuse_filled(state, look, look.topics if state.origin is None else self._again)
        writer = None if self._keeping is None else self._keeping.writer(options.codec)
        self._create_internal()
        if names.state_topic in self._existing:
            require_compacted(self._target, names.state_topic)
        producer = Producer(producer_settings(names, options.target, options.codec, self._size))
        self._session_at = time.monotonic()
        copier = self._copier(producer, writer)
        try:
            plan = self._begin(copier)
            self._has_begun = True
            return self._rounds(copier, plan)
        except TransactionFencedError as error:
            if self._size.is_timed_out(copier.open_s):
                raise self._too_slow(copier, error, is_ended=True) from error
            raise self._fenced() from error
        except ClusterUnavailableError as error:
            if copier.open_s:
                raise self._too_slow(copier, error, is_ended=False) from error
            raise
        except ProduceError as error:
            refused = explain(error, copier, self._source, self._target)
            if refused is None:
                raise
            raise refused from error
        except BaseException:
            # Else readers of committed records would wait until its time is over.
            with suppress(ProduceError):
                producer.abort()
            raise

    def _copier(self, producer: Producer, writer: Producer | None) -> Copier:
        names, pace = self._options.names, self._options.pace
        if self._keeping is None or writer is None:
            return Copier(names, producer, {}, {}, pace, size=self._size, due=self._due)
        return self._keeping.copier(producer, writer, pace, self._size, self._due)

    def _create_internal(self) -> None:
        names, options = self._options.names, self._options
        internal = {names.state_topic: _STATE}
        if self._keeping is None:
            internal[names.offsets_topic] = _OFFSETS
        if options.groups:
            internal[names.checkpoints_topic] = _CHECKPOINTS
        if options.heartbeat_s is not None:
            internal[HEARTBEATS] = _BEATS
        self._existing = {
            topic for topic, own in internal.items() if not self._target.create_internal(topic, own)
        }

    def _too_slow(self, copier: Copier, error: ProduceError, *, is_ended: bool) -> MirrorError:
        """Of a transaction that was given up: the next ones are smaller, or have more time."""
        text = f"a transaction at {self._target.cluster.alias} took too long: {error}"
        if not self._size.timed_out(copier.sent_bytes, is_ended=is_ended):
            return AwayError(text if is_ended else str(error))
        most, seconds = self._size.bytes >> 10, self._size.timeout_ms // 1000
        return SlowError(f"{text}; going on with at most {most} KiB in {seconds} s")

    def _fenced(self) -> MirrorError:
        names, alias = self._options.names, self._target.cluster.alias
        return MirrorError(
            f"another process that mirrors as {names.mirror} has begun: it has the same "
            f"transactional id, {names.transactional_id}, so {alias} fenced this one: no record is "
            "there twice",
            "run one process for each mirror; one for other topics gets another --name",
        )

    def _begin(self, copier: Copier) -> Plan:
        """After the producer has been opened nobody else writes."""
        names = self._options.names
        state = read_own(self._target, names.state_topic, copier.write)
        known = self._known(state)
        copier.progress.update(known)
        origin = self._origin(state)
        look = self._looked(state)
        begun = {topic for topic, _ in state.partitions}
        self._refuse_filled(state, look, look.topics)
        self._is_begun = state.patterns == self._options.topics.texts
        self._first = self._of_start(state, look)
        self._whole = (state.again | self._asked_again(state, look)) - {topic for topic, _ in known}
        self._known_chains, self._claimed = state.chains, state.claims
        look = self._announce(copier, look, begun, self._first_rows(state, origin, known))
        self._again = set()
        plan = self._topics.apply(look)
        logs = self._logs.settled(plan, known)
        copier.add_target(logs.ends, logs.topic_ids)
        if self._keeping is not None:
            self._adopt(self._keeping, copier, plan, logs)
            return plan
        self._learn_spans(copier)
        if self._options.start == "latest" and not self._is_begun:
            self._begin_at_ends(copier, plan)
        return plan

    def _known(self, state: State) -> dict[Partition, Progress]:
        """Where a session goes on."""
        return {
            partition: one
            for partition, one in state.partitions.items()
            if partition[0] not in self._again
        }

    def _of_start(self, state: State, look: Look) -> frozenset[str]:
        """Topics that ``--start`` is of."""
        if self._first is not None:
            return self._first
        is_begun = state.patterns == self._options.topics.texts
        return frozenset() if is_begun else frozenset(look.topics)

    def _state_before(self) -> State:
        """Before this process writes: another one of its name may be copying."""
        topic = self._options.names.state_topic
        if topic not in self._target.topics()[1]:
            return State()
        return read_state(topic, self._target.records(topic, exists=True))

    def _looked(self, state: State) -> Look:
        """What there is to mirror. Raises MirrorError for what is refused, whatever the target's
        logs have."""
        self._origin(state)
        look = self._topics.look({topic for topic, _ in self._known(state)})
        begun = {topic for topic, _ in state.partitions}
        return without_doubles(self._options.names, self._target, look, begun, self._others)

    def _refuse_filled(self, state: State, look: Look, topics: Collection[str]) -> None:
        """Raises MirrorError if copies of these topics that keep offsets cannot begin at the
        target: before anything is written, since progress would be forgotten."""
        if self._keeping is None:
            return
        known = self._known(state)
        at_end: frozenset[str] = frozenset()
        if self._options.start == "latest":
            whole = state.again | self._again | {topic for topic, _ in known}
            at_end = self._of_start(state, look) - whole
        plan = self._topics.begun(look, topics, known)
        copied = self._again & {topic for topic, _ in state.partitions}
        logs = self._logs.read(plan)
        self._silent.add(self._keeping.refuse_filled(plan, logs, at_end, copied))

    def _adopt(self, keeping: Keeping, copier: Copier, plan: Plan, logs: Logs) -> None:
        """Goes on with the target's partitions at their ends, and begins those that are new."""
        names, topics = self._options.names, self._options.topics
        known = {topic for topic, _ in copier.progress}
        first = (self._first or frozenset()) - self._whole - known
        at_end = first if self._options.start == "latest" else frozenset()
        rows = [] if self._is_begun else [patterns_row(names.state_topic, topics.texts)]
        self._silent.add(keeping.adopt(plan, logs, at_end, rows))
        # As with ends: what does not answer now is copied whole.
        self._first = frozenset()
        self._is_begun = True

    def _begin_at_ends(self, copier: Copier, plan: Plan) -> None:
        """Writes the ends of the topics that are there. Those that come later are copied whole,
        also if the mirror dies before it has copied anything."""
        names, topics = self._options.names, self._options.topics
        new = (self._first or frozenset()) - self._whole - {topic for topic, _ in copier.progress}
        wanted = {topic: some for topic, some in plan.partitions().items() if topic in new}
        logs = self._source.logs(wanted, "read_committed", leaves=not self._options.once)
        self._silent.add(logs.left_out)
        row = patterns_row(names.state_topic, topics.texts)
        copier.begin_at(logs.ends, logs.topic_ids, [row])
        # What had no leader that answers is copied whole, in this session as after a restart.
        self._first = frozenset()
        self._is_begun = True

    def _learn_spans(self, copier: Copier) -> None:
        topic = self._options.names.offsets_topic
        if self._options.groups:
            records = self._stored(topic, datetime.now(UTC) - SPANS_SINCE)
            for partition, spans in read_spans(topic, records):
                if partition in copier.progress:
                    copier.learn_past(partition, spans)
        copier.learn_last()

    def _origin(self, state: State) -> Origin:
        """Of this mirror. Raises MirrorError if the topic of progress is another one's, or both
        clusters are one."""
        names = self._options.names
        ids = (self._source.topics()[0], self._target.topics()[0])
        origin = Origin(*ids, names.policy.value, self._options.offsets.value)
        check_origin(names.state_topic, state.origin, origin)
        return origin

    def _asked_again(self, state: State, look: Look) -> set[str]:
        """Of ``--again``; a note for what is no topic of the mirror's."""
        known = {topic for topic, _ in state.partitions} | set(look.topics)
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

    def _announce(
        self, copier: Copier, look: Look, begun: Collection[str], rows: list[Row]
    ) -> Look:
        """Writes from which clusters topics come, and which are copied to which, before any is
        created. Raises MirrorError if another mirror has written the like: of two that start at
        once each would look before the other has written. Returns what is left to copy."""
        names = self._options.names
        topic = names.state_topic
        chains = look.new_chains(self._known_chains)
        claims = new_claims(names, look, self._claimed)
        rows += [chain_row(topic, of, chain) for of, chain in chains.items()]
        rows += [claim_row(topic, of, target) for of, target in claims.items()]
        self._known_chains = self._known_chains | chains
        self._claimed = self._claimed | claims
        if rows:
            copier.write(rows)
        if chains or claims:
            self._logs.wait_until_visible(topic)
            try:
                self._topics.check_circles(look)
                return without_doubles(names, self._target, look, begun, self._others)
            except MirrorError as error:
                if claims and not isinstance(error, AwayError):
                    copier.write([claim_row(topic, of, None) for of in claims])
                raise
        return look

    def _rounds(self, copier: Copier, plan: Plan) -> bool:
        self._told.began(plan, copier.progress)
        refresh_at = _next_look(plan)
        while True:
            partitions = plan.partitions()
            is_back = [one.look(partitions) for one in (self._silent, self._logs)]
            if time.monotonic() >= refresh_at or any(is_back):
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
                self._logs.visible_ends(copier, plan)
                return True
            if is_done:
                time.sleep(self._options.interval_s)

    def _look_again(self, copier: Copier, plan: Plan) -> Plan | None:
        """What there is to copy now; None if that takes another session."""
        names = self._options.names
        is_old = time.monotonic() - self._session_at > SESSION_S
        if is_old or copier.idle_s > IDLE_S:
            return None
        look = self._topics.look({topic for topic, _ in copier.progress})
        look = without_doubles(names, self._target, look, plan.topics, self._others)
        self._refuse_filled(State(partitions=copier.progress), look, look.topics)
        look = self._announce(copier, look, plan.topics, [])
        new = self._topics.apply(look)
        if new.grown:
            return None
        logs = self._logs.intact(new, copier.progress)
        copier.add_target(logs.ends, logs.topic_ids)
        if self._keeping is not None:
            if self._keeping.lacks(logs):
                return None
            self._adopt(self._keeping, copier, new, logs)
        if (new.topics, new.offline) != (plan.topics, plan.offline):
            self._told.began(new, copier.progress)
        return new

    def _round(self, copier: Copier, plan: Plan, until: float) -> bool:
        """Copies up to the present end; False if that takes longer than ``until``."""
        answering = self._logs.without_silent(self._silent.without(plan.partitions()))
        answering = copier.copyable(answering)
        partitions = {topic: some for topic, some in answering.items() if some}
        if not partitions:
            copier.commit([])
            return True
        later = plan.topics.keys() - (self._first or ())
        whole = self._whole | later
        try:
            with scan(
                partitions,
                start=starts(partitions, copier.progress, self._options.start, whole),
                columns=COLUMNS,
                missing=self._options.missing,
                unanswered="fail" if self._options.once else "leave",
                memory_bytes=SCAN_MEMORY_BYTES,
                batch_bytes=copier.batch_bytes(),
                timeout_s=SCAN_TIMEOUT_S,
                **self._source.reading(),
            ) as reading:
                is_done = copier.copy(reading, until)
                self._silent.add(reading.left_out)
                return is_done
        except (OffsetOutOfRangeError, LogTruncatedError):
            # Of a topic that was created anew no records are lost.
            with suppress(ScanError):
                logs = self._source.logs(partitions, "read_committed", leaves=True)
                copier.check_ids(logs.topic_ids)
            raise

    def _sync_groups(self, copier: Copier, plan: Plan, *, is_last: bool) -> None:
        """What may pass, such as a coordinator that loads its groups, is tried again: for a while
        if there is no next time."""
        if not self._options.groups:
            return
        self._groups_at = time.monotonic()
        ends = self._logs.visible_ends(copier, plan)
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
                self._groups.sync(copier.places(), copier.write)
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
