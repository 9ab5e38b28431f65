"""Moves records back batch by batch: written by all replicas in sync, then kept by the group."""

from dataclasses import dataclass, field
from typing import NamedTuple

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError, counted
from pyrklog.cli.interrupts import held
from pyrklog.cli.output import Item, Listing, columns
from pyrklog.cli.pace import Pace
from pyrklog.cli.records import InputRecord, Record, from_message
from pyrklog.cli.redrive_consumer import RedriveConsumer
from pyrklog.cli.redrive_rules import Left, Moved, Reason, Rules
from pyrklog.cli.redrive_writer import RedriveWriter, Sent
from pyrklog.cli.topic_copy import FIRST_BATCH_RECORDS, next_limit

POLL_S = 0.1
ROWS_MAX = 1000
"""Topics and reasons that are counted apart; the rest is counted by its reason."""
COLUMNS = columns("topic, moved>, skipped>, bytes>, why, first*")


@dataclass
class Count:
    """Of records with the same fate. ``first``: where the first of them is; ``bytes``: of those
    that are moved as they are written, with the headers that are added."""

    moved: int = 0
    skipped: int = 0
    bytes: int = 0
    first: str = ""


class Fate(NamedTuple):
    """``topic`` as far as it is known; ``reason`` None: moved."""

    topic: str
    reason: Reason | None = None
    detail: str = ""


@dataclass
class Tally:
    counts: dict[Fate, Count] = field(default_factory=dict)

    def add(self, fate: Fate, place: str, size: int) -> None:
        if fate not in self.counts and len(self.counts) >= ROWS_MAX:
            fate = Fate("", fate.reason)
        count = self.counts.setdefault(fate, Count(first=place))
        count.bytes += size
        if fate.reason is None:
            count.moved += 1
        else:
            count.skipped += 1

    @property
    def moved(self) -> int:
        return sum(one.moved for one in self.counts.values())

    @property
    def stuck(self) -> int:
        """Records that were meant to be moved, and are not."""
        return sum(
            one.skipped for fate, one in self.counts.items() if fate.reason is not Reason.FILTER
        )

    def check(self) -> None:
        """Raises :class:`CliError` if records were to be moved, and could not."""
        if self.stuck:
            problem = Problem.PARTLY_DONE if self.moved else Problem.NOT_REDRIVEN
            what = f"{counted(self.stuck, 'record')} cannot be redriven"
            raise CliError(problem, what, "see WHY; `-o wide` tells where the first ones are")


