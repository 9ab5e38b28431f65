"""``pyrklog cluster expand``: new brokers take over their share."""

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, say, show
from pyrklog.cli.failures import CliError, Exit, exit_with, tell
from pyrklog.cli.options import OnlySaid, Output, OutputFormat, Settings, option

if TYPE_CHECKING:
    from pyrklog.cli.connection import PartitionKey
    from pyrklog.cli.expansion import Start
    from pyrklog.cli.output import Listing
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import Placement
    from pyrklog.protocol.reassignments import OngoingPartitionReassignment

WATCH_INTERVAL_S = 1.0


class Mode(StrEnum):
    """``tail``: new replicas start at their leaders' ends; no disk is read for them."""

    TAIL = "tail"
    COPY = "copy"


class _Plan(NamedTuple):
    before: "Placement"
    wanted: "Placement"
    start: "Start"


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
        "--throttle RATE", "Copy no faster than this on each broker; needs --plan or -w.", None
    ),
    plan: str | None = option(
        "--plan FILE", "Write the plan there, for `reassign status` and `cancel`.", None
    ),
    status: bool = option("--status", "Show what new replicas still lack; change nothing.", False),
    cancel: bool = option("--cancel", "Cancel what is not done: earlier replicas stay.", False),
    watch: bool = option("-w, --watch", "Wait until nothing of it moves any more.", False),
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Give new brokers their share of the partitions.

    A replica that starts at its leader's end leads nothing and is not in sync before it is whole.
    Compacted topics are copied.
    """
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import parse_throttle

    asked = (mode, throttle, plan) != (None, None, None)
    _check_arguments(brokers, is_asked=asked, status=status, cancel=cancel)
    if throttle is not None and plan is None and not watch:
        # Nothing else would know when the throttle is to go.
        what = "--throttle needs --plan FILE, or -w"
        fix = "`cluster reassign status FILE` takes the throttle away when the plan is done"
        raise CliError(Problem.ARGUMENT_MISSING, what, fix)
    rate_bytes = None if throttle is None else parse_throttle(throttle)
    fresh = _numbers(brokers or [])
    names = [name for text in topics or [] for name in text.split(",") if name]
    admin = ReassignmentAdmin(connect(options))
    before, cluster_id = admin.placement()
    _check_topics(names, before)
    run = _Run(options, admin, fresh, names, output, cluster_id)
    if status:
        run.show_status(watch=watch)
        return
    if cancel:
        run.cancel(dry_run=dry_run)
        return
    found = run.plan(before, is_tail=mode is not Mode.COPY)
    if plan is not None and not dry_run:
        _write(plan, found)
    run.begin(found, rate_bytes, watch=watch, dry_run=dry_run)


class _Run:
    def __init__(
        self,
        options: Settings,
        admin: "ReassignmentAdmin",
        fresh: list[int],
        topics: list[str],
        output: OutputFormat,
        cluster_id: str | None,
    ) -> None:
        self._options = options
        self._admin = admin
        self._fresh = fresh
        self._topics = topics
        self._output = output
        self._cluster_id = cluster_id

    def plan(self, before: "Placement", *, is_tail: bool) -> _Plan:
        from pyrklog.cli.expansion import Start, choose, from_the_end

        racks = {one.broker_id: one.rack for one in self._admin.describe().brokers}
        dead = [broker for broker in self._fresh if broker not in racks]
        if dead:
            alive = ",".join(map(str, sorted(racks)))
            what = f"broker {','.join(map(str, dead))} is not there"
            raise CliError(Problem.BROKER_NOT_FOUND, what, f"brokers alive: {alive}")
        moving = self._admin.moving()
        still = {place: replicas for place, replicas in before.items() if place not in moving}
        wanted = choose(still, self._sizes(), racks, self._fresh, self._topics)
        start = from_the_end(self._admin, before, wanted) if is_tail else Start(set(), {})
        return _Plan(before, wanted, start)

    def _sizes(self) -> dict["PartitionKey", int]:
        """A partition's size is that of its largest replica."""
        found: dict[PartitionKey, int] = {}
        for (topic, index, _), size in self._admin.sizes().items():
            found[topic, index] = max(size, found.get((topic, index), 0))
        return found

    def begin(self, plan: _Plan, rate_bytes: int | None, *, watch: bool, dry_run: bool) -> None:
        from pyrklog.cli.expansion import tell_copied

        tell_copied(plan.start)
        if not plan.wanted:
            self._say("nothing to do: the brokers have their share")
            return
        if dry_run:
            self._say(*[f"{self._arrow(place, plan)} (not done)" for place in sorted(plan.wanted)])
            return
        if rate_bytes is not None:
            copied = {p: to for p, to in plan.wanted.items() if p not in plan.start.at_end}
            self._admin.throttle(plan.before, copied, rate_bytes)
        results = self._admin.alter(plan.wanted, at_end=plan.start.at_end)
        codes = []
        for place in sorted(plan.wanted):
            code, why = results[place]
            if code:
                codes.append(_refused(place, why or code.name))
                continue
            codes.append(Exit.OK)
            self._say(self._arrow(place, plan))
        if rate_bytes is not None and Exit.OK not in codes:
            self._admin.unthrottle({topic for topic, _ in plan.wanted})
        if watch and Exit.OK in codes:
            self._watch(set(plan.wanted))
            if rate_bytes is not None:
                self._admin.unthrottle({topic for topic, _ in plan.wanted})
        exit_with(codes)

    def _arrow(self, place: "PartitionKey", plan: _Plan) -> str:
        from_end = " from the end" if place in plan.start.at_end else ""
        old, new = (",".join(map(str, one[place])) for one in (plan.before, plan.wanted))
        return f"{place[0]}-{place[1]}: {old} -> {new}{from_end}"

    def show_status(self, *, watch: bool) -> None:
        if watch:
            self._watch(None)
            return
        show(self._listing(self._moves(None)), self._output)

    def _watch(self, places: "set[PartitionKey] | None") -> None:
        """Prints moves until none is left."""
        while moving := self._moves(places):
            if not self._options.quiet:
                show(self._listing(moving), self._output)
            time.sleep(WATCH_INTERVAL_S)

    def _moves(
        self, places: "set[PartitionKey] | None"
    ) -> dict["PartitionKey", "OngoingPartitionReassignment"]:
        """Those of the named topics that add one of the named brokers, or any."""
        return {
            place: one
            for place, one in sorted(self._admin.moving().items())
            if (places is None or place in places)
            and (not self._topics or place[0] in self._topics)
            and (not self._fresh or not set(self._fresh).isdisjoint(one.adding_replicas))
        }

    def _listing(self, moving: dict["PartitionKey", "OngoingPartitionReassignment"]) -> "Listing":
        from pyrklog.cli.expansion import backlogs
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
        shown = columns(
            "topic, partition>, broker>, mode, start>, leader_start> LEADER START, "
            "records_left> RECORDS LEFT, bytes_left> BYTES LEFT, by WHOLE BY"
        )
        return Listing("pyrklog.expansion/1", shown, items, self._cluster_id)

    def cancel(self, *, dry_run: bool) -> None:
        chosen = self._moves(None)
        if not chosen:
            self._say("nothing moves")
            return
        if dry_run:
            self._say(*[f"{topic}-{index}: would be cancelled" for topic, index in chosen])
            return
        throttled = self._admin.throttled_topics() & {topic for topic, _ in chosen}
        codes = []
        for place, (code, why) in self._admin.alter(dict.fromkeys(chosen)).items():
            if code:
                codes.append(_refused(place, why or code.name))
            else:
                codes.append(Exit.OK)
                self._say(f"{place[0]}-{place[1]}: cancelled")
        if throttled:
            self._admin.unthrottle(throttled)
        exit_with(codes)

    def _say(self, *lines: str) -> None:
        say(self._options, *lines)


