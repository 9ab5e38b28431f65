import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.deeds import tell_done
from pyrklog.cli.failures import CliError, Exit, cli_error, exit_code, exit_with, tell
from pyrklog.cli.options import OutputFormat, Settings

if TYPE_CHECKING:
    from pyrklog.cli.connection import Connection
    from pyrklog.cli.output import Listing


def connect(options: Settings) -> "Connection":
    from pyrklog.cli.connection import Connection

    return Connection(options)


def say(options: Settings, *lines: str) -> None:
    for line in lines:
        tell_done(options, line)


def show(listing: "Listing", output: OutputFormat) -> None:
    from pyrklog.cli.output import print_listing

    print_listing(listing, output)


def confirm(
    names: list[str], action: str = "delete it", *, noun: str = "deleting", done: str = "deleted"
) -> None:
    """The user must type each name before ``action`` on it."""
    from pyrklog.cli.output import cell

    if not sys.stdin.isatty():
        raise CliError(Problem.CONFIRMATION_NEEDED, f"{noun} needs to be confirmed", "give -y")
    for name in names:
        try:
            typed = typer.prompt(f"Type {cell(name)} to {action}")
        except typer.Abort:
            typer.echo()  # the error gets a line of its own
            raise CliError(Problem.STOPPED, f"nothing was {done}") from None
        if typed != name:
            raise CliError(Problem.NOT_CONFIRMED, f"{name} was not confirmed; nothing was {done}")


def report_each(
    kind: str,
    futures: Mapping[str, Any],
    done: str | Mapping[str, str],
    options: Settings,
    ignore: Mapping[str, str] | None = None,
    fixes: Mapping[str, str | None] | None = None,
) -> None:
    """Reports each item's result; exits with one code for all.

    ``ignore`` maps names of harmless errors to messages, ``fixes`` others to fixes.
    """
    from confluent_kafka import KafkaException

    harmless = ignore or {}
    codes: list[Exit] = []
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            kafka_error = error.args[0]
            if kafka_error.name() in harmless:
                codes.append(Exit.OK)
                result = harmless[kafka_error.name()]
                tell_done(options, f"{name}: {result}", kind=kind, name=name, result=result)
                continue
            codes.append(exit_code(kafka_error))
            fix = (fixes or {}).get(kafka_error.name())
            topic = name if kind == "topic" else None
            refused = cli_error(kafka_error, f"{kind} {name}", fix, topic=topic)
            tell(refused)
        else:
            codes.append(Exit.OK)
            result = done if isinstance(done, str) else done[name]
            tell_done(options, f"{name}: {result}", kind=kind, name=name, result=result)
    exit_with(codes)
