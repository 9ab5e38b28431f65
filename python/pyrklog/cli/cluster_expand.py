"""``pyrklog cluster expand``: new brokers take over their share."""

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, say, show
from pyrklog.cli.failures import CliError, Exit, exit_with
from pyrklog.cli.options import MaxFill, OnlySaid, Output, OutputFormat, Settings, Yes, option

if TYPE_CHECKING:
    from pathlib import Path

    from pyrklog.balance.filling import Fill
    from pyrklog.balance.model import Placement
    from pyrklog.cli.connection import Connection, PartitionKey
    from pyrklog.cli.expand_moves import Expansion
    from pyrklog.cli.expansion import Start
    from pyrklog.cli.output import Listing
    from pyrklog.cli.promotion import Promotion
    from pyrklog.protocol.reassignments import OngoingPartitionReassignment

WATCH_INTERVAL_S = 1.0


class Mode(StrEnum):
    """``tail``: new replicas start at their leaders' ends; no disk is read for them."""

    TAIL = "tail"
    COPY = "copy"


class How(NamedTuple):
    """Options of the command."""

    throttle: str | None
    plan: str | None
    watch: bool
    dry_run: bool
    fill_max: float


def expand(
    options: Settings,
    brokers: list[str] | None = option(
        "--broker N", "A broker that gets its share; may be repeated.", None
    ),
    topics: list[str] | None = option("-t, --topic T,...", "Only these; default: all.", None),
    mode: Mode | None = option(
        "--mode tail|copy",
        "tail: new replicas start at their leaders' ends, and get older records later, or wait "
        "until retention has deleted them. copy: they copy all before. Default: tail.",
        None,
    ),
    throttle: str | None = option(
        "--throttle RATE|auto",
        "As of `cluster reassign apply`, for back-fills, too; needs --plan or -w.",
        None,
    ),
    plan: str | None = option(
        "--plan FILE", "Write the plan there, for `reassign status` and `cancel`.", None
    ),
    max_fill: MaxFill = None,
    status: bool = option(
        "--status",
        "Show what new replicas still lack. Where nothing moves to --broker, its throttle goes.",
        False,
    ),
    cancel: bool = option("--cancel", "Cancel what is not done: earlier replicas stay.", False),
    promote: bool = option(
        "--promote",
        "Delete what new replicas lack, so that they are whole at once. Refused where a group or a "
        "consumer may need it.",
        False,
    ),
    without_group: list[str] | None = option(
        "--without-group G", "With --promote: a group that nobody needs; may be repeated.", None
    ),
    yes: Yes = False,
    watch: bool = option("-w, --watch", "Wait until nothing of it moves any more.", False),
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Give new brokers their share of the partitions.

    A replica that starts at its leader's end leads nothing and is not in sync before it is whole.
    Compacted topics are copied.
    """
    from pyrklog.cli.reassign_plan import check_throttle, parse_fill
    from pyrklog.cli.reassign_planning import check_names

    asked = any(one is not None for one in (mode, throttle, plan, max_fill))
    doings = {"--status": status, "--cancel": cancel, "--promote": promote}
    _check_arguments(brokers, [name for name, is_on in doings.items() if is_on], is_asked=asked)
    if without_group and not promote:
        raise CliError(Problem.ARGUMENTS_DISAGREE, "--without-group goes with --promote alone")
    check_throttle(throttle)
    fill_max = parse_fill(max_fill)
    if throttle is not None and plan is None and not watch:
        # Nothing else would know when the throttle is to go.
        what = "--throttle needs --plan FILE, or -w"
        fix = "`cluster reassign status FILE` takes the throttle away when the plan is done"
        raise CliError(Problem.ARGUMENT_MISSING, what, fix)
    fresh = _numbers(brokers or [])
    names = [name for text in topics or [] for name in text.split(",") if name]
    connection = connect(options)
    run = _Run(options, connection, fresh, names, output)
    check_names(names, run.before)
    if status:
        run.show_status(watch=watch)
    elif cancel:
        run.cancel(dry_run=dry_run)
    elif promote:
        run.promote(frozenset(without_group or ()), dry_run=dry_run, asks=not yes)
    else:
        run.begin(How(throttle, plan, watch, dry_run, fill_max), is_tail=mode is not Mode.COPY)


class _Run:
    def __init__(
        self,
        options: Settings,
        connection: "Connection",
        fresh: set[int],
        topics: list[str],
        output: OutputFormat,
    ) -> None:
        from pyrklog.cli.reassign_cluster import ReassignmentAdmin
        from pyrklog.cli.reassign_run import heard

        self._options = heard(options, output)
        self._connection = connection
        self._admin = ReassignmentAdmin(connection)
        self._fresh = fresh
        self._topics = topics
        self._output = output
        self.before, self._cluster_id = self._admin.placement()

    def begin(self, how: How, *, is_tail: bool) -> None:
        from pyrklog.balance.prediction import Limit
        from pyrklog.cli.expand_moves import how_to_end
        from pyrklog.cli.expansion import NO_START, from_the_end, tell_copied
        from pyrklog.cli.reassign_apply import say_status
        from pyrklog.cli.reassign_plan import AUTO
        from pyrklog.cli.reassign_planning import begin_record, first_record
        from pyrklog.cli.reassign_run import Run

        wanted = self._plan(how.fill_max)
        start = from_the_end(self._admin, self.before, wanted) if is_tail else NO_START
        tell_copied(start)
        under_way = self._moves()
        if under_way:
            self._go_on(how, under_way, is_all=not wanted)
        if not wanted:
            if not under_way:
                say(self._options, "nothing to do: the brokers have their share")
            return
        first = first_record(self._admin, wanted, how.throttle, at_end=start.at_end)
        record, complete = begin_record(self._connection, self._admin, first, Limit(), start)
        if how.dry_run:
            self._say_only(wanted, start, record.fill)
            return
        path = self._write(how.plan, wanted)
        known = self._connection, self._admin, self._options, record, path, self._output
        run = Run(*known, complete=complete)
        run.how_to_end = how_to_end(self._fresh)
        watch = how.watch or how.throttle == AUTO
        codes = run.carry_out(how.throttle, watch=watch)
        run.show_all()
        if not watch and how.throttle is not None and Exit.OK in codes:
            say_status(self._options, how.plan)
        exit_with(codes)

    def _write(self, plan: str | None, wanted: "Placement") -> "Path | None":
        """Writes the plan; returns where its record is to be. Raises :class:`CliError` where the
        file keeps another one that is under way."""
        from pyrklog.cli import reassign_past, reassign_record
        from pyrklog.cli.reassign_plan import render_plan
        from pyrklog.cli.reassign_planning import write_plan
        from pyrklog.cli.throttles import Throttles

        if plan is None:
            return None
        path = reassign_record.able(reassign_record.path_of(plan), None)
        earlier = reassign_record.load(path)
        if earlier is not None and reassign_past.is_in_the_way(earlier, None, self._cluster_id):
            moving = self._admin.moving()
            reassign_past.refuse_under_way(earlier, moving, path)
            throttles = Throttles(self._connection, self._admin)
            reassign_past.put_aside(earlier, moving.keys(), path, throttles)
        write_plan(plan, render_plan(wanted))
        return path

    def _go_on(
        self,
        how: How,
        under_way: dict["PartitionKey", "OngoingPartitionReassignment"],
        *,
        is_all: bool,
    ) -> None:
        """What moves to the brokers already. ``is_all``: nothing else is to begin, so somebody who
        watches, or gives a throttle, waits for that."""
        from pyrklog.cli.expand_moves import go_on
        from pyrklog.cli.failures import counted
        from pyrklog.cli.reassign_cluster import target_of
        from pyrklog.cli.reassign_planning import show_planned

        count, known = counted(len(under_way), "partition"), self._expansion
        say(self._options, f"{count} on the way{known.where} already")
        if not is_all:
            return
        if how.dry_run or not (how.watch or how.throttle is not None):
            fix = f"`pyrklog cluster expand --broker {self._listed} --status` shows how far"
            say(self._options, fix)
        else:
            code = go_on(known, under_way, how.throttle)
            exit_with([code])
        targets = {key: target_of(one) for key, one in under_way.items()}
        show_planned(self._admin, targets, self._output)

    def _plan(self, fill_max: float) -> "Placement":
        """Says what lacks room. Raises :class:`CliError` if nothing moves for lack of it."""
        from pyrklog.cli.expansion import choose
        from pyrklog.cli.reassign_measure import measure
        from pyrklog.cli.reassign_summary import refuse_without_room, room_lines

        found = measure(self._connection, self._admin, fill_max=fill_max)
        self._refuse_dead({}, set(found.cluster.brokers))
        chosen = [
            key
            for key in found.cluster.partitions
            if key not in found.moving and (not self._topics or key[0] in self._topics)
        ]
        plan = choose(found.cluster, self._fresh, chosen)
        for line in room_lines(plan.full):
            typer.echo(f"held back: {line}", err=True)
        if not self._moves():
            refuse_without_room(found.cluster, plan)
        return plan.changed

    def _refuse_dead(
        self,
        moving: dict["PartitionKey", "OngoingPartitionReassignment"],
        alive: set[int] | None = None,
    ) -> None:
        """Raises :class:`CliError` if a named broker is not alive, unless something moves to it."""
        if alive is None:
            alive = {one.broker_id for one in self._admin.describe().brokers}
        gets = {broker for one in moving.values() for broker in one.adding_replicas}
        dead = self._fresh - alive - gets
        if dead:
            what = f"broker {','.join(map(str, sorted(dead)))} is not there"
            known = ",".join(map(str, sorted(alive)))
            raise CliError(Problem.BROKER_NOT_FOUND, what, f"brokers alive: {known}")

    @property
    def _expansion(self) -> "Expansion":
        from pyrklog.cli.expand_moves import Expansion

        known = self._connection, self._admin, self._options, self._output, self._cluster_id
        return Expansion(*known, self._fresh)

    @property
    def _listed(self) -> str:
        return ",".join(map(str, sorted(self._fresh)))

    def _say_only(self, wanted: "Placement", start: "Start", fill: "Fill | None") -> None:
        from pyrklog.cli.reassign_planning import show_planned
        from pyrklog.cli.reassign_run import arrow
        from pyrklog.cli.reassign_summary import fill_line

        for place in sorted(wanted):
            from_end = " from the end" if place in start.at_end else ""
            say(self._options, f"{arrow(place, self.before, wanted)}{from_end} (not done)")
        if fill is not None:
            say(self._options, fill_line(fill))
        show_planned(self._admin, wanted, self._output)

    def show_status(self, *, watch: bool) -> None:
        from pyrklog.cli.expand_moves import end_throttle, tell_left

        moving = self._moves()
        self._refuse_dead(moving)
        if watch:
            self._watch()
            moving = {}
        if moving or self._output not in (OutputFormat.TABLE, OutputFormat.WIDE):
            show(self._listing(moving), self._output)
        if moving:
            return
        say(self._options, f"nothing moves{self._expansion.where}")
        if self._fresh:
            end_throttle(self._expansion)
        elif not self._topics:
            tell_left(self._expansion)

    def _watch(self) -> None:
        """Prints moves until none is left."""
        from pyrklog.cli.reassign_run import outlast

        while moving := outlast(self._moves):
            if not self._options.quiet:
                show(self._listing(moving), self._output)
            time.sleep(WATCH_INTERVAL_S)

    def _moves(self) -> dict["PartitionKey", "OngoingPartitionReassignment"]:
        """Those of the named topics that add one of the named brokers, or any."""
        return {
            place: one
            for place, one in sorted(self._admin.moving().items())
            if (not self._topics or place[0] in self._topics)
            and (not self._fresh or not self._fresh.isdisjoint(one.adding_replicas))
        }

    def _listing(self, moving: dict["PartitionKey", "OngoingPartitionReassignment"]) -> "Listing":
        from pyrklog.cli.expansion import add_times, backlogs
        from pyrklog.cli.output import Listing, columns

        # A broker that has just died stays listed for a moment.
        sizes = self._admin.sizes(without_silent=True) if moving else {}
        items: list[dict[str, Any]] = []
        for place, lacking in backlogs(self._admin, moving).items():
            whole = max((size for key, size in sizes.items() if key[:2] == place), default=0)
            for backlog in lacking:
                there = sizes.get((*place, backlog.broker), 0)
                is_known = backlog.start is not None and backlog.leader_start is not None
                mode = Mode.TAIL if backlog.is_partial else Mode.COPY
                items.append(
                    {
                        "topic": place[0],
                        "partition": place[1],
                        **backlog.item(),
                        "mode": mode.value if is_known else None,
                        "by": backlog.by if backlog.is_partial else None,
                        "bytes_left": max(0, whole - there),
                    }
                )
        add_times(self._admin, items)
        shown = columns(
            "topic, partition>, broker>, mode, start>, leader_start> LEADER START, "
            "records_left> RECORDS LEFT, bytes_left> BYTES LEFT, by WHOLE BY, eta_s> ETA S"
        )
        return Listing("pyrklog.expansion/1", shown, items, self._cluster_id)

    def cancel(self, *, dry_run: bool) -> None:
        from pyrklog.cli.expand_moves import end_throttle
        from pyrklog.cli.reassign_run import listed, name_of, report

        chosen = self._moves()
        self._refuse_dead(chosen)
        if not chosen:
            say(self._options, f"nothing moves{self._expansion.where}")
        if dry_run:
            say(self._options, *[f"{name_of(place)}: would be cancelled" for place in chosen])
            return
        codes: list[Exit] = []
        ended: set[PartitionKey] = set()
        results = self._admin.alter(dict.fromkeys(chosen)) if chosen else {}
        for place, (code, why) in results.items():
            if code:
                codes.append(report(place, code, why))
            else:
                codes.append(Exit.OK)
                ended.add(place)
                one = chosen[place]
                stay = [broker for broker in one.replicas if broker not in one.adding_replicas]
                say(self._options, f"{name_of(place)}: cancelled, stays on {listed(stay)}")
        # Also if nothing moves any more: a command may have been stopped before the end.
        end_throttle(self._expansion, ended)
        exit_with(codes)

    def promote(self, passed_over: frozenset[str], *, dry_run: bool, asks: bool) -> None:
        """Deletes what the new replicas lack, where nobody is known to need it."""
        from pyrklog.cli.admin_common import confirm
        from pyrklog.cli.expansion import backlogs
        from pyrklog.cli.failures import counted, tell
        from pyrklog.cli.promotion import Findings, wanted
        from pyrklog.cli.reassign_run import name_of

        moving = self._moves()
        self._refuse_dead(moving)
        found = wanted(backlogs(self._admin, moving))
        if not found:
            say(self._options, "nothing to promote: no new replica lacks records")
            return
        told = Findings(self._connection, self._admin, [one.key for one in found])
        codes = []
        clear = []
        for one in found:
            why = told.objections(one, passed_over)
            for text in why:
                refused = CliError(Problem.PROMOTION_REFUSED, f"{name_of(one.key)}: {text}")
                tell(refused)
                codes.append(refused.code)
            clear += [] if why else [one]
        if dry_run:
            for one in clear:
                count = counted(one.records, "record")
                say(self._options, f"{name_of(one.key)}: would lose {count} below {one.start}")
        elif clear:
            if asks:
                names = list(dict.fromkeys(one.key[0] for one in clear))
                count = counted(sum(one.records for one in clear), "record")
                confirm(names, f"delete {count} from all replicas")
            codes += self._promote(clear)
        exit_with(codes)

    def _promote(self, clear: "list[Promotion]") -> list[Exit]:
        from pyrklog.cli.failures import counted, tell
        from pyrklog.cli.promotion import delete
        from pyrklog.cli.reassign_run import name_of

        codes = []
        for one, error in delete(self._connection, self._admin, clear):
            codes.append(Exit.OK if error is None else error.code)
            if error is not None:
                tell(error)
                continue
            count = counted(one.records, "record")
            told = f"{count} below {one.start} deleted; its new replicas are whole soon"
            say(self._options, f"{name_of(one.key)}: {told}")
        return codes


def _check_arguments(brokers: list[str] | None, doings: list[str], *, is_asked: bool) -> None:
    if len(doings) > 1:
        what = f"{doings[0]} and {doings[1]} exclude each other"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what)
    if doings and is_asked:
        what = f"{doings[0]} takes neither --mode, --throttle, --plan nor --max-fill"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what)
    if not brokers and doings != ["--status"]:
        what = "no broker is named"
        raise CliError(Problem.ARGUMENT_MISSING, what, "name the new ones with --broker N")


def _numbers(texts: list[str]) -> set[int]:
    from pyrklog.cli.reassign_planning import numbers

    return {number for text in texts for number in numbers(text, "--broker")}
