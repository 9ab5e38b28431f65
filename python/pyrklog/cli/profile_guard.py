"""Commands that change a cluster, and profiles that refuse them or ask first.

A command that is not listed here counts as changing: a new one is refused by a read-only profile
until somebody has looked at it.
"""

import sys
from collections.abc import Mapping
from typing import Any

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.profiles import Profile

READING = frozenset(
    {
        "cluster brokers",
        "cluster clients",
        "cluster health",
        "cluster reassign plan",
        "cluster reassign status",
        "cluster restart-safe",
        "cluster txns describe",
        "cluster txns list",
        "cluster txns producers",
        "config describe",
        "config diff",
        "consume",
        "doctor",
        "group describe",
        "group export",
        "group history",
        "group lag",
        "group list",
        "log dump",
        "log merge-state",
        "log verify",
        "topic describe",
        "topic list",
        "topic skew",
    }
)
"""Commands that only read from the cluster of a profile."""
_CHANGES_WITH = {
    "cluster reassign status": ("file", "FILE"),
    "consume": ("group", "-g"),
    "doctor": ("fix", "--fix"),
}
"""Commands that read unless this argument, shown so, is given: the throttle of a plan that is done
goes, a group's member commits offsets."""
_READS_WITH = {"cluster expand": "status"}
"""Commands that change a cluster unless this argument is given."""


def is_changing(command: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the command (without ``pyrklog``) with these arguments may change a cluster."""
    if arguments.get("dry_run"):
        return False
    if command not in READING:
        return not arguments.get(_READS_WITH.get(command, ""))
    decisive, _ = _CHANGES_WITH.get(command, (None, ""))
    return decisive is not None and bool(arguments.get(decisive))


def check(
    command: str, arguments: Mapping[str, Any], profile: Profile, confirmed: str | None
) -> None:
    """Raises :class:`CliError` unless the profile lets the command run. ``confirmed`` is the name
    that ``--confirm`` has given."""
    if not (profile.read_only or profile.confirm) or not is_changing(command, arguments):
        return
    if profile.read_only:
        _, decisive = _CHANGES_WITH.get(command, (None, ""))
        said = f"{command} {decisive}".rstrip()
        what = f"profile {profile.name} is read-only, and `pyrklog {said}` changes a cluster"
        instead = f"leave {decisive} out, " if decisive else ""
        fix = f"{instead}choose another profile with -p, or none with -p none"
        raise CliError(Problem.PROFILE_GUARD, what, fix)
    _confirm(command, profile.name, confirmed)


def _confirm(command: str, name: str, confirmed: str | None) -> None:
    typed = confirmed
    if typed is None:
        if not sys.stdin.isatty():
            what = f"profile {name} wants its name typed before a change"
            raise CliError(
                Problem.CONFIRMATION_NEEDED, what, f"give `pyrklog --confirm {name} {command} ...`"
            )
        try:
            typed = typer.prompt(f"Type {name} to run `pyrklog {command}` on it", err=True)
        except typer.Abort:
            raise CliError(Problem.STOPPED, "nothing was changed") from None
    if typed != name:
        what = f"profile {name} was not confirmed; nothing was changed"
        raise CliError(
            Problem.PROFILE_GUARD, what, "type its name as `pyrklog profile list` shows it"
        )
