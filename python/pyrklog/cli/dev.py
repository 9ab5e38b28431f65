"""``pyrklog dev``: clusters of real brokers on this machine, with faults."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import say, show
from pyrklog.cli.deeds import tell_done, telling
from pyrklog.cli.failures import CliError, counted, guarded
from pyrklog.cli.options import (
    Output,
    OutputFormat,
    Settings,
    argument,
    command,
    command_group,
    option,
    parse_pairs,
)

if TYPE_CHECKING:
    from pyrklog.dev.running import Runner
    from pyrklog.dev.state import Cluster, Place
    from pyrklog.protocol.cluster import DescribeClusterResponse

app = command_group("Run clusters on this machine: real brokers, a real ZooKeeper, faults at will.")

BROKERS_DEFAULT = 3
LINES_DEFAULT = 50

Name = Annotated[str, option("--name NAME", "Which cluster of yours is meant.")]
NodeName = Annotated[str, argument("NODE", "A broker's number, or zk1, or network.")]
BrokerName = Annotated[str, argument("BROKER", "A broker's number.")]
DryRun = Annotated[bool, option("--dry-run", "Only say what would be done.")]
DEFAULT = "default"


@command(app, "start", "quiet")
def start(
    options: Settings,
    count: int | None = option("-n, --brokers", "How many brokers; default 3.", None),
    name: Name = DEFAULT,
    racks: str | None = option("--racks A,B,C", "Racks, dealt out in turn.", None),
    zookeepers: int | None = option("--zk", "ZooKeeper servers, 1 or 3; default 1.", None),
    base_port: int | None = option(
        "--base-port PORT",
        "Where broker 1 listens; the cluster keeps the 450 ports from there. Default: "
        "19092, or the next thousand that no other cluster of yours has.",
        None,
    ),
    sets: list[str] | None = option(
        "--set K=V", "An option of all brokers; may be repeated.", None
    ),
    tmp: bool = option("--tmp", "Data in a temporary directory, removed by `stop`.", False),
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Start a cluster, new or stopped. Returns when clients can use it.

    It runs until `stop`, also after this terminal has closed.
    """
    from pyrklog.dev.running import Runner, new_cluster

    given_settings = [f"{key}={value}" for key, value in parse_pairs(sets, "--set").items()]
    rack_names = _racks(racks)
    place = _place(name)
    # Where a folder is made for the lock, something would be done.
    with nullcontext() if dry_run else place.locked():
        if place.exists():
            cluster = place.load()
            _refuse_running(cluster)
            wanted: dict[str, tuple[object, object]] = {
                "-n": (count, len(cluster.brokers)),
                "--racks": (
                    _dealt(rack_names, cluster) if rack_names else None,
                    _racks_of(cluster),
                ),
                "--zk": (zookeepers, len(cluster.zookeepers)),
                "--base-port": (base_port, cluster.base_port),
                "--set": (given_settings or None, cluster.settings),
                "--tmp": (tmp or None, cluster.is_temporary),
            }
            _refuse_changes(name, wanted)
        else:
            cluster = new_cluster(
                place,
                BROKERS_DEFAULT if count is None else count,
                racks=rack_names,
                zookeepers=1 if zookeepers is None else zookeepers,
                base_port=base_port,
                settings=given_settings,
                temporary=tmp,
            )
        runner = Runner(place, cluster, _environment(), _describe)
        if dry_run:
            runner.check_start()
        else:
            runner.start()
    if dry_run:
        _tell_start(options, cluster, output)
        return
    _print_started(options, place, cluster, output)
    from pyrklog.cli.dev_profile import write

    _tell(options, write(name, cluster.bootstrap, select=True))


def _tell_start(options: Settings, cluster: "Cluster", output: OutputFormat) -> None:
    brokers, servers = counted(len(cluster.brokers), "broker"), len(cluster.zookeepers)
    first = cluster.address_of(cluster.brokers[0])
    what = f"{brokers} and {counted(servers, 'ZooKeeper server')}, from {first}"

    @telling
    def tell(options: Settings, dry_run: bool) -> None:
        _tell_done(options, cluster.name, f"{cluster.name} started", dry_run, what)

    tell(options, dry_run=True, output=output)


def _tell_done(
    options: Settings, name: str, line: str, dry_run: bool, more: str | None = None
) -> None:
    """``line`` begins with the name of what was changed."""
    told = line if more is None else f"{line}: {more}"
    would = " (not done)" if dry_run else ""
    result = told.removeprefix(f"{name} ")
    tell_done(options, f"{told}{would}", kind="dev", name=name, result=result)


def _tell(options: Settings, sentences: list[str]) -> None:
    if not options.quiet:
        for one in sentences:
            typer.echo(f"note: {one}", err=True)


