"""Carries a plan out: batch after batch, with a throttle, while somebody watches or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from pyrklog.balance.directories import Directories
from pyrklog.balance.model import Placement
from pyrklog.balance.record import Record
from pyrklog.balance.throttle import AutoThrottle
from pyrklog.base.problems import Problem
from pyrklog.cli import reassign_record
from pyrklog.cli.admin_common import say, show
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError, Exit, counted, tell
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.reassign_plan import AUTO, amount, parse_throttle
from pyrklog.cli.reassign_progress import (
    Moves,
    add_times,
    applied,
    largest,
    line,
    listing,
    read_moves,
)

WATCH_INTERVAL_S = 1.0
SETTLED_S = 5.0
"""Longest wait until brokers tell that replicas have gone."""
SETTLED_PAUSE_S = 0.1
_TABLES = (OutputFormat.TABLE, OutputFormat.WIDE)
PLAIN_RATE = "50MB/s"
"""Instead of a rate that follows the brokers, where they do not tell how they are."""
CHANGE_LEAST = 0.1
"""A throttle that changes by less is left as it is: each change is written for every broker."""


class Throttle:
    """The rate of a plan's copies."""

    def __init__(self, connection: Connection, admin: ReassignmentAdmin, given: str) -> None:
        self._connection = connection
        self._admin = admin
        self._auto: AutoThrottle | None = None
        self._sources: list[Any] = []
        self.rate_bytes = 0
        self._given = given
        self._plan: Collection[PartitionKey] = ()

    @property
    def follows(self) -> bool:
        """Whether somebody has to go on looking."""
        return self._auto is not None

    def begin(self, before: Placement, wanted: Placement) -> str:
        """Sets the rate; returns what to say."""
        self._plan = wanted.keys()
        if self._given != AUTO:
            self.rate_bytes = parse_throttle(self._given)
            told = f"each broker copies at most {amount(self.rate_bytes)}/s"
        else:
            told = self._begin_auto()
        self._admin.throttle(before, wanted, self.rate_bytes)
        return told

    def _begin_auto(self) -> str:
        from pyrklog.cli import reassign_signs

        described = self._admin.describe()
        addresses = {one.broker_id: (one.host, one.port) for one in described.brokers}
        if not reassign_signs.all_ours(addresses):
            self.rate_bytes = parse_throttle(PLAIN_RATE)
            told = "these brokers do not tell how they bear it"
            return f"{told}: each copies at most {amount(self.rate_bytes)}/s"
        self._sources = reassign_signs.sources(addresses, self._admin.leaders(), self._plan)
        calm = reassign_signs.read(self._sources)
        self._auto = AutoThrottle(calm.latency_ms)
        self.rate_bytes = self._auto.rate_bytes
        return f"each broker copies at most {amount(self.rate_bytes)}/s for a start"

    def step(self) -> str | None:
        """Looks at the sources, and changes the rate; returns what to say."""
        from pyrklog.cli import reassign_signs

        if self._auto is None:
            return None
        behind = self._admin.behind(self._plan)
        rate = self._auto.step(reassign_signs.read(self._sources, behind))
        if abs(rate - self.rate_bytes) < CHANGE_LEAST * self.rate_bytes:
            return None
        self._admin.set_rate(rate)
        self.rate_bytes = rate
        return f"at most {amount(rate)}/s now: {self._auto.why}"