class Redrive:
    def __init__(
        self,
        reading: RedriveConsumer,
        rules: Rules,
        *,
        limit: int | None = None,
        pace: Pace | None = None,
        verbose: bool = False,
    ) -> None:
        self._reading = reading
        self._writing: RedriveWriter | None = None
        self._rules = rules
        self._limit = limit
        self._pace = pace or Pace(None)
        self._verbose = verbose
        self.tally = Tally()

    def run(self, writing: RedriveWriter | None) -> None:
        """``writing`` None: a dry run. Raises :class:`CliError` if it cannot go on. What was
        written by then, also before a Ctrl-C, is kept as done."""
        self._writing = writing
        size = FIRST_BATCH_RECORDS
        while not self._reading.finished():
            wanted = self._next_batch(size)
            if wanted <= 0:
                return
            messages = self._reading.read(wanted, POLL_S)
            if not messages:
                self._reading.check_progress()
            records = [from_message(message) for message in messages]
            try:
                try:
                    for record in records:
                        self._take(record)
                finally:
                    self._settle()
            except KeyboardInterrupt:
                # It may have come before the batch was settled, or after.
                self._settle()
                raise
            if records:
                self._reading.wait_anew()  # targets may have been slow
            if self._reading.seen.records:
                size = next_limit(*self._reading.seen)

    def _next_batch(self, size: int) -> int:
        bounds = [size]
        if self._limit is not None:
            bounds.append(self._limit - self.tally.moved)
        if self._pace.batch is not None:
            bounds.append(self._pace.batch)
        return min(bounds)

    def _take(self, record: Record) -> None:
        key = (record.topic, record.partition)
        decided = self._rules.decide(record)
        if isinstance(decided, Moved) and not self._has_room(key, record.offset):
            decided = Left(Reason.GAPS, decided.topic)
        if isinstance(decided, Left):
            fate = Fate(decided.topic or "", decided.reason)
            self.tally.add(fate, _place(key, record.offset), _size(record))
            return
        self._reading.expect(key, record.offset)
        if self._writing is None:
            size = _size(decided.record)
            self.tally.add(Fate(decided.topic), _place(key, record.offset), size)
            self._reading.done(key, record.offset)
        else:
            self._pace.wait()
            self._writing.send(key, record.offset, decided)

    def _has_room(self, key: PartitionKey, offset: int) -> bool:
        if self._reading.has_room(key, offset):
            return True
        if not self._reading.is_expecting(key):
            return False
        self._settle()  # what is known to be done needs less room
        return self._reading.has_room(key, offset)

    def _settle(self) -> None:
        """Ends a batch: counts what became of its records, and keeps it. A Ctrl-C is raised after
        that, since what is written and not kept would be moved again."""
        with held:
            self._keep_sent()

    def _keep_sent(self) -> None:
        problem: CliError | None = None
        if self._writing is None:
            self._reading.commit()
            return
        for sent in self._writing.flush():
            if sent.error is None:
                self._reading.done(sent.key, sent.offset)
            elif not sent.is_refused:
                about = f"{_place(sent.key, sent.offset)} was not written to {sent.moved.topic}"
                problem = problem or self._writing.explain(sent, about)
                continue
            self._count(sent)
        self._reading.commit()
        if problem is not None:
            raise self._with_moved(problem)

    def _count(self, sent: Sent) -> None:
        topic, place = sent.moved.topic, _place(sent.key, sent.offset)
        size = _size(sent.moved.record)
        if sent.error is not None:
            self.tally.add(Fate(topic, Reason.REFUSED, str(sent.error.str())), place, size)
            return
        self.tally.add(Fate(topic), place, size)
        if self._verbose and sent.place is not None:
            name, partition, offset = sent.place
            typer.echo(f"{place} -> {name}:{partition}@{offset}", err=True)

    def _with_moved(self, problem: CliError) -> CliError:
        if not self.tally.moved:
            return problem
        told = counted(self.tally.moved, "record")
        were = "was" if self.tally.moved == 1 else "were"
        what = f"{problem.what}; {told} before {were} redriven, and a second run goes on there"
        return CliError(Problem.PARTLY_DONE, what, problem.fix, why=problem.why)


def _place(key: PartitionKey, offset: int) -> str:
    return f"{key[0]}:{key[1]}@{offset}"


def _size(record: Record | InputRecord) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name.encode()) + len(value or b"") for name, value in record.headers)


def listing(tally: Tally, rules: Rules, cluster_id: str | None) -> Listing:
    """Topics first, then what was skipped."""
    items: list[Item] = [
        {
            "topic": fate.topic or None,
            "moved": one.moved,
            "skipped": one.skipped,
            "bytes": one.bytes,
            "reason": None if fate.reason is None else fate.reason.value,
            "why": _why(fate, rules),
            "first": one.first,
        }
        for fate, one in sorted(
            tally.counts.items(), key=lambda one: (one[0].reason or "", one[0].topic)
        )
    ]
    return Listing("pyrklog.redrive/1", COLUMNS, items, cluster_id)


def _why(fate: Fate, rules: Rules) -> str:
    match fate.reason:
        case None:
            return ""
        case Reason.FILTER:
            return "--filter does not hold"
        case Reason.NO_HEADER if rules.header is not None:
            return f"no header {rules.header} names a topic"
        case Reason.NO_HEADER:
            return "no header names a topic: give --to"
        case Reason.NO_TOPIC:
            return "the topic does not exist"
        case Reason.SAME_TOPIC:
            return "its header names this topic"
        case Reason.INTERNAL:
            return "its header names an internal topic"
        case Reason.TOO_OFTEN:
            return f"redriven {rules.max_redrives} times already: see --max-redrives"
        case Reason.GAPS:
            return "too many gaps to remember: run without --filter first"
        case Reason.REFUSED:
            return fate.detail
