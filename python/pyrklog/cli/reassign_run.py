"""Carries a plan out: batch after batch, with a throttle, while somebody watches or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import typer

from pyrklog.balance.directories import Directories
from pyrklog.balance.model import Placement
from pyrklog.balance.record import Record
from pyrklog.base.problems import Problem
from pyrklog.cli import reassign_record
from pyrklog.cli.admin_common import say, show
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.deeds import is_document
from pyrklog.cli.failures import CliError, Exit, counted, tell
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.cli.reassign_cluster import ReassignmentAdmin, target_of
from pyrklog.cli.reassign_progress import (
    Looks,
    Moves,
    add_times,
    applied,
    largest,
    line,
    listing,
    read_moves,
)
from pyrklog.cli.reassign_rate import Rate, fresh_brokers
from pyrklog.cli.reassign_summary import fill_line
from pyrklog.cli.throttles import Throttles, names_of
from pyrklog.protocol.errors import ErrorCode

T = TypeVar("T")

WATCH_INTERVAL_S = 1.0
SETTLED_S = 10.0
"""Longest wait until brokers tell that replicas have gone."""
SETTLED_PAUSE_S = 0.1
NO_RESULT = ErrorCode.UNKNOWN_SERVER_ERROR, "the controller tells nothing of it"
HOW_TO_END = "the same command again goes on, `pyrklog cluster reassign cancel` ends it"
_TABLES = (OutputFormat.TABLE, OutputFormat.WIDE)


class Limits(NamedTuple):
    """What a run leaves alone. ``changed``: partitions that others have changed since the plan
    began, and how. ``begins``: what may be begun; None: all. ``overrides``: whether what moves to
    something else gets a new target."""

    changed: Mapping[PartitionKey, str] = {}
    begins: Collection[PartitionKey] | None = None
    overrides: bool = False


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
        limits: Limits | None = None,
    ) -> None:
        """``complete`` adds bytes and prediction to the record. It may take seconds where a broker
        is silent, so that a plan of one batch begins before."""
        self._limits = limits or Limits()
        self._complete = complete
        self._admin = admin
        self._directories = {
            (key, broker): path
            for (key, broker), path in (directories or {}).items()
            if key not in self._limits.changed
        }
        self._output = output
        self._options = heard(options, output)
        self._path = path
        self._connection = connection
        self._rate: Rate | None = None
        self._errors = dict(self._limits.changed)
        self.record = record
        self.how_to_end = HOW_TO_END

    @property
    def _mine(self) -> set[PartitionKey]:
        return self.record.entries.keys() - self._limits.changed.keys()

    def _only_mine(self, placement: Placement) -> dict[PartitionKey, tuple[int, ...]]:
        mine = self._mine
        return {key: replicas for key, replicas in placement.items() if key in mine}

    @property
    def _copying(self) -> dict[PartitionKey, tuple[int, ...]]:
        """What a throttle is for: a replica that starts at the end only follows."""
        wants = self._only_mine(self.record.after)
        return {key: after for key, after in wants.items() if key not in self.record.at_end}

    @property
    def _filled(self) -> dict[PartitionKey, tuple[int, ...]]:
        wants = self._only_mine(self.record.after)
        return {key: after for key, after in wants.items() if key in self.record.at_end}

    def carry_out(self, throttle: str | None, *, watch: bool) -> list[Exit]:
        """Begins the batches one after the other, and waits for each but the last; with ``watch``
        for that, too. Returns the partitions' exit codes."""
        before, _ = self._admin.placement()
        wanted = self._left(before)
        # One that went on after a crash may find the throttle of the run before.
        is_throttled = throttle is not None or self.record.throttle is not None
        # `status` must not take the throttle away before the moves begin.
        self.record = replace(self.record, is_begun=not (is_throttled and wanted))
        # Before anything changes: without it nothing could be undone.
        reassign_record.save(self._path, self.record)
        refused = self._tell_changed()
        # A topic that was deleted since stops nothing.
        there = {one: path for one, path in self._directories.items() if one[0] in before}
        self._directories = there
        codes = self._place()
        if Exit.FAILED in codes:
            self._mark_begun()  # no throttle was set
            return refused + codes
        try:
            if throttle is not None:
                self._rate = Rate(self._connection, self._admin, throttle)
                # The plan is throttled as a whole: what was there before is its source.
                told = self._rate.begin(self.record.before, self._copying, self._filled)
                say(self._options, told)
            watch = watch or (self._rate is not None and self._rate.follows)
            codes = self._begin_batches(wanted, before, watch)
            self._end(codes, is_throttled, watch)
        except BaseException:
            if is_throttled:
                told = "what moves, moves on, and its throttle stays"
                typer.echo(f"note: {told}; {self.how_to_end}", err=True)
            raise
        if watch and (Exit.OK in codes or not codes):
            codes.append(outlast(lambda: self.conclude(is_watched=True)))
        return refused + codes

    def _tell_changed(self) -> list[Exit]:
        for key, why in self._limits.changed.items():
            fix = "make a plan anew, or begin this one anew with another --progress FILE"
            what = f"{name_of(key)} stays: {why}"
            tell(CliError(Problem.REASSIGNMENT_REFUSED, what, fix))
        return [Problem.REASSIGNMENT_REFUSED.exit] * len(self._limits.changed)

    def _end(self, codes: Sequence[Exit], is_throttled: bool, watch: bool) -> None:
        """Waits for the rest, if somebody watches, and takes the throttle away."""
        mine = self._mine
        throttles = Throttles(self._connection, self._admin)
        if is_throttled and self._limits.changed:
            # Named by this plan before others changed them.
            moving = outlast(self._admin.moving)
            mine |= {key for key in self._limits.changed if key not in moving}
        sure = names_of(self.record.before, self._copying)
        if watch:
            if outlast(self._admin.moving).keys() & mine:
                self.watch(mine)
            wait_for_directories(self._admin, self._options, self._directories)
            if is_throttled:
                outlast(lambda: throttles.end(mine, sure=sure))
                outlast(lambda: end_fills(throttles, self.record))
        elif is_throttled and Exit.OK not in codes and not self._admin.moving().keys() & mine:
            throttles.end(mine, sure=sure)
            end_fills(throttles, self.record)

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
        if batches and len(self.record.batches()) > 1:
            # A batch of the run before may be under way still.
            under_way = self._admin.moving().keys() & self._mine
            if under_way:
                self.watch(under_way)
        for number, every in enumerate(batches, 1):
            keys = every if number == 1 else self._unchanged(every, codes)
            if not keys:
                continue
            if len(batches) > 1:
                count = counted(len(keys), "partition")
                say(self._options, f"batch {number} of {len(batches)}: {count}")
            targets = {key: wanted[key] for key in keys}
            begin = partial(self._begin, targets, before)
            began = begin() if number == 1 else outlast(begin)
            codes += began
            self._mark_begun()
            if number == 1:
                self._say_fill(wanted)
            if self._complete is not None:
                self._measure(self._complete)
            if Exit.OK in began and (watch or number < len(batches)):
                self.watch(set(keys))
                if number < len(batches) and not self._has_gone_on(keys):
                    return [*codes, Exit.DIFFERS]
        return codes

    def _unchanged(self, keys: Sequence[PartitionKey], codes: list[Exit]) -> list[PartitionKey]:
        """Without what others have changed while earlier batches moved, which is told."""
        from pyrklog.cli.reassign_past import changed_since

        overrides = self._limits.overrides
        changed = outlast(lambda: changed_since(self._admin, self.record, overrides=overrides))
        found = {key: changed[key] for key in keys if key in changed}
        for key, why in found.items():
            self._errors[key] = why
            what = f"{name_of(key)} stays: {why}"
            tell(CliError(Problem.REASSIGNMENT_REFUSED, what, "make a plan anew"))
            codes.append(Problem.REASSIGNMENT_REFUSED.exit)
        self._limits = self._limits._replace(changed={**self._limits.changed, **found})
        return [key for key in keys if key not in found]

    def _has_gone_on(self, keys: Collection[PartitionKey]) -> bool:
        """Whether the batch is where it was to be. What moves no more, and is not there, was
        cancelled: then nothing more begins. What is gone stops nothing."""
        begun = [key for key in keys if key not in self._errors]
        deadline = time.monotonic() + SETTLED_S
        while True:
            now, _ = outlast(self._admin.placement)
            moving = outlast(self._admin.moving)
            astray = [
                key
                for key in begun
                if key in now and key not in moving and now[key] != self.record.after[key]
            ]
            # Brokers hear of the end of moves a moment after the controller.
            if not astray or time.monotonic() > deadline:
                break
            time.sleep(SETTLED_PAUSE_S)
        if not astray:
            return True
        key = astray[0]
        what = f"{name_of(key)} is {listed(now[key])}, not {listed(self.record.after[key])}"
        fix = "it was cancelled: no further batch begins; `apply` again goes on"
        tell(CliError(Problem.NOT_AS_PLANNED, what, fix))
        return False

    def _mark_begun(self) -> None:
        if not self.record.is_begun:
            self.record = replace(self.record, is_begun=True)
            reassign_record.keep(self._path, self.record)

    def _say_fill(self, wanted: Placement) -> None:
        """Unless a part of it was begun before: its time has passed."""
        added = {key for key in self.record.at_end if self.record.entries[key].targets}
        if self.record.fill is not None and added <= wanted.keys():
            say(self._options, fill_line(self.record.fill))

    def _measure(self, complete: Callable[[Record], Record]) -> None:
        """Adds the prediction; the moves go on without it, too."""
        try:
            self.record = complete(self.record)
        except CliError as error:
            typer.echo(f"note: how long it takes is not known: {error.what}", err=True)
        else:
            reassign_record.keep(self._path, self.record)

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
        for key, after in self._only_mine(self.record.after).items():
            now = target_of(moving[key]) if key in moving else before.get(key)
            if now != after:
                found[key] = after
        done = len(self._mine) - len(found)
        if done:
            say(self._options, f"{counted(done, 'partition')} there already, or on the way")
        begins = self._limits.begins
        return {key: after for key, after in found.items() if begins is None or key in begins}

    def _begin(self, wanted: Placement, before: Placement) -> list[Exit]:
        moving = {} if self._limits.overrides else self._admin.moving()
        handed = self.record.handed_over
        taken = {
            place: target_of(moving[place])
            for place in wanted
            if place in moving
            and target_of(moving[place]) not in (wanted[place], handed.get(place))
        }
        asked = {place: replicas for place, replicas in wanted.items() if place not in taken}
        results = self._admin.alter(asked, self.record.at_end) if asked else {}
        codes = []
        for place in wanted:
            code, why = results.get(place, NO_RESULT)
            if place in taken:
                code = ErrorCode.REASSIGNMENT_IN_PROGRESS
                why = f"it moves to {listed(taken[place])}, by another plan"
            if code:
                codes.append(report(place, code, why))
                self._errors[place] = why or code.name
            else:
                codes.append(Exit.OK)
                from_end = " from the end" if place in self.record.at_end else ""
                say(self._options, arrow(place, before, wanted) + from_end)
        return codes

    def watch(self, places: set[PartitionKey]) -> None:
        """Prints moves until none is left."""
        known = self.record.cluster_id
        shown = self._admin, self._options, places, self._output, known
        moves = watch(*shown, self.record, self._step, self._path)
        self.record = moves.record or self.record

    def _step(self) -> None:
        said = self._rate.step() if self._rate is not None else None
        if said is not None:
            say(self._options, said)

    def conclude(self, *, is_watched: bool) -> Exit:
        """Says how well it was predicted, and whether all is as planned."""
        if settled(self._admin, self.record.after).items() >= self.record.after.items():
            self.record = finished(self._admin, self.record, self._path, is_watched=is_watched)
            told = reassign_record.verdict(self.record)
            if told is not None and (self.record.total_bytes or self.record.fill is not None):
                say(self._options, told)
        wanted = self._only_mine(self.record.after)
        return conclude(self._admin, self._options, wanted, self._directories)