class Run:
    """One plan with its record."""

    def __init__(
        self,
        connection: Connection,
        admin: ReassignmentAdmin,
        options: Settings,
        record: Record,
        path: Path | None,
        output: OutputFormat = OutputFormat.TABLE,
        directories: Directories | None = None,
        complete: Callable[[Record], Record] | None = None,
    ) -> None:
        """``complete`` adds bytes and prediction to the record. It may take seconds where a broker
        is silent, so that a plan of one batch begins before."""
        self._complete = complete
        self._admin = admin
        self._directories = directories or {}
        self._output = output
        # Standard output is a program's, if it has asked for another form than a table.
        is_told = output in _TABLES
        self._options = options if is_told else replace(options, quiet=True)
        self._path = path
        self._connection = connection
        self._throttle: Throttle | None = None
        self._errors: dict[PartitionKey, str] = {}
        self.record = record

    def carry_out(self, throttle: str | None, *, watch: bool) -> list[Exit]:
        """Begins the batches one after the other, and waits for each but the last; with ``watch``
        for that, too. Returns the partitions' exit codes."""
        before, _ = self._admin.placement()
        wanted = self._left(before)
        if throttle is not None:
            self._throttle = Throttle(self._connection, self._admin, throttle)
            # An unfinished plan is throttled as a whole: what was there before is its source.
            said = self._throttle.begin({**before, **self.record.before}, self.record.after)
            say(self._options, said)
        watch = watch or (self._throttle is not None and self._throttle.follows)
        reassign_record.save(self._path, self.record)
        codes = self._place()
        if Exit.FAILED in codes:
            if throttle is not None:
                self._admin.unthrottle({topic for topic, _ in self.record.entries})
            return codes
        codes = self._begin_batches(wanted, before, watch)
        mine = self.record.entries.keys()
        if watch and self._admin.moving().keys() & mine:
            self.watch(set(mine))
        if watch:
            wait_for_directories(self._admin, self._options, self._directories)
        is_over = watch or Exit.OK not in codes
        if not codes and not watch:
            is_over = not self._admin.moving().keys() & mine
        if throttle is not None and is_over:
            self._admin.unthrottle({topic for topic, _ in mine})
        if watch and (Exit.OK in codes or not codes):
            codes.append(self.conclude(is_watched=True))
        return codes

    def _place(self) -> list[Exit]:
        """Names the directories of new replicas, and begins moves between directories. A refusal
        ends the plan before anything is copied."""
        if not self._directories:
            return []
        refused = self._admin.place(self._directories)
        for (key, number), code in refused.items():
            what = f"{name_of(key)} on broker {number}: {code.name}"
            fix = "`kafka-log-dirs.sh --describe` names the directories"
            tell(CliError(Problem.REASSIGNMENT_REFUSED, what, fix))
        return [Exit.FAILED] if refused else []

    def _begin_batches(self, wanted: Placement, before: Placement, watch: bool) -> list[Exit]:
        batches = [[key for key in keys if key in wanted] for keys in self.record.batches()]
        batches = [keys for keys in batches if keys]
        codes: list[Exit] = []
        for number, keys in enumerate(batches, 1):
            if len(batches) > 1:
                count = counted(len(keys), "partition")
                say(self._options, f"batch {number} of {len(batches)}: {count}")
            began = self._begin({key: wanted[key] for key in keys}, before)
            codes += began
            if self._complete is not None:
                self.record = self._complete(self.record)
                reassign_record.save(self._path, self.record)
            if Exit.OK in began and (watch or number < len(batches)):
                self.watch(set(keys))
        return codes

    def show_all(self) -> None:
        """For programs: each partition of the plan, and how it went."""
        if self._output in _TABLES:
            return
        told = read_moves(self._admin, self.record.entries.keys(), self.record)
        show(applied(self.record, told, self._errors), self._output)

    def _left(self, before: Placement) -> dict[PartitionKey, tuple[int, ...]]:
        """What is neither there nor on its way."""
        moving = self._admin.moving()
        found = {}
        for key, after in self.record.after.items():
            now = before.get(key)
            if key in moving:
                one = moving[key]
                now = tuple(b for b in one.replicas if b not in one.removing_replicas)
            if now != after:
                found[key] = after
        done = len(self.record.entries) - len(found)
        if done:
            say(self._options, f"{counted(done, 'partition')} there already, or on the way")
        return found

    def _begin(self, wanted: Placement, before: Placement) -> list[Exit]:
        results = self._admin.alter(dict(wanted))
        codes = []
        for place in wanted:
            code, why = results[place]
            if code:
                codes.append(report(place, code, why))
                self._errors[place] = why or code.name
            else:
                codes.append(Exit.OK)
                say(self._options, arrow(place, before, wanted))
        return codes

    def watch(self, places: set[PartitionKey]) -> None:
        """Prints moves until none is left."""
        cluster_id = self._admin.placement()[1]
        watch(self._admin, self._options, places, self._output, cluster_id, self.record, self._step)

    def _step(self) -> None:
        said = self._throttle.step() if self._throttle is not None else None
        if said is not None:
            say(self._options, said)

    def conclude(self, *, is_watched: bool) -> Exit:
        """Says how well it was predicted, and whether all is as planned."""
        if settled(self._admin, self.record.after).items() >= self.record.after.items():
            self.record = finished(self._admin, self.record, self._path, is_watched=is_watched)
            told = reassign_record.verdict(self.record)
            if told is not None and self.record.total_bytes:
                say(self._options, told)
        return conclude(self._admin, self._options, self.record.after, self._directories)


