"""``pyrklog cluster reassign``: plan, apply, status, cancel; on any Kafka cluster (KIP-455)."""

import sys
from enum import StrEnum
from pathlib import Path

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, say, show
from pyrklog.cli.deeds import telling
from pyrklog.cli.failures import CliError, Exit, unread
from pyrklog.cli.options import (
    CONNECTION,
    MaxFill,
    OnlySaid,
    Output,
    OutputFormat,
    Settings,
    argument,
    command,
    command_group,
    option,
)

app = command_group(
    "Move partitions to other brokers. Plans are those of kafka-reassign-partitions."
)

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
    max_fill: MaxFill = None,
    rate: str | None = option(
        "--rate RATE",
        "For the estimate of the time; default: what the last plan copied, or 50MB/s.",
        None,
    ),
    batch: str | None = option("--batch N|BYTES", "The same: so much at a time.", None),
    from_end: bool = option("--from-end", "The same: as with `apply --from-end`.", False),
    explained: bool = option("--explain", "Say why each partition moves.", False),
    write: str | None = option(
        "--write FILE", "Write the plan there, and print what it does to each broker.", None
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print a plan in Kafka's JSON, and on standard error what it costs. Changes nothing."""
    from pyrklog.cli.reassign_planning import Choice, Shown, print_plan

    names = _topics(topics, topics_file)
    only_needed = minimize is not None
    choice = Choice(
        by, brokers, add, exclude, replication_factor, rack_aware, only_needed, max_fill
    )
    print_plan(options, names, choice, Shown(rate, batch, from_end, explained, write, output))


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
    from_end: bool = option(
        "--from-end",
        "New replicas start at their leaders' ends, and join once they lack nothing; `cluster "
        "expand` says more.",
        False,
    ),
    additional: bool = option(
        "--additional", "Give new targets to partitions that another plan moves.", False
    ),
    watch: bool = option("-w, --watch", "Wait until nothing of it moves any more.", False),
    dry_run: OnlySaid = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Begin the moves of a plan, or go on with them. Refused, unless with --additional, while
    partitions of it move to something else."""
    from pyrklog.cli.reassign_apply import How, apply_plan

    limits = (throttle, batch, rollback, progress)
    how = How(file, *limits, from_end, additional, watch, dry_run, output)
    apply_plan(options, _read(file), how)


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
    from pyrklog.cli import reassign_past, reassign_progress, reassign_record, reassign_run
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
    heard = reassign_run.heard(options, output)
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
        # Between two batches nothing may have moved for any time.
        is_steady = record is not None and len(record.batches()) == 1
        if is_steady and record is not None and moves.seen is not None and moves.whole is not None:
            moves.record = reassign_record.noticed(None, record, moves.seen, moves.whole)
    record = moves.record or record
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
    why = reassign_past.why_throttled(cluster, wanted, path, cluster_id)
    if why is None:
        throttles.end(wanted)
        reassign_run.end_fills(throttles, record)
    else:
        typer.echo(f"note: {why}", err=True)
    if watch:
        reassign_run.wait_for_directories(cluster, heard, directories)
    if reassign_run.conclude(cluster, heard, wanted, directories):
        raise typer.Exit(Exit.DIFFERS)


@command(app, "cancel", *CONNECTION, "quiet")
@telling
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
    from pyrklog.cli import reassign_record
    from pyrklog.cli.reassign_cancel import Back, cancel_moves
    from pyrklog.cli.reassign_plan import parse_plan

    if everything == (file is not None):
        raise CliError(Problem.ARGUMENT_MISSING, "a plan or --all says what to cancel")
    if rollback and file is None:
        raise CliError(Problem.ARGUMENTS_DISAGREE, "--rollback needs the plan, not --all")
    named = None if file is None else parse_plan(_read(file), file)
    back = Back(file, progress, throttle, watch) if rollback and file is not None else None
    earlier, path = None, reassign_record.path_of(file, progress)
    if named is not None:
        earlier = reassign_record.of_plan(reassign_record.load(path), named)
    cancel_moves(options, named, back, dry_run=dry_run, earlier=earlier, path=path)


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
    max_fill: MaxFill = None,
    throttle: str = option("--throttle RATE|auto", "As of `apply`.", "auto"),
    rounds: int = option("--rounds N", "End after so many looks; 0: never.", 0, min=0),
    dry_run: OnlySaid = False,
) -> None:
    """Balance whenever a skew persists, until Ctrl-C; say why each partition moves."""
    from pyrklog.balance.automatic import Watcher
    from pyrklog.cli.durations import parse_seconds
    from pyrklog.cli.reassign_auto import Rules, parse_hours, run_rounds
    from pyrklog.cli.reassign_plan import check_throttle, parse_fill, parse_limit
    from pyrklog.cli.reassign_planning import Choice, goals_of

    check_throttle(throttle)
    allowed = None if hours is None else parse_hours(hours)
    watcher = Watcher(over, parse_seconds(persists, "--for"), allowed)
    every_s, limit = max(1.0, parse_seconds(every, "--every")), parse_limit(most)
    goals = goals_of(Choice(by))
    rules = Rules(goals, watcher, every_s, limit, throttle, rounds, dry_run, parse_fill(max_fill))
    run_rounds(options, rules)


def _read(file: str) -> str:
    if file == STANDARD_INPUT:
        return sys.stdin.read()
    try:
        return Path(file).read_text()
    except OSError as error:
        raise unread(file, error, Problem.FILE_CONTENT) from None
    except UnicodeDecodeError:
        raise CliError(Problem.FILE_CONTENT, f"{file} is no text") from None
