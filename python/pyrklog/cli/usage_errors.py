"""Typer's errors about the command line, in the form of all others and with a number."""

import sys
from functools import partial
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, asks_for_json, tell

_PROBLEMS = {
    "BadParameter": Problem.ARGUMENT_VALUE,
    "MissingParameter": Problem.ARGUMENT_MISSING,
}
"""By the names of typer's classes, which are not public. Any other is :attr:`Problem.USAGE`."""
_HELP = "NoArgsIsHelpError"
"""Prints the help of a group whose command is missing."""


def number(error: Any) -> None:
    """Lets typer print the error with its number. Other exceptions stay as they are."""
    if hasattr(error, "format_message") and type(error).__name__ != _HELP:
        error.show = partial(_show, error)


def advise(error: Any, fix: str) -> None:
    error.fix = fix


def _show(error: Any, file: Any = None) -> None:
    context = getattr(error, "ctx", None)
    as_json = context is not None and asks_for_json(context)
    if context is not None and not as_json:
        usage = f"{context.get_usage()}\nTry '{context.command_path} --help' for help.\n"
        print(usage, file=file or sys.stderr)
    problem = _PROBLEMS.get(type(error).__name__, Problem.USAGE)
    told = CliError(problem, error.format_message(), getattr(error, "fix", None))
    tell(told, as_json=as_json)
