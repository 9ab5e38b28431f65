"""``pyrklog config``: explain, describe, alter, diff; on any Kafka cluster."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.admin_common import connect, show
from pyrklog.cli.config_kinds import ALL_BROKERS, OF_ONE_BROKER, Kind
from pyrklog.cli.deeds import tell_done, telling
from pyrklog.cli.failures import CliError, Exit, counted, exit_with, refuse_empty, tell
from pyrklog.cli.options import (
    CONNECTION,
    DryRun,
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
    from pyrklog.cli.config_cluster import ConfigAdmin, Entry, Operation

app = command_group(
    "Explain, describe, change, compare and convert options of brokers, topics and more."
)

OfKind = Annotated[
    Kind,
    argument(
        "topic|broker|broker-loggers|client-metrics",
        "Loggers: levels of a broker's log (KIP-412). Client metrics: subscriptions to metrics "
        "that clients push (KIP-714).",
        case_sensitive=False,
    ),
]
Names = Annotated[list[str], argument("NAME...")]


@command(app, "explain")
def explain(
    _options: Settings,
    names: list[str] = argument("OPTION..."),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Say what options mean: default, valid values, when changes act, effect. Asks no broker."""
    from pyrklog.cli import config_explain
    from pyrklog.cli.output import Listing

    refuse_empty("OPTION", "option", names)
    items = config_explain.explain(names)
    if output in (OutputFormat.TABLE, OutputFormat.WIDE):
        sys.stdout.write(config_explain.pages(items))
        sys.stdout.flush()
        return
    show(Listing("pyrklog.option-explanations/1", config_explain.COLUMNS, items), output)


@contextmanager
def _admin(options: Settings, kind: Kind) -> "Iterator[ConfigAdmin]":
    from pyrklog.cli.cluster_requests import ClusterRequests
    from pyrklog.cli.config_cluster import ConfigAdmin

    with ClusterRequests(options, instead="kafka-configs.sh") as requests:
        connect(options).check_properties()
        yield ConfigAdmin(requests, kind)


