"""``pyrklog log``: log files without a broker, replicas, state-change logs."""

import os
from collections.abc import Iterable
from pathlib import Path

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.deeds import tell_done, telling
from pyrklog.cli.failures import CliError, counted, tell
from pyrklog.cli.options import (
    CONNECTION,
    Output,
    OutputFormat,
    Places,
    Settings,
    argument,
    command,
    command_group,
    option,
)

app = command_group("Look into log files, compare replicas, merge state-change logs.")


@app.callback()
def log() -> None:
    """Look into log files, compare replicas, merge state-change logs."""


@command(app, "dump", "profile")
def dump(
    options: Settings,
    paths: list[str] = argument("PATH...", "Files, folders, or partitions as TOPIC:P."),
    records: bool = option("--records", "Each record of each batch too.", False),
    index: bool = option(
        "--index", "Of folders all but the segments: indexes, snapshots, leader epochs.", False
    ),
    verify: bool = option(
        "--verify/--no-verify", "Check every checksum, and indexes against their segment.", True
    ),
    decode: str | None = option(
        "--decode KIND",
        "With --records what they say: offsets, transactions, raw; default: by the topic.",
        None,
    ),
    data: Path | None = option("--data DIR", "Where TOPIC:P is: as given to pyrklog serve.", None),
    config: Path | None = option("--config FILE", "The same, by the broker's options.", None),
    set_: list[str] | None = option("--set K=V", "The same, as given to pyrklog serve.", None),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print segments, indexes, snapshots and checkpoints of files, folders or partitions.

    TOPIC:P is found in the directories of a broker on this machine, which may run: its files are
    only read, and what it writes meanwhile is no damage. With the profile of a cluster of `pyrklog
    dev` its brokers' directories come first. If something is damaged, names the byte, and ends with
    exit code 8.
    """
    from pyrklog.cli.log_decode import decoder, refuse_kind
    from pyrklog.cli.log_dump import Printer, files, rows
    from pyrklog.cli.log_places import LivePartition, found_paths

    refuse_kind(decode, records=records)
    dev = None if options.profile is None else options.profile.dev
    given, notes = found_paths(paths, data, config, set_ or (), dev)
    for note in () if options.quiet else notes:
        typer.echo(f"note: {note}", err=True)
    printer = Printer(output, lines=records)
    for path in files(given, only_indexes=index):
        printer.begin(path)
        live = LivePartition(path)
        how = decoder(path, decode)
        found = rows(path, records=records, verify=verify, decode=how)
        for row in live.settled(rows, found, verify=verify):
            printer.add(row)
        printer.end()
    printer.finish()
    if printer.damages:
        raise CliError(Problem.LOG_DAMAGED, f"{counted(printer.damages, 'damage')} found")


@command(app, "verify", *CONNECTION)
def verify(
    options: Settings,
    places: Places = None,
    since: str | None = option(
        "--since OFFSET|@TIME",
        "Compare from there on, such as 1500, @2024-01-31T12:00:00 or @-90m.",
        None,
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Compare the replicas of partitions by digests that their brokers make; no record is fetched.

    Compares what all replicas have, up to the lowest high watermark. Exit code 8 if some differ or
    are damaged, with the first such offset; 9 if only some could be compared.
    """
    import time

    from pyrklog.cli.admin_common import connect, show
    from pyrklog.cli.log_verify import UNKNOWN, parse_since
    from pyrklog.cli.log_verify import verify as compare

    begin = None if since is None else parse_since(since, time.time_ns() // 1_000_000)
    connection = connect(options)
    listing, code = compare(connection, places or [], begin)
    show(listing, output)
    for item in listing.items:
        if item["status"] == UNKNOWN:
            what = f"{item['topic']}-{item['partition']} was not compared: {item['reason']}"
            tell(CliError(Problem.PARTLY_DONE, what))
    if code:
        raise typer.Exit(code)


@command(app, "merge-state", *CONNECTION)
def merge_state(
    options: Settings,
    paths: list[Path] | None = argument(
        "[PATH...]",
        "Logs, or folders that hold some; default: those of all brokers, asked of them.",
        None,
    ),
    topic: str | None = option("--topic TOPIC", "Only this one.", None),
    partition: int | None = option("--partition P", "Only this one.", None, min=0),
    since: str | None = option("--since @TIME", "From then on.", None),
    until: str | None = option("--until @TIME", "Before then.", None),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Merge the state-change logs of several brokers into one timeline.

    MARKS tells where the controller's or a leader's epoch changed, and whether it fell or left one
    out. Write times as @2024-01-31T12:00:00 or @-90m. Exit code 9 if a log or a line is missing.
    """
    from pyrklog.cli.state_change_logs import merge
    from pyrklog.cli.state_changes import Filter

    if partition is not None and topic is None:
        raise CliError(Problem.ARGUMENT_MISSING, "--partition of which topic?", "give --topic")
    wanted = Filter(topic, partition, _time_ms("--since", since), _time_ms("--until", until))
    code = merge(options, paths or [], wanted, output)
    if code:
        raise typer.Exit(code)


def _time_ms(option: str, text: str | None) -> int | None:
    import time

    from pyrklog.cli.offsets import RangeError, parse_time_ms

    if text is None:
        return None
    try:
        return parse_time_ms(text.removeprefix("@"), time.time_ns() // 1_000_000)
    except RangeError:
        fix = "give @2024-01-31T12:00:00 or @-90m"
        raise CliError(Problem.ARGUMENT_VALUE, f"{option} {text!r} is no time", fix) from None


@command(app, "export-kraft", "quiet")
@telling
def export_kraft(
    options: Settings,
    data: Path | None = option("--data DIR", "As given to pyrklog serve.", None),
    config: Path | None = option("--config FILE", "As given to pyrklog serve.", None),
    set_: list[str] | None = option("--set K=V", "As given to pyrklog serve.", None),
    dry_run: bool = option("--dry-run", "Check the directories, but write nothing.", False),
) -> None:
    """Make the log directories of a stopped broker ready for Apache Kafka 3.9 (KRaft).

    Writes bootstrap.checkpoint and meta.properties, so that Kafka starts with our topics, options,
    epochs and producer ids on log.dirs as they are. No record is copied, nothing is deleted.
    """
    import os

    from pyrklog.adoption.export import export_kraft as export
    from pyrklog.config.load import load_config
    from pyrklog.errors import StartError, TemporaryError

    flags = {"pyrklog.data.dir": str(data)} if data is not None else {}
    if data is None and config is None and not set_:
        # It changes the directories, so never the default one, which the user has not named.
        raise CliError(
            Problem.ARGUMENT_MISSING, "whose directories?", "give --data or --config, as to serve"
        )
    _refuse_missing([one for one in (data, config) if one is not None])
    try:
        settings = load_config(file=config, overrides=set_ or (), environ=os.environ, flags=flags)
        _refuse_missing(settings.log_dirs)
        done = export(settings, dry_run=dry_run)
    except StartError as error:
        is_used = isinstance(error, TemporaryError)
        problem = Problem.DATA_IN_USE if is_used else Problem.NOT_EXPORTED
        raise CliError(problem, error.what.rstrip("."), error.fix) from None
    what = f"{counted(done.topics, 'topic')}, {counted(done.partitions, 'partition')}"
    would = " (not done)" if dry_run else ""
    log_dirs = ",".join(map(str, settings.log_dirs))
    aside = "our metadata, and any older one of Kafka's, was put aside"
    for name, line in (
        ("topics", f"{what}, for Kafka 3.9 in KRaft mode"),
        ("node.id", f"node.id={done.node_id}"),
        ("log.dirs", f"log.dirs={log_dirs}"),
        (
            "cluster id",
            f"cluster id: {done.cluster_id} (kept in meta.properties; do not format again)",
        ),
        ("put aside", f"{aside}: {done.put_aside}{would}"),
    ):
        tell_done(options, line, kind="kraft", name=name, result=line.removesuffix(would))


def _refuse_missing(paths: Iterable[Path]) -> None:
    missing = next((path for path in paths if not os.path.lexists(path)), None)
    if missing is not None:
        fix = "name the directories as for `pyrklog serve`, with --data or --config"
        raise CliError(Problem.FILE_NOT_FOUND, f"{missing} does not exist", fix)
