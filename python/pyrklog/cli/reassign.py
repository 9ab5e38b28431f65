"""``pyrklog cluster reassign``: plan, apply, status, cancel; on any Kafka cluster (KIP-455)."""

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, say, show
from pyrklog.cli.failures import CliError, Exit, exit_with, missing_partition, tell, unread
from pyrklog.cli.options import (
    CONNECTION,
    OnlySaid,
    Output,
    OutputFormat,
    Settings,
    argument,
    command,
    command_group,
    option,
)

if TYPE_CHECKING:
    from pyrklog.balance.record import Record
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import Placement

app = command_group(
    "Move partitions to other brokers. Plans are those of kafka-reassign-partitions."
)

DEFAULT_RATE = "50MB/s"
STANDARD_INPUT = "-"
_TABLES = (OutputFormat.TABLE, OutputFormat.WIDE)


class Minimize(StrEnum):
    BYTES = "bytes"


@command(app, "plan", *CONNECTION, "quiet")
def plan(
    options: Settings,
    topics: list[str] | None = option("-t, --topics T,...", "Only these; default: all.", None),
    topics_file: str | None = option(
        "-f, --topics-file FILE", "Kafka's topics-to-move JSON instead.", None
    ),
    by: str | None = option(
        "--by WHAT,...",
        "What brokers are to have alike: bytes, rate, leaders, replicas; default: all.",
        None,
    ),
    brokers: str | None = option("--brokers N,...", "Where replicas may lie; default: all.", None),
    add: str | None = option("--add N,...", "Only these brokers get replicas for balance.", None),
    exclude: str | None = option("--exclude N,...", "These brokers give all replicas away.", None),
    replication_factor: int | None = option(
        "--rf", "Replicas of each partition; default: as many as now.", None, min=1
    ),
    rack_aware: bool = option("--rack-aware/--no-rack-aware", "Spread replicas over racks.", True),
    minimize: Minimize | None = option(
        "--minimize", "bytes: move only what must move, balance nothing.", None
    ),
    rate: str = option("--rate RATE", "For the estimate of the time.", DEFAULT_RATE),
    batch: str | None = option("--batch N|BYTES", "The same: so much at a time.", None),
    explained: bool = option("--explain", "Say why each partition moves.", False),
    write: str | None = option(
        "--write FILE", "Write the plan there, and print what it does to each broker.", None
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print a plan in Kafka's JSON, and on standard error what it costs. Changes nothing."""
    from pyrklog.cli.reassign_planning import Choice, Shown, print_plan

    names = _topics(topics, topics_file)
    choice = Choice(by, brokers, add, exclude, replication_factor, rack_aware, minimize is not None)
    print_plan(options, names, choice, Shown(rate, batch, explained, write, output))


def _topics(topics: list[str] | None, topics_file: str | None) -> list[str]:
    from pyrklog.cli.reassign_plan import parse_topics

    names = [name for text in topics or [] for name in text.split(",") if name]
    if topics_file is not None:
        names += parse_topics(_read(topics_file), topics_file)
    if not names and (topics is not None or topics_file is not None):
        raise CliError(
            Problem.ARGUMENT_MISSING, "no topic is named", "leave -t and -f out for all of them"
        )
    return names


@command(app, "apply", *CONNECTION, "quiet")
def apply(
    options: Settings,
    file: str = argument("FILE", "A plan; - for standard input."),
    throttle: str | None = option(
        "--throttle RATE|auto",
        "Copy no faster than this on each broker, such as 50MB/s; without a unit, bytes "
        "a second. auto: as fast as the brokers bear. `status FILE` takes it away.",
        None,
    ),
    batch: str | None = option(
        "--batch N|BYTES",
        "So many partitions, or bytes (10GB), at a time; waits until the last ones move.",
        None,
    ),
    rollback: str | None = option(
        "--rollback FILE", "Write the plan that undoes this one there, first.", None
    ),
    progress: str | None = option(
        "--progress FILE", "Where to keep how it goes; default: FILE.progress.json.", None
    ),
    watch: bool = option("-w, --watch", "Wait until nothing of it moves any more.", False),
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Begin the moves of a plan, or go on with them. Partitions that move already get new
    targets."""
    from pyrklog.cli import reassign_record
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import (
        check_throttle,
        parse_limit,
        parse_log_dirs,
        parse_plan,
        render_plan,
    )
    from pyrklog.cli.reassign_planning import begin_record, show_planned, write_plan
    from pyrklog.cli.reassign_run import Run

    text = _read(file)
    wanted, directories = parse_plan(text, file), parse_log_dirs(text, file)
    check_throttle(throttle)
    limit = parse_limit(batch)
    path = reassign_record.able(reassign_record.path_of(file, progress), progress)
    earlier = reassign_record.load(path)
    connection = connect(options)
    cluster = ReassignmentAdmin(connection)
    before, cluster_id = cluster.origins()
    record = reassign_record.of_plan(earlier, wanted, cluster_id)
    _check_replaced(earlier, record, path, cluster_id)
    # A plan that is done, and was undone since, begins anew; what it began from is kept otherwise.
    if record and record.finished_ms is not None and not before.items() >= wanted.items():
        record = None
    if record is None or dry_run:
        # A plan that goes on is not stopped by a topic that was deleted meanwhile.
        _check_places(wanted, before)
    if not wanted:
        say(_heard(options, output), "nothing to do: the plan is empty")
        return show_planned(cluster, wanted, output)
    if dry_run:
        return _say_only(cluster, _heard(options, output), before, wanted, output)
    complete = None
    if record is None:
        record, complete = begin_record(connection, cluster, wanted, limit, throttle, before)
    if rollback is not None:
        write_plan(rollback, render_plan({place: record.before[place] for place in wanted}))
    run = Run(connection, cluster, options, record, path, output, directories, complete)
    codes = run.carry_out(throttle, watch=watch)
    run.show_all()
    exit_with(codes)


def _say_only(
    cluster: "ReassignmentAdmin",
    options: Settings,
    before: "Placement",
    wanted: "Placement",
    output: OutputFormat,
) -> None:
    from pyrklog.cli.reassign_planning import show_planned
    from pyrklog.cli.reassign_run import arrow, listed, name_of

    live = {one.broker_id for one in cluster.describe().brokers}
    codes, errors = [], {}
    for place, replicas in wanted.items():
        dead = [broker for broker in replicas if broker not in live]
        if dead:
            what = f"{name_of(place)}: broker {listed(dead)} is not there"
            tell(CliError(Problem.BROKER_NOT_FOUND, what))
            errors[place] = what
        else:
            say(options, f"{arrow(place, before, wanted)} (not done)")
        codes.append(Exit.NOT_FOUND if dead else Exit.OK)
    show_planned(cluster, wanted, output, errors)
    exit_with(codes)


def _heard(options: Settings, output: OutputFormat) -> Settings:
    """Standard output is a program's, if it has asked for another form than a table."""
    return options if output in _TABLES else replace(options, quiet=True)


@command(app, "status", *CONNECTION, "quiet")
def status(
    options: Settings,
    file: str | None = argument(
        "[FILE]",
        "Only this plan; when it is done, its throttle goes. 8 where it was not kept.",
        None,
    ),
    progress: str | None = option(
        "--progress FILE", "Where `apply` has kept how it goes; default: FILE.progress.json.", None
    ),
    watch: bool = option("-w, --watch", "Print it again until nothing moves.", False),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show what moves, its progress, and how long it takes; in the end how well that was
    predicted."""
    from pyrklog.cli import reassign_progress, reassign_record, reassign_run
    from pyrklog.cli.reassign_cluster import ReassignmentAdmin
    from pyrklog.cli.reassign_plan import parse_log_dirs, parse_plan
    from pyrklog.cli.throttles import Throttles

    text = None if file is None else _read(file)
    wanted = None if text is None or file is None else parse_plan(text, file)
    directories = {} if text is None or file is None else parse_log_dirs(text, file)
    path = reassign_record.path_of(file, progress)
    record = None
    if wanted is not None:
        record = reassign_record.of_plan(reassign_record.load(path), wanted)
    connection = connect(options)
    cluster = ReassignmentAdmin(connection)
    places = None if wanted is None else set(wanted)
    cluster_id = cluster.placement()[1]
    if record is not None and not reassign_record.is_of(record, cluster_id):
        record = None
    if watch:
        moves = reassign_run.watch(cluster, options, places, output, cluster_id, record)
    else:
        moves = reassign_progress.read_moves(cluster, places, record)
    is_over = wanted is not None and not moves.items
    if is_over and record is not None:
        now = reassign_run.settled(cluster, record.after)
        if now.items() >= record.after.items():
            record = reassign_run.finished(cluster, record, path, is_watched=False)
    if not watch or (moves.whole is not None and output not in _TABLES):
        show(reassign_progress.listing(moves, cluster_id, record), output)
    if moves.whole is not None and record is not None and output in _TABLES:
        say(options, reassign_progress.line(moves.whole, record))
    throttles = Throttles(connection, cluster)
    if wanted is None and not moves.items and throttles.named():
        fix = "`pyrklog cluster reassign cancel --all` takes that away"
        typer.echo(f"note: nothing moves, and replicas are throttled still; {fix}", err=True)
    if wanted is None or not is_over:
        return
    if record is not None and record.finished_ms is None and len(record.batches()) > 1:
        fix = "`apply` goes on with them; their throttle stays until then, or until `cancel`"
        typer.echo(f"note: batches may be left to begin: {fix}", err=True)
    else:
        throttles.end(wanted)
    heard = _heard(options, output)
    if watch:
        reassign_run.wait_for_directories(cluster, heard, directories)
    if reassign_run.conclude(cluster, heard, wanted, directories):
        raise typer.Exit(Exit.DIFFERS)


@command(app, "cancel", *CONNECTION, "quiet")
def cancel(
    options: Settings,
    file: str | None = argument("[FILE]", "A plan.", None),
    everything: bool = option("--all", "Whatever moves.", False),
    rollback: bool = option(
        "--rollback", "Move what has moved back, too: replicas are as before `apply`.", False
    ),
    throttle: str | None = option(
        "--throttle RATE|auto", "With --rollback: as of `apply`, for the way back.", None
    ),
    progress: str | None = option(
        "--progress FILE", "Where `apply` has kept how it went; default: FILE.progress.json.", None
    ),
    watch: bool = option("-w, --watch", "With --rollback: wait until all is back.", False),
    dry_run: OnlySaid = False,
) -> None:
    """Cancel moves: the earlier replicas come back, and throttles go."""
    from pyrklog.cli.reassign_cancel import Back, cancel_moves
    from pyrklog.cli.reassign_plan import parse_plan

    if everything == (file is not None):
        raise CliError(Problem.ARGUMENT_MISSING, "a plan or --all says what to cancel")
    if rollback and file is None:
        raise CliError(Problem.ARGUMENTS_DISAGREE, "--rollback needs the plan, not --all")
    named = None if file is None else parse_plan(_read(file), file)
    back = Back(file, progress, throttle, watch) if rollback and file is not None else None
    cancel_moves(options, named, back, dry_run=dry_run)


@command(app, "auto", *CONNECTION, "quiet")
def auto(
    options: Settings,
    by: str | None = option("--by WHAT,...", "As of `plan`.", None),
    over: float = option(
        "--over SKEW", "Act if a broker has so many times the mean.", 1.2, min=1.05, max=1000.0
    ),
    persists: str = option("--for TIME", "Only if it has been so for so long.", "30m"),
    every: str = option("--every TIME", "Look so often.", "1m"),
    hours: str | None = option(
        "--hours FROM-TO", "Move only then, by this machine's clock, such as 22-6.", None
    ),
    most: str = option("--most N|BYTES", "Move at most so much at a time.", "10GB"),
    throttle: str = option("--throttle RATE|auto", "As of `apply`.", "auto"),
    rounds: int = option("--rounds N", "End after so many looks; 0: never.", 0, min=0),
    dry_run: OnlySaid = False,
) -> None:
    """Balance whenever a skew persists, until Ctrl-C; say why each partition moves."""
    from pyrklog.balance.automatic import Watcher
    from pyrklog.cli.durations import parse_seconds
    from pyrklog.cli.reassign_auto import Rules, parse_hours, run_rounds
    from pyrklog.cli.reassign_plan import check_throttle, parse_limit
    from pyrklog.cli.reassign_planning import Choice, goals_of

    check_throttle(throttle)
    allowed = None if hours is None else parse_hours(hours)
    watcher = Watcher(over, parse_seconds(persists, "--for"), allowed)
    every_s, limit = max(1.0, parse_seconds(every, "--every")), parse_limit(most)
    goals = goals_of(Choice(by))
    run_rounds(options, Rules(goals, watcher, every_s, limit, throttle, rounds, dry_run))


def _read(file: str) -> str:
    if file == STANDARD_INPUT:
        return sys.stdin.read()
    try:
        return Path(file).read_text()
    except OSError as error:
        raise unread(file, error, Problem.FILE_CONTENT) from None
    except UnicodeDecodeError:
        raise CliError(Problem.FILE_CONTENT, f"{file} is no text") from None


def _check_replaced(
    earlier: "Record | None", record: "Record | None", path: Path | None, cluster_id: str | None
) -> None:
    """What undoes a plan of another cluster is not lost to this one."""
    from pyrklog.cli import reassign_record

    if earlier is None or record is not None or reassign_record.is_of(earlier, cluster_id):
        return
    if earlier.finished_ms is None:
        what = f"{path} keeps the progress of a plan that another cluster has begun"
        raise CliError(Problem.FILE_CONTENT, what, "check -b, or name another file: --progress")


def _check_places(wanted: "Placement", before: "Placement") -> None:
    from pyrklog.cli.reassign_planning import check_names

    check_names([topic for topic, _ in wanted], before)
    for place in wanted:
        if place not in before:
            raise missing_partition(*place, sum(topic == place[0] for topic, _ in before))
