import sys
import time
from typing import TYPE_CHECKING

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli import cluster_drain, cluster_expand, reassign, txns
from pyrklog.cli.admin_common import connect, say, show
from pyrklog.cli.durations import parse_seconds
from pyrklog.cli.failures import CliError, Exit, tell
from pyrklog.cli.options import (
    CONNECTION,
    INT32_MAX,
    OnlySaid,
    Output,
    OutputFormat,
    Places,
    Settings,
    Yes,
    argument,
    command,
    command_group,
    option,
)

if TYPE_CHECKING:
    from pyrklog.cli.connection import Connection
    from pyrklog.observability.health_rules import ClusterState, Reason

app = command_group(
    "See how a cluster is, whether a broker may restart; elect leaders, move partitions, empty "
    "brokers, end transactions."
)
app.add_typer(reassign.app, name="reassign")
app.add_typer(txns.app, name="txns")

WATCH_INTERVAL_S = 1.0


@command(app, "health", *CONNECTION)
def health(
    options: Settings,
    watch: bool = option("-w, --watch", "Print each change of the verdict, until Ctrl-C.", False),
    exit_when_healthy: bool = option("-e, --exit", "Watch until the cluster is healthy.", False),
    stable: str | None = option(
        "--stable TIME", "As -e, once it has been healthy for so long without a pause.", None
    ),
    for_: str | None = option(
        "--for TIME",
        "Watch for so long at most, such as 60s or 5m; 8 if it is unhealthy then, or has not been "
        "healthy for --stable.",
        None,
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Say whether everything is replicated and led, and what brokers find wrong with themselves.
    Exit code 8 if it is not healthy, with reasons."""
    limit_s = None if for_ is None else parse_seconds(for_, "--for")
    until_s = 0.0 if exit_when_healthy else None
    if stable is not None:
        until_s = parse_seconds(stable, "--stable")
    if watch or until_s is not None or limit_s is not None:
        healthy = _watch(options, output, until_s, limit_s)
    else:
        connection = connect(options)
        state, reasons = _examined(connection)
        _print_health(state, reasons, output)
        from pyrklog.observability.health_rules import is_healthy

        healthy = is_healthy(reasons)
    if not healthy:
        raise typer.Exit(Exit.DIFFERS)


def _watch(
    options: Settings, output: OutputFormat, until_s: float | None, limit_s: float | None
) -> bool:
    """Prints changes until the time is over, or until it has been healthy for ``until_s`` seconds;
    returns the last verdict, which without enough of them is bad.

    An unreachable cluster counts as unhealthy: a watching user waits for its return.
    """
    from pyrklog.observability.health_rules import is_healthy

    deadline = None if limit_s is None else time.monotonic() + limit_s
    connection: Connection | None = None
    before: list[Finding] | None = None
    healthy_since: float | None = None
    while True:
        try:
            connection = connection or connect(options)
            state, reasons = _examined(connection)
        except CliError as error:
            if error.code not in (Exit.UNREACHABLE, Exit.TIMED_OUT):
                raise
            connection = None
            state, reasons = _unreachable(error)
        findings = [_finding(one) for one in reasons]
        if findings != before:
            _print_health(state, reasons, output)
            before = findings
        now = time.monotonic()
        if not is_healthy(reasons):
            healthy_since = None
        elif healthy_since is None:
            healthy_since = now
        is_enough = healthy_since is not None and now - healthy_since >= (until_s or 0.0)
        left_s = None if deadline is None else deadline - now
        if (until_s is not None and is_enough) or (left_s is not None and left_s <= 0):
            if healthy_since is not None and not is_enough:
                healthy_s = f"{now - healthy_since:.0f} s of the {until_s:g} s of --stable"
                typer.echo(f"note: --for has ended; it was healthy for {healthy_s}", err=True)
            return is_enough
        time.sleep(WATCH_INTERVAL_S if left_s is None else min(WATCH_INTERVAL_S, left_s))


Finding = tuple[str, str, int | None, tuple[str, ...]]


def _finding(reason: "Reason") -> Finding:
    """Sentences have times and sizes, which change without a new verdict."""
    return reason.kind, reason.severity, reason.broker, tuple(reason.partitions)


def _unreachable(error: CliError) -> "tuple[ClusterState, list[Reason]]":
    from pyrklog.observability.health_rules import ClusterState, Reason

    return ClusterState(None, [], -1, []), [Reason("unreachable", "error", error.what)]


def _examined(connection: "Connection") -> "tuple[ClusterState, list[Reason]]":
    from pyrklog.cli.cluster_reading import read_state
    from pyrklog.observability.health_rules import examine

    # While all replicas are in sync, min.insync.replicas does not matter.
    state = read_state(connection, lambda one: len(one.isr) < len(one.replicas), log_dirs=True)
    return state, examine(state)


def _print_health(state: "ClusterState", reasons: "list[Reason]", output: OutputFormat) -> None:
    from pyrklog.cli.cluster_state import HEALTH_COLUMNS, health_page
    from pyrklog.cli.output import Listing
    from pyrklog.observability.health_rules import health_item

    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        sys.stdout.write(health_page(state, reasons))
        sys.stdout.flush()
        return
    items = [health_item(state, reasons)]
    if output in (OutputFormat.CSV, OutputFormat.NAME):
        items = [reason.item() for reason in reasons]
    show(Listing("pyrklog.cluster-health/1", HEALTH_COLUMNS, items, state.cluster_id), output)


@command(app, "brokers", *CONNECTION)
def brokers(
    options: Settings,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List brokers: address, rack, which is the controller, what they lead, hold and store.

    BYTES is what their logs take on disk, "-" if a broker does not say.
    """
    connection = connect(options)
    from pyrklog.cli.cluster_brokers import list_brokers

    show(list_brokers(connection), output)


@command(app, "clients", *CONNECTION, "quiet")
def clients(
    options: Settings,
    outdated: bool = option("--outdated", "Only old clients, and those that were refused.", False),
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the clients that brokers remember: software, address, the oldest API versions they used.

    Old is what Kafka 4 no longer serves (KIP-896). Only pyrklog's brokers tell.
    """
    connection = connect(options)
    from pyrklog.cli.broker_healths import ask_clients
    from pyrklog.cli.cluster_clients import for_people, listing, merged
    from pyrklog.cli.cluster_reading import read_state
    from pyrklog.cli.config_cluster import refuse_others

    refuse_others(options, "Apache Kafka has them in its request log, and by software in JMX")
    state = read_state(connection)
    told = ask_clients(state, options.timeout_s)
    found = [one for one in merged(told) if one.why or not outdated]
    listed = listing(found, state.cluster_id)
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        if not found:
            say(options, "no client is outdated" if outdated else "no client has asked anything")
            return
        listed = for_people(listed)
    show(listed, output)
    left_out = sum(one.clients_left_out for one in told.values())
    if left_out and not options.quiet:
        typer.echo(f"note: brokers have met {left_out} more, and do not tell them", err=True)


@command(app, "restart-safe", *CONNECTION)
def restart_safe(
    options: Settings,
    broker: int = argument("BROKER", "Its number.", min=0, max=INT32_MAX),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Say whether a broker may end without harm: yes, yes with a warning, or no and why.

    In the way are partitions that would have no leader, or fewer in-sync replicas than acks=all
    needs. Exit code 8 for no.
    """
    connection = connect(options)
    from pyrklog.cli.cluster_reading import read_state
    from pyrklog.observability.restart_rules import restart_of

    state = read_state(connection, lambda one: broker in one.isr, log_dirs=True)
    if broker not in state.alive:
        known = ", ".join(map(str, state.alive))
        raise CliError(
            Problem.BROKER_NOT_FOUND, f"no broker {broker} is alive", f"brokers alive: {known}"
        )
    found = restart_of(state, broker)
    from pyrklog.cli.cluster_tables import print_restart_safe

    print_restart_safe(found, output, state.cluster_id)
    if not found.is_safe:
        raise typer.Exit(Exit.DIFFERS)


@command(app, "elect-leaders", *CONNECTION, "quiet")
def elect_leaders(
    options: Settings,
    places: Places = None,
    preferred: bool = option(
        "--preferred", "The first replica of each, where it is in sync.", False
    ),
    unclean: bool = option(
        "--unclean",
        "Any live replica, where no one in sync is alive; what it lacks is lost.",
        False,
    ),
    yes: Yes = False,
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Have the controller elect leaders; print the partitions whose leaders have changed."""
    if preferred == unclean:
        raise CliError(Problem.ARGUMENT_MISSING, "which election?", "give --preferred or --unclean")
    if unclean and not places:
        raise CliError(
            Problem.ARGUMENT_MISSING,
            "an unclean election can lose records",
            "name the topics or partitions",
        )
    if unclean and not yes and not dry_run:
        raise CliError(
            Problem.CONFIRMATION_NEEDED,
            "an unclean election can lose records",
            "give -y to have it",
        )
    connection = connect(options)
    from pyrklog.cli import cluster_election

    wanted = cluster_election.parse_places(places or [])
    done = cluster_election.elect(connection, wanted, unclean=unclean, dry_run=dry_run)
    if done.errors:
        for error in done.errors:
            tell(error)
    if done.items or output not in (OutputFormat.TABLE, OutputFormat.WIDE):
        show(cluster_election.listing(done), output)
    elif not done.errors:
        say(options, "no leader needs to change")
    if done.code:
        raise typer.Exit(done.code)


command(app, "drain", *CONNECTION, "quiet")(cluster_drain.drain)
command(app, "replace", *CONNECTION, "quiet")(cluster_drain.replace)
command(app, "expand", *CONNECTION, "quiet")(cluster_expand.expand)