def end_fills(throttles: Throttles, record: Record | None) -> None:
    """Brokers that a throttled plan had back-fill do so at their own rates again."""
    if record is not None and record.throttle is not None:
        filled = {key: record.after[key] for key in record.at_end}
        throttles.set_fill_rate(fresh_brokers(record.before, filled), None)


def watch(
    admin: ReassignmentAdmin,
    options: Settings,
    places: set[PartitionKey] | None,
    output: OutputFormat,
    cluster_id: str | None,
    record: Record | None = None,
    step: Any = None,
    path: Path | None = None,
) -> Moves:
    """Prints moves until none is left; returns the last ones, which are none. While the cluster is
    out of reach, it waits. ``path``: where what is learned is kept, by the command that began."""
    before: dict[PartitionKey, int] = {}
    seen_at = time.monotonic()
    looks = Looks()
    while True:
        moves = outlast(partial(read_moves, admin, places, record, looks))
        now = time.monotonic()
        if record is not None and moves.seen is not None and moves.whole is not None:
            record = moves.record = reassign_record.noticed(path, record, moves.seen, moves.whole)
        add_times(moves, before, now - seen_at)
        if not moves.items:
            return moves
        if not options.quiet and not is_document():
            show(listing(moves, cluster_id, record), output)
            if moves.whole is not None and record is not None:
                typer.echo(line(moves.whole, record), err=output not in _TABLES)
        before, seen_at = moves.left, now
        if step is not None:
            outlast(step)
        time.sleep(WATCH_INTERVAL_S)


def outlast(call: Callable[[], T]) -> T:
    """Calls again, and again, while the cluster is out of reach, which is told once: what was begun
    is not left alone because the controller or a network was away for a while."""
    is_told = False
    while True:
        try:
            return call()
        except CliError as error:
            if error.code not in (Exit.UNREACHABLE, Exit.TIMED_OUT):
                raise
            if not is_told:
                typer.echo(f"note: waits for the cluster: {error.what}", err=True)
            is_told = True
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
        if key not in record.at_end:
            real += sizes.get(key, 0) * len(one.targets)
    done = record.finished(reassign_record.now_ms(), real, is_watched=is_watched)
    reassign_record.keep(path, done)
    reassign_record.learn(done)
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
    while directories:
        left = sum(outlast(lambda: admin.astray(directories)).values())
        if not left:
            return
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


def heard(options: Settings, output: OutputFormat) -> Settings:
    """Standard output is a program's, if it has asked for another form than a table."""
    return options if output in _TABLES else replace(options, quiet=True)


def report(place: PartitionKey, code: Any, why: str | None) -> Exit:
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