def _check_arguments(
    brokers: list[str] | None, *, is_asked: bool, status: bool, cancel: bool
) -> None:
    if status and cancel:
        raise CliError(Problem.ARGUMENTS_DISAGREE, "--status and --cancel exclude each other")
    if (status or cancel) and is_asked:
        given = "--status" if status else "--cancel"
        what = f"{given} takes neither --mode, --throttle nor --plan"
        raise CliError(Problem.ARGUMENTS_DISAGREE, what)
    if not brokers and not status:
        what = "no broker is named"
        raise CliError(Problem.ARGUMENT_MISSING, what, "name the new ones with --broker N")


def _numbers(texts: list[str]) -> list[int]:
    parts = [part.strip() for text in texts for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdecimal()):
            raise CliError(Problem.ARGUMENT_VALUE, f"--broker takes numbers, not {part!r}")
    return sorted({int(part) for part in parts})


def _check_topics(names: list[str], everything: "Placement") -> None:
    from pyrklog.cli.connection import missing_topic

    known = {topic for topic, _ in everything}
    for name in names:
        if name not in known:
            raise missing_topic(name, sorted(known))


def _write(path: str, plan: _Plan) -> None:
    from pyrklog.cli.reassign_plan import render_plan

    try:
        Path(path).write_text(render_plan(plan.wanted))
    except OSError as error:
        raise CliError(Problem.NOT_WRITTEN, f"{path}: {error.strerror}") from None


def _refused(place: "PartitionKey", why: str) -> Exit:
    refused = CliError(Problem.REASSIGNMENT_REFUSED, f"{place[0]}-{place[1]}: {why}")
    tell(refused)
    return refused.code