@command(app, "describe", *CONNECTION)
def describe(
    options: Settings,
    kind: OfKind,
    names: list[str] | None = argument("[NAME...]", default=None),
    only: list[str] | None = option("-k, --option K", "Only this one; may be repeated.", None),
    changed: bool = option("--changed", "Only options that are not at their default.", False),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show options: value, source and default.

    A broker's NAME is its number, or "default" for what holds for all of them. Without a NAME all
    client metrics are shown. `-o wide` shows why a value counts: what was given, the strongest
    first.
    """
    from pyrklog.cli import config_tables

    _refuse_empty(names or [], only)
    if not names and kind is not Kind.CLIENT_METRICS:
        _refuse_nameless(options, kind)
    from pyrklog.cli.config_cluster import with_unset

    loggers = kind is Kind.BROKER_LOGGERS

    with _admin(options, kind) as admin:
        admin.refuse_missing(names or ())
        names = names or admin.subscriptions()
        # What a logger inherits is known beside the others only.
        found = admin.describe(list(dict.fromkeys(names)), () if loggers else only or ())
        if kind is Kind.BROKER:
            found = {name: with_unset(name, entries, only) for name, entries in found.items()}
        if changed:
            found = {
                name: [one for one in entries if _is_changed(kind, one)]
                for name, entries in found.items()
            }
        wanted = only if only and not changed else ()
        _refuse_missing(kind, found, wanted if loggers else ())
        if loggers and only:
            found = {
                name: [one for one in entries if one.name in only]
                for name, entries in found.items()
            }
        # A heading above nothing would look like an answer.
        shown = {
            name: entries
            for name, entries in found.items()
            if entries or not wanted or name == ALL_BROKERS
        }
        if not names and not options.quiet:
            typer.echo("note: there are no subscriptions to client metrics", err=True)
        if shown or not names:
            config_tables.print_described(kind, shown, output, admin.cluster_id)
        _refuse_missing(kind, found, wanted)


def _refuse_nameless(options: Settings, kind: Kind) -> NoReturn:
    """Brokers are few: the error names them."""
    fix = "name one or more"
    if kind in OF_ONE_BROKER:
        with _admin(options, kind) as admin:
            fix = f"{fix}; {admin.brokers_alive}"
    raise CliError(Problem.ARGUMENT_MISSING, f"which {_noun(kind)}?", fix)


def _noun(kind: Kind) -> str:
    """What the names of this kind stand for."""
    return Kind.BROKER.value if kind is Kind.BROKER_LOGGERS else kind.value


def _is_changed(kind: Kind, one: "Entry") -> bool:
    """Of loggers it is known only whether their level is the one that they would inherit."""
    return one.value != one.default if kind is Kind.BROKER_LOGGERS else one.source != "default"


def _refuse_empty(names: Sequence[str], only: Sequence[str] | None = None) -> None:
    refuse_empty("NAME", "topic or broker", names)
    refuse_empty("--option", "option", only or ())


def _refuse_missing(kind: Kind, found: "dict[str, list[Entry]]", only: Sequence[str]) -> None:
    """Brokers leave unknown options out."""
    from pyrklog.cli.config_loggers import like_or_all
    from pyrklog.cli.option_advice import explained, like_option
    from pyrklog.config import client_metrics
    from pyrklog.config.broker import OPTIONS
    from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME

    tables = {Kind.TOPIC: TOPIC_OPTIONS_BY_NAME, Kind.CLIENT_METRICS: client_metrics.OPTIONS}
    for name, entries in found.items():
        loggers = kind is Kind.BROKER_LOGGERS
        known = [one.name for one in entries] if loggers else list(tables.get(kind, OPTIONS))
        missing = [one for one in only if all(one != entry.name for entry in entries)]
        if missing and name != ALL_BROKERS:
            what = f"{kind} {name} has no option {missing[0]}"
            if loggers:
                listed = like_or_all(missing, known, name)
                raise CliError(Problem.OPTION_NOT_FOUND, what, listed)
            fix = like_option(missing, known) or explained(missing[:1])
            raise CliError(
                Problem.OPTION_NOT_FOUND,
                what,
                fix or f"see `pyrklog config describe {kind} {name}`",
            )


@command(app, "alter", *CONNECTION, "quiet")
@telling
def alter(
    options: Settings,
    kind: OfKind,
    names: Names,
    set_: list[str] | None = option("--set K=V", "Give an option a value; may be repeated.", None),
    unset: list[str] | None = option("--unset K", "Back to the default; may be repeated.", None),
    append: list[str] | None = option(
        "--append K=V,...", "Add items to a list; may be repeated.", None
    ),
    subtract: list[str] | None = option(
        "--subtract K=V,...", "Take items from a list; may be repeated.", None
    ),
    dry_run: DryRun = False,
) -> None:
    """Change options; others stay as they are.

    A broker's NAME is its number, or "default" for what holds for all of them. Levels of loggers
    (`--set LOGGER=DEBUG`) hold until the broker ends.
    """
    _refuse_empty(names)
    _refuse_pairs(kind, names)
    operations = _operations(set_, unset, append, subtract)
    if kind is Kind.BROKER_LOGGERS:
        from pyrklog.cli.config_loggers import spelled

        operations = spelled(operations)
    names = list(dict.fromkeys(names))
    from pyrklog.cli.config_cluster import altered_lines, refuse_unknown
    from pyrklog.cli.config_effect import remarks
    from pyrklog.cli.config_loggers import like_or_all
    from pyrklog.cli.option_advice import advice, parted

    with _admin(options, kind) as admin:
        before = {
            name: {one.name: one for one in entries}
            for name, entries in admin.describe(names).items()
        }
        for name in names:
            refuse_unknown(kind, name, operations, before[name])
        told = remarks(kind, [one.option for one in operations])
        told = told if told and admin.is_pyrklog() else {}
        codes = []
        would = " (not done)" if dry_run else ""
        for name, error in admin.alter(names, operations, dry_run=dry_run).items():
            codes.append(Exit.OK if error is None else error.code)
            if error is not None:
                given = [one.option for one in operations]
                error.what, proposed = parted(error.what)
                known = list(before[name])
                unknown = [one for one in given if one not in known]
                if kind is Kind.BROKER_LOGGERS and unknown:
                    error.fix = like_or_all(unknown, known, name)
                error.fix = error.fix or proposed or advice(error.what, given, known)
                tell(error)
                continue
            lines = altered_lines(kind, name, before[name], operations, told)
            for line in lines:
                result = line.partition(": ")[2]
                tell_done(options, f"{line}{would}", kind=kind.value, name=name, result=result)
    exit_with(codes)


def _refuse_pairs(kind: Kind, names: Sequence[str]) -> None:
    """Nothing of these kinds has a name with an equals sign."""
    pair = next((name for name in names if "=" in name), None)
    if pair is not None and kind is not Kind.CLIENT_METRICS:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"{pair} is no name of a {_noun(kind)}", f"give --set {pair}"
        )


def _operations(
    set_: list[str] | None,
    unset: list[str] | None,
    append: list[str] | None,
    subtract: list[str] | None,
) -> "list[Operation]":
    from pyrklog.cli.config_cluster import APPEND, DELETE, SET, SUBTRACT, Operation

    found = [Operation(*pair, SET) for pair in parse_pairs(set_, "--set").items()]
    found += [Operation(name.strip(), None, DELETE) for name in unset or []]
    found += [Operation(*pair, APPEND) for pair in parse_pairs(append, "--append").items()]
    found += [Operation(*pair, SUBTRACT) for pair in parse_pairs(subtract, "--subtract").items()]
    if not found:
        what = "nothing to change"
        raise CliError(
            Problem.ARGUMENT_MISSING, what, "give --set, --unset, --append or --subtract"
        )
    names = [one.option for one in found]
    refuse_empty("--unset", "option", names)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CliError(Problem.ARGUMENTS_DISAGREE, f"{twice} is changed twice")
    return found


@command(app, "convert", "quiet")
def convert_file(
    options: Settings,
    file: Path = argument("FILE"),
    form: str | None = option("--to FORM", "toml or properties; default: the other form.", None),
    out: Path | None = option("-o, --out FILE", "Write a new file; default: print it.", None),
) -> None:
    """Turn a server.properties into TOML, or TOML into it; say what its options do here.

    A broker starts with both alike, and comments stay. Options that have no effect, and what to set
    instead, are named on standard error. Exit code 8 if a broker would not start with it.
    """
    from pyrklog.cli.config_convert import convert

    code = convert(file, form, out, quiet=options.quiet)
    if code:
        raise typer.Exit(code)


@command(app, "diff", *CONNECTION)
def diff(
    options: Settings,
    kind: OfKind,
    names: list[str] | None = argument("[NAME...]", default=None),
    all_options: bool = option(
        "--all", "Also what differs by nature: numbers, addresses, directories.", False
    ),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show options that differ. Exit code 8 if any do.

    One NAME is compared with its defaults; no NAME means all brokers. With "default" only the
    options are compared that were set for all brokers.
    """
    from pyrklog.cli import config_tables
    from pyrklog.cli.config_diff import difference, is_of_all_brokers

    _refuse_empty(names or [])
    if not names and kind not in OF_ONE_BROKER:
        raise CliError(Problem.ARGUMENT_MISSING, f"which {kind.value}?", "name one or more")
    with _admin(options, kind) as admin:
        wanted = list(dict.fromkeys(names or admin.broker_names))
        admin.refuse_missing(wanted)
        found: dict[str, Any] = admin.describe(wanted)
        if is_of_all_brokers(kind, wanted) and not options.quiet:
            count = counted(len(found[ALL_BROKERS]), "option")
            typer.echo(f"note: only what {ALL_BROKERS} has is compared: {count}", err=True)
        headings, items = difference(kind, found, all_options=all_options)
        config_tables.print_difference(headings, items, output, admin.cluster_id)
    if items:
        raise typer.Exit(Exit.DIFFERS)