def _refuse_running(cluster: "Cluster") -> None:
    from pyrklog.dev.state import dev_command

    running = cluster.running()
    if running:
        what = f"{cluster.name} runs already ({', '.join(one.title for one in running)})"
        status, stop = (dev_command(cluster.name, word) for word in ("status", "stop"))
        fix = f"see `{status}`, or start another with --name"
        if len(running) < len(cluster.nodes):
            fix = f"`{stop}` first, or restart each that does not run: see `{status}`"
        raise CliError(Problem.DEV_EXISTS, what, fix)


def _refuse_changes(name: str, wanted: Mapping[str, tuple[object, object]]) -> None:
    """Refuses to change settings of a cluster's first start.

    ``wanted`` has the given value (or None) and the present one.
    """
    changed = [
        option for option, (given, there) in wanted.items() if given is not None and given != there
    ]
    if changed:
        what = f"{name} is there already, with other values of {', '.join(changed)}"
        raise CliError(
            Problem.DEV_EXISTS, what, "leave them out, use `pyrklog dev add`, or purge it"
        )


def _racks_of(cluster: "Cluster") -> list[str | None]:
    return [node.rack for node in cluster.brokers]


def _dealt(names: list[str], cluster: "Cluster") -> list[str]:
    return [names[index % len(names)] for index in range(len(cluster.brokers))]


def _racks(text: str | None) -> list[str]:
    if text is None:
        return []
    names = [one.strip() for one in text.split(",")]
    if not all(names) or "\n" in text:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"racks are names with commas between them, not {text!r}"
        )
    return names


@app.command("status")
@guarded
def status(name: Name = DEFAULT, output: Output = OutputFormat.TABLE) -> None:
    """Show each process of a cluster: address, kind and state."""
    from pyrklog.cli.dev_tables import listing

    place = _place(name)
    show(listing(place, place.load()), output)


@app.command("logs")
@guarded
def logs(
    node: str | None = argument(
        "[NODE]", "A broker's number, or zk1, or network; default: all brokers.", None
    ),
    name: Name = DEFAULT,
    lines: int = option(
        "-n, --lines", "How many of the last lines; 0 for all.", LINES_DEFAULT, min=0
    ),
    follow: bool = option("-f, --follow", "Go on with what comes, until Ctrl-C.", False),
    as_json: bool = option("--json", "Lines as they were logged, also on a terminal.", False),
) -> None:
    """Print what the processes have logged: sentences on a terminal, else JSON, a line each."""
    import sys

    from pyrklog.dev.logs import as_logged, for_people, print_logs

    place = _place(name)
    cluster = place.load()
    nodes = cluster.brokers if node is None else [cluster.node(node)]
    shown = for_people if sys.stdout.isatty() and not as_json else as_logged
    print_logs([(one.name, place.log_of(cluster, one)) for one in nodes], lines, follow, shown)


@command(app, "stop", "quiet")
@telling
def stop(options: Settings, name: Name = DEFAULT, dry_run: DryRun = False) -> None:
    """End a cluster in good order. Its data stays, unless it was started with --tmp."""
    with locked(name, dry_run) as runner:
        if dry_run:
            ends = f"{name} stopped" if runner.cluster.running() else f"{name} did not run"
            gone = "its data removed" if runner.cluster.is_temporary else None
            _tell_done(options, name, ends, dry_run, gone)
            return
        was_running = bool(runner.cluster.running())
        killed = runner.stop()
        if runner.cluster.is_temporary:
            runner.purge()
    for node in killed:
        say(options, f"{node.title} did not end in time and was killed")
    _tell_done(options, name, f"{name} stopped" if was_running else f"{name} did not run", False)
    if runner.cluster.is_temporary:
        _remove_profile(options, name)


@command(app, "purge", "quiet")
@telling
def purge(options: Settings, name: Name = DEFAULT, dry_run: DryRun = False) -> None:
    """End a cluster at once and delete all of its data, without asking."""
    with locked(name, dry_run) as runner:
        if not dry_run:
            runner.purge()
    _tell_done(
        options, name, f"{name} purged", dry_run, str(runner.place.folder) if dry_run else None
    )
    if dry_run:
        return
    _remove_profile(options, name)


def _remove_profile(options: Settings, name: str) -> None:
    from pyrklog.cli.dev_profile import remove

    _tell(options, remove(name))


@command(app, "kill", "quiet")
@telling
def kill(options: Settings, node: NodeName, name: Name = DEFAULT, dry_run: DryRun = False) -> None:
    """End a process without warning (SIGKILL)."""
    with locked(name, dry_run) as runner:
        found = runner.cluster.node(node)
        if not dry_run:
            runner.kill(found)
    _tell_done(options, found.title, f"{found.title} killed", dry_run)


@command(app, "pause", "quiet")
@telling
def pause(options: Settings, node: NodeName, name: Name = DEFAULT, dry_run: DryRun = False) -> None:
    """Stop a process where it is, with its connections open (SIGSTOP)."""
    _signal(name, node, signal.SIGSTOP, dry_run)
    _tell_done(options, node, f"{node} paused", dry_run)


