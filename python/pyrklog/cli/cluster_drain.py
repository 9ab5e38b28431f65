"""``pyrklog cluster drain`` and ``replace``: a broker gives away all that it has.

Both look at what the broker has now, so that they go on where an earlier run has ended.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import confirm, connect, say
from pyrklog.cli.failures import CliError, Exit, counted, exit_with, tell
from pyrklog.cli.options import (
    INT32_MAX,
    MaxFill,
    OnlySaid,
    Output,
    OutputFormat,
    Settings,
    Yes,
    argument,
    option,
)

if TYPE_CHECKING:
    from pyrklog.balance.model import PartitionKey, Plan
    from pyrklog.balance.prediction import Limit
    from pyrklog.cli.connection import Connection
    from pyrklog.cli.drain_record import Earlier
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_measure import Measured

HANDOVER_WAIT_S = 30.0
"""Longest wait until new orders of replicas are in effect; then only those that are elect."""
PAUSE_S = 0.1
ARROWS_SHOWN = 20
"""Moves that are named before a confirmation, and by --dry-run."""
DRAINING = ("drain it", "draining")
REPLACING = ("replace it", "replacing")
Placement = Mapping["PartitionKey", tuple[int, ...]]


class How(NamedTuple):
    """Options of both commands."""

    throttle: str | None
    batch: str | None
    plan: str | None
    rack_aware: bool
    watch: bool
    yes: bool
    dry_run: bool
    output: OutputFormat
    max_fill: str | None


def drain(
    options: Settings,
    broker: int = option("--broker N", "The broker that is to have nothing.", min=0, max=INT32_MAX),
    to: str | None = option("--to N,...", "Brokers that get its replicas; default: all.", None),
    throttle: str | None = option(
        "--throttle RATE|auto", "As of `cluster reassign apply`; waits for the end.", None
    ),
    batch: str | None = option("--batch N|BYTES", "So much at a time.", None),
    plan: str | None = option(
        "--plan FILE", "Write the plan there, for `reassign status` and `cancel --rollback`.", None
    ),
    rack_aware: bool = option(
        "--rack-aware/--no-rack-aware", "Refuse what would put replicas on fewer racks.", True
    ),
    max_fill: MaxFill = None,
    watch: bool = option("-w, --watch", "Wait until the broker has nothing.", False),
    yes: Yes = False,
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Empty a broker: hand over what it leads, then move its replicas to others.

    Refused with reasons where a partition would have too few replicas, racks or room. Run it again
    to go on after a stop.
    """
    from pyrklog.balance import draining
    from pyrklog.cli.reassign_planning import numbers

    how = How(throttle, batch, plan, rack_aware, watch, yes, dry_run, output, max_fill)

    def planned(found: "Measured") -> "Plan":
        cluster = found.cluster
        allowed = sorted(cluster.brokers)
        if to is not None:
            allowed = sorted(numbers(to, "--to", cluster.brokers))
        if broker in allowed and to is not None:
            what = f"--to names broker {broker}, which is to be emptied"
            raise CliError(Problem.ARGUMENTS_DISAGREE, what)
        return draining.drain(cluster, broker, allowed, rack_aware=rack_aware, moving=found.moving)

    _Emptying(options, broker, how).run(planned, DRAINING)