def watch(
    admin: ReassignmentAdmin,
    options: Settings,
    places: set[PartitionKey] | None,
    output: OutputFormat,
    cluster_id: str | None,
    record: Record | None = None,
    step: Any = None,
) -> Moves:
    """Prints moves until none is left; returns the last ones, which are none."""
    before: dict[PartitionKey, int] = {}
    seen_at = time.monotonic()
    while True:
        moves = read_moves(admin, places, record)
        now = time.monotonic()
        add_times(moves, before, now - seen_at)
        if not moves.items:
            return moves
        if not options.quiet:
            show(listing(moves, cluster_id, record), output)
            if moves.whole is not None and record is not None:
                typer.echo(line(moves.whole, record), err=output not in _TABLES)
        before, seen_at = moves.left, now
        if step is not None:
            step()
        time.sleep(WATCH_INTERVAL_S)


def finished(
    admin: ReassignmentAdmin, record: Record, path: Path | None, *, is_watched: bool
) -> Record:
    """The record with its end, kept in its file."""
    if record.finished_ms is not None:
        return record
    sizes = largest(admin.sizes(without_silent=True))
    real = 0
    for key, one in record.entries.items():
        real += sizes.get(key, 0) * len(set(one.after) - set(one.before))
    done = record.finished(reassign_record.now_ms(), real, is_watched=is_watched)
    reassign_record.save(path, done)
    return done


def settled(admin: ReassignmentAdmin, wanted: Placement) -> Placement:
    """All replicas, once nothing of a plan moves. Brokers hear of the end a moment after the
    controller, and name those that have gone until then."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        after, _ = admin.placement()
        late = any(set(after.get(place, ())) > set(wanted[place]) for place in wanted)
        if not late or time.monotonic() > deadline:
            return after
        time.sleep(SETTLED_PAUSE_S)


def wait_for_directories(
    admin: ReassignmentAdmin, options: Settings, directories: Directories
) -> None:
    """Until no replica moves between directories any more."""
    before = -1
    while directories and (left := sum(admin.astray(directories).values())):
        if left != before:
            say(options, f"{counted(left, 'replica')} on the way to another directory")
        before = left
        time.sleep(WATCH_INTERVAL_S)


def conclude(
    admin: ReassignmentAdmin,
    options: Settings,
    wanted: Placement,
    directories: Directories | None = None,
) -> Exit:
    """Tells what is not as planned; what is on the way between directories counts as that."""
    after = settled(admin, wanted)
    other = [place for place in wanted if after.get(place) != wanted[place]]
    for place in other:
        found = listed(after[place]) if place in after else "gone"
        what = f"{name_of(place)} is {found}, not {listed(wanted[place])}"
        tell(CliError(Problem.NOT_AS_PLANNED, what))
    astray = admin.astray(directories) if directories else {}
    for (place, number), moves in astray.items():
        where = "on the way to" if moves else "not in"
        path = (directories or {})[place, number]
        what = f"{name_of(place)} is {where} {path} of broker {number}"
        tell(CliError(Problem.NOT_AS_PLANNED, what))
    if other or astray:
        return Exit.DIFFERS
    count = "1 partition is" if len(wanted) == 1 else f"{len(wanted)} partitions are"
    say(options, f"done: {count} where the plan wants them")
    return Exit.OK


def report(place: PartitionKey, code: Any, why: str | None) -> Exit:
    from pyrklog.protocol.errors import ErrorCode

    is_unknown = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    problem = Problem.PARTITION_NOT_FOUND if is_unknown else Problem.REASSIGNMENT_REFUSED
    refused = CliError(problem, f"{name_of(place)}: {why or code.name}")
    tell(refused)
    return refused.code


def arrow(
    place: PartitionKey, before: Placement, wanted: Mapping[PartitionKey, tuple[int, ...]]
) -> str:
    return f"{name_of(place)}: {listed(before[place])} -> {listed(wanted[place])}"


def name_of(place: PartitionKey) -> str:
    return f"{place[0]}-{place[1]}"


def listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