@command(app, "resume", "quiet")
@telling
def resume(
    options: Settings, node: NodeName, name: Name = DEFAULT, dry_run: DryRun = False
) -> None:
    """Let a paused process go on (SIGCONT)."""
    _signal(name, node, signal.SIGCONT, dry_run)
    _tell_done(options, node, f"{node} goes on", dry_run)


@command(app, "restart", "quiet")
@telling
def restart(
    options: Settings, node: NodeName, name: Name = DEFAULT, dry_run: DryRun = False
) -> None:
    """End a process in good order if it runs, and start it; returns when it serves."""
    with locked(name, dry_run) as runner:
        found = runner.cluster.node(node)
        if not dry_run:
            runner.restart(found)
    _tell_done(options, found.title, f"{found.title} restarted", dry_run)


@command(app, "isolate", "quiet")
@telling
def isolate(
    options: Settings, node: BrokerName, name: Name = DEFAULT, dry_run: DryRun = False
) -> None:
    """Cut a broker off from the other brokers and from ZooKeeper; it runs on.

    Nothing passes; nothing is refused or closed. Clients still reach the broker.
    """
    _cut(name, node, cut_off=True, dry_run=dry_run)
    _tell_done(options, f"broker {node}", f"broker {node} is cut off", dry_run)


@command(app, "heal", "quiet")
@telling
def heal(
    options: Settings, node: BrokerName, name: Name = DEFAULT, dry_run: DryRun = False
) -> None:
    """Undo `isolate`: what was sent meanwhile arrives now."""
    _cut(name, node, cut_off=False, dry_run=dry_run)
    _tell_done(options, f"broker {node}", f"broker {node} is connected", dry_run)


@command(app, "add", "quiet")
def add(
    options: Settings,
    count: int = option("-n, --brokers", "How many brokers.", 1, min=1),
    name: Name = DEFAULT,
    racks: str | None = option("--racks A,B", "Their racks, dealt out in turn.", None),
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Add brokers to a running cluster. They lead nothing until topics are made or moved."""
    with locked(name, dry_run) as runner:
        if dry_run:
            runner.check_add(count)
            _tell_add(options, runner.cluster, count, output)
            return
        runner.add(count, _racks(racks))
    _print_started(options, runner.place, runner.cluster, output)
    from pyrklog.cli.dev_profile import write

    _tell(options, write(name, runner.cluster.bootstrap, select=False))


def _tell_add(options: Settings, cluster: "Cluster", count: int, output: OutputFormat) -> None:
    first = cluster.brokers[-1].number + 1

    @telling
    def tell(options: Settings, dry_run: bool) -> None:
        for number in range(first, first + count):
            _tell_done(options, f"broker {number}", f"broker {number} added", dry_run)

    tell(options, dry_run=True, output=output)


def _signal(name: str, node: str, number: signal.Signals, dry_run: bool) -> None:
    with locked(name, dry_run) as runner:
        found = runner.cluster.node(node)
        if not dry_run:
            runner.signal(found, number)


def _cut(name: str, node: str, *, cut_off: bool, dry_run: bool) -> None:
    with locked(name, dry_run) as runner:
        found = runner.cluster.node(node)
        if not dry_run:
            runner.isolate(found, cut_off=cut_off)


def _place(name: str) -> "Place":
    from pyrklog.dev.state import Place, dev_root

    return Place(dev_root(_environment()), name)


@contextmanager
def locked(name: str, dry_run: bool = False) -> Iterator["Runner"]:
    """The cluster of this name, while no other command changes it; without that for
    ``dry_run``, which only looks."""
    from pyrklog.dev.running import Runner

    place = _place(name)
    with nullcontext() if dry_run else place.locked():
        yield Runner(place, place.load(), _environment(), _describe)


def _describe(address: tuple[str, int], timeout_s: float) -> "DescribeClusterResponse":
    from pyrklog.cli.broker_connection import BrokerConnection
    from pyrklog.protocol.cluster import DESCRIBE_CLUSTER, DescribeClusterRequest

    with BrokerConnection(address, timeout_s) as connection:
        return connection.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest())


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def _print_started(
    options: Settings, place: "Place", cluster: "Cluster", output: OutputFormat
) -> None:
    from pyrklog.cli.dev_tables import listing, started_listing

    if output not in (OutputFormat.TABLE, OutputFormat.WIDE):
        show(listing(place, cluster), output)
    elif not options.quiet:
        from pyrklog.start.banner import own_command, seconds_since_exec

        show(started_listing(place, cluster), output)
        say(
            options,
            f"ready in {seconds_since_exec():.1f} s",
            f"try: {own_command()} topic list -b {cluster.address_of(cluster.brokers[0])}",
        )