def replace(
    options: Settings,
    broker: int = argument("BROKER", "The broker that goes; it may be dead.", min=0, max=INT32_MAX),
    by: int = option(
        "--with N", "The broker that gets its replicas, in their places.", min=0, max=INT32_MAX
    ),
    throttle: str | None = option(
        "--throttle RATE|auto", "As of `cluster reassign apply`; waits for the end.", None
    ),
    batch: str | None = option("--batch N|BYTES", "So much at a time.", None),
    plan: str | None = option(
        "--plan FILE", "Write the plan there, for `reassign status` and `cancel --rollback`.", None
    ),
    rack_aware: bool = option(
        "--rack-aware/--no-rack-aware", "Refuse what would put replicas on fewer racks.", True
    ),
    max_fill: MaxFill = None,
    watch: bool = option("-w, --watch", "Wait until the broker has nothing.", False),
    yes: Yes = False,
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Put one broker in the place of another, alive or dead: the same replicas, the same order.

    Partitions that both have go elsewhere. Run it again to go on after a stop.
    """
    from pyrklog.balance import draining

    how = How(throttle, batch, plan, rack_aware, watch, yes, dry_run, output, max_fill)
    if broker == by:
        raise CliError(Problem.ARGUMENTS_DISAGREE, f"broker {broker} cannot replace itself")

    def planned(found: "Measured") -> "Plan":
        cluster = found.cluster
        if by not in cluster.brokers:
            known = ",".join(map(str, sorted(cluster.brokers)))
            raise CliError(
                Problem.BROKER_NOT_FOUND, f"broker {by} is not there", f"brokers alive: {known}"
            )
        if not cluster.brokers[by].answers:
            raise CliError(Problem.BROKER_AWAY, f"broker {by} does not answer", "try again")
        return draining.replace(cluster, broker, by, rack_aware=rack_aware, moving=found.moving)

    _Emptying(options, broker, how).run(planned, REPLACING)


class _Emptying:
    def __init__(self, options: Settings, broker: int, how: How) -> None:
        from pyrklog.cli.reassign_plan import check_throttle, parse_fill, parse_limit
        from pyrklog.cli.reassign_run import heard

        check_throttle(how.throttle)
        self._limit: Limit = parse_limit(how.batch)
        self._fill_max = parse_fill(how.max_fill)
        self._options = heard(options, how.output)
        self._broker = broker
        # The throttle goes at the end, which somebody has to see.
        self._how = how._replace(watch=how.watch or how.throttle is not None)

    def run(self, planned: "Callable[[Measured], Plan]", words: tuple[str, str]) -> None:
        from pyrklog.balance.draining import handover, on_broker
        from pyrklog.cli.drain_record import Earlier
        from pyrklog.cli.reassign_cluster import ReassignmentAdmin
        from pyrklog.cli.reassign_measure import measure
        from pyrklog.cli.reassign_planning import show_planned

        how, broker = self._how, self._broker
        connection = connect(self._options)
        admin = ReassignmentAdmin(connection)
        found = measure(connection, admin, without_silent=True, fill_max=self._fill_max)
        is_known = broker in found.cluster.brokers or bool(on_broker(found.cluster, broker))
        leaves = any(broker in one.replicas for one in admin.moving().values())
        # One that was replaced may be dead, and has nothing then.
        if not (is_known or leaves or words is REPLACING):
            known = ", ".join(map(str, sorted(found.cluster.brokers)))
            what = f"there is no broker {broker}, and no replica on it"
            raise CliError(Problem.BROKER_NOT_FOUND, what, f"brokers alive: {known}")
        plan = planned(found)
        if plan.obstacles:
            self._refuse(plan)
        self._tell_moving(found)
        heads = handover(found.cluster, broker) if broker in found.cluster.brokers else {}
        heads = {key: after for key, after in heads.items() if key not in found.moving}
        earlier = Earlier.read(admin, broker, how.plan, found.cluster_id)
        if not plan.changed:
            show_planned(admin, {}, how.output)
            self._finish(connection, admin, found, earlier)
            return
        earlier.refuse_under_way(admin)
        self._say_plan(found, plan, len(heads))
        said = earlier.told(admin)
        say(self._options, *([said] if said else []))
        if how.dry_run:
            self._say_arrows(found, plan)
            show_planned(admin, {**earlier.kept, **plan.changed}, how.output)
            return
        ids = admin.topic_ids({topic for topic, _ in plan.changed})
        if not how.yes:
            confirm([str(broker)], words[0], noun=words[1], done="moved")
        begins = self._still(admin, plan.changed, found, ids)
        if not begins:
            exit_with([self._verdict(admin)])
            return
        earlier = Earlier.read(admin, broker, how.plan, found.cluster_id)
        exit_with(self._move(connection, admin, begins, found, heads, earlier))

    def _tell_moving(self, found: "Measured") -> None:
        """Partitions that another plan moves, and that stay on the broker for now."""
        from pyrklog.balance.draining import on_broker

        left = [key for key in on_broker(found.cluster, self._broker) if key in found.moving]
        if left:
            count = counted(len(left), "partition")
            told = f"{count} left out, such as {left[0][0]}-{left[0][1]}: another plan moves them"
            typer.echo(f"note: {told}; run the command again after that", err=True)

    def _refuse(self, plan: "Plan") -> None:
        """Each partition that cannot go, and that nothing was done."""
        from pyrklog.cli.reassign_summary import obstacle_lines

        for line in obstacle_lines(plan.obstacles):
            tell(CliError(Problem.WOULD_BREAK_A_MINIMUM, line))
        count = counted(len(plan.obstacles), "partition")
        what = f"{count} cannot leave broker {self._broker}; nothing was changed"
        fix = "add a broker or space, or lower the replicas: `pyrklog cluster reassign plan --rf`"
        if any(one.is_room for one in plan.obstacles):
            fix += "; --max-fill fills disks further"
        raise CliError(Problem.WOULD_BREAK_A_MINIMUM, what, fix)

    def _finish(
        self,
        connection: "Connection",
        admin: "ReassignmentAdmin",
        found: "Measured",
        earlier: "Earlier",
    ) -> None:
        """Nothing is left to begin: what moves already is waited for, and what a run that was
        killed has left throttled goes."""
        from pyrklog.balance.draining import on_broker
        from pyrklog.cli.reassign_rate import Rate
        from pyrklog.cli.reassign_run import watch
        from pyrklog.cli.throttles import Throttles

        how, moving = self._how, admin.moving()
        leaving = {key for key, one in moving.items() if self._broker in one.removing_replicas}
        if leaving and how.watch and not how.dry_run:
            rate = None if how.throttle is None else Rate(connection, admin, how.throttle)
            if rate is not None:
                targets = {key: found.cluster.placement[key] for key in leaving}
                say(self._options, rate.begin(admin.origins()[0], targets))

            def step() -> None:
                said = None if rate is None else rate.step()
                say(self._options, *([said] if said else []))

            watch(admin, self._options, leaving, how.output, found.cluster_id, step=step)
            leaving = set()
        if leaving:
            count = counted(len(leaving), "partition")
            say(self._options, f"{count} on the way from broker {self._broker}")
            return
        stays = bool(on_broker(found.cluster, self._broker))
        if how.dry_run:
            say(self._options, *([] if stays else [f"broker {self._broker} has no replicas"]))
            return
        Throttles(connection, admin).end_of(self._broker)
        earlier.finish(admin)
        if how.watch or stays:
            exit_with([self._verdict(admin)])
            return
        say(self._options, f"broker {self._broker} has no replicas")

    def _say_plan(self, found: "Measured", plan: "Plan", heads: int) -> None:
        from pyrklog.cli.reassign_planning import guess_of, prediction_of
        from pyrklog.cli.reassign_summary import lines

        throttle = self._how.throttle
        guess = guess_of(found.cluster_id, throttle)
        cluster, changed = found.cluster, plan.changed
        prediction = prediction_of(cluster, changed, self._limit, guess, throttle=throttle)
        if heads:
            count = counted(heads, "partition")
            say(self._options, f"hands over the leadership of {count} first")
        say(self._options, *lines(cluster, changed, prediction, cluster.brokers))

    def _say_arrows(self, found: "Measured", plan: "Plan") -> None:
        from pyrklog.cli.reassign_run import arrow

        before = found.cluster.placement
        for key in list(plan.changed)[:ARROWS_SHOWN]:
            say(self._options, f"{arrow(key, before, plan.changed)} (not done)")
        more = len(plan.changed) - ARROWS_SHOWN
        if more > 0:
            say(self._options, f"and {counted(more, 'partition')} more (not done)")

    def _hand_over(self, admin: "ReassignmentAdmin", heads: "Placement") -> None:
        """New orders copy nothing; elections follow them at once."""
        refused = {key for key, (code, _) in admin.alter(dict(heads)).items() if code}
        wanted = [key for key in heads if key not in refused]
        deadline = time.monotonic() + HANDOVER_WAIT_S
        while admin.moving().keys() & set(wanted) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        left = admin.elect(wanted) if wanted else {}
        count = counted(len(wanted) - len(left), "partition")
        say(self._options, f"handed over the leadership of {count}")
        stay = len(left) + len(refused)
        if stay:
            told = f"{counted(stay, 'leader')} left there until the copies are whole"
            typer.echo(f"note: {told}", err=True)

    def _still(
        self,
        admin: "ReassignmentAdmin",
        changed: Placement,
        found: "Measured",
        ids: Mapping[str, str],
    ) -> Placement:
        """The plan without what was deleted, made anew or moved while the user was asked, or moves
        now."""
        (now, _), moving = admin.placement(), admin.moving()
        later = admin.topic_ids({topic for topic, _ in changed})
        before = found.cluster.placement
        same = {
            key: after
            for key, after in changed.items()
            if now.get(key) == before[key]
            and key not in moving
            and later.get(key[0], ids.get(key[0])) == ids.get(key[0], later.get(key[0]))
        }
        left = len(changed) - len(same)
        if left:
            count = counted(left, "partition")
            told = f"{count} left out: changed meanwhile; run the command again for what is left"
            typer.echo(f"note: {told}", err=True)
        return same

    def _move(
        self,
        connection: "Connection",
        admin: "ReassignmentAdmin",
        begins: Placement,
        found: "Measured",
        heads: "Placement",
        earlier: "Earlier",
    ) -> list[Exit]:
        """``begins``: what is begun. What an earlier run has left is kept for a rollback only."""
        from pyrklog.balance.directories import choose
        from pyrklog.cli import reassign_record
        from pyrklog.cli.reassign_plan import render_plan
        from pyrklog.cli.reassign_planning import begin_record, first_record, write_plan
        from pyrklog.cli.reassign_run import Limits, Run
        from pyrklog.cli.throttles import Throttles

        how = self._how
        path = reassign_record.path_of(how.plan)
        wanted = {**earlier.kept, **begins}
        before = {key: found.cluster.placement[key] for key in begins}
        before |= {key: one for key, one in earlier.before.items() if key in wanted}
        heads = {key: after for key, after in heads.items() if key in begins}
        directories = choose(found.cluster, begins)
        earlier.put_aside(connection, admin)
        record = first_record(admin, wanted, how.throttle, before, heads)
        if how.plan is not None:
            write_plan(how.plan, render_plan(wanted, directories))
            # Before the leaders go: a rollback gives the broker back what it led, too.
            reassign_record.save(path, record)
        if heads:
            self._hand_over(admin, heads)
        record, complete = begin_record(connection, admin, record, self._limit)
        limits = Limits(begins=begins.keys())
        run = Run(
            connection,
            admin,
            self._options,
            record,
            path,
            how.output,
            directories,
            complete,
            limits,
        )
        throttles = Throttles(connection, admin)
        if how.throttle is None:
            # That of a run that was killed would hold up this one, and outlast it.
            throttles.end_of(self._broker)
        codes = run.carry_out(how.throttle, watch=how.watch)
        if how.watch:
            throttles.end_of(self._broker)
        run.show_all()
        is_whole = all(code is Exit.OK for code in codes)
        if is_whole and not admin.moving().keys() & wanted.keys():
            codes.append(self._verdict(admin))
        elif is_whole:
            fix = "`pyrklog cluster reassign status` shows how far it is"
            say(self._options, f"on the way: {fix}; the same command again tells the end")
        return codes

    def _verdict(self, admin: "ReassignmentAdmin") -> Exit:
        """Whether the broker has nothing: partitions may have been made on it meanwhile."""
        from pyrklog.cli.reassign_run import SETTLED_PAUSE_S, SETTLED_S

        deadline = time.monotonic() + SETTLED_S
        while True:
            now, _ = admin.placement()
            left = [key for key, replicas in now.items() if self._broker in replicas]
            # Brokers hear of the end of moves a moment after the controller.
            if not left or time.monotonic() > deadline:
                break
            time.sleep(SETTLED_PAUSE_S)
        if not left:
            say(self._options, f"broker {self._broker} has no replicas any more")
            return Exit.OK
        count = counted(len(left), "partition")
        what = f"broker {self._broker} has {count} still, or again, such as "
        what += f"{left[0][0]}-{left[0][1]}"
        tell(CliError(Problem.NOT_AS_PLANNED, what, "run the command again"))
        return Exit.DIFFERS
