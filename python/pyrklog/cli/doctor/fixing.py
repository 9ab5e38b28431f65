"""``doctor --fix``: shows, asks, does, and looks again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import typer

from pyrklog.base.problems import Problem
from pyrklog.cli.doctor.checks import Check
from pyrklog.cli.doctor.remedies import Left, Remedy, carry_out
from pyrklog.cli.failures import CliError, tell
from pyrklog.observability.health_rules import Reason

SETTLED_S = 15.0
"""How long a finding may take to go: replicas catch up, metadata spreads."""
PAUSE_S = 0.5

Look = Callable[[], Sequence[Check]]


class Outcome(NamedTuple):
    """``state``: would, fixed, remains, failed, declined, left, gone. ``why`` of the last four and
    of what remains."""

    check: str
    what: str
    state: str
    command: str | None = None
    why: str | None = None

    def item(self) -> dict[str, Any]:
        return self._asdict()

    @property
    def lines(self) -> list[str]:
        from pyrklog.cli.output import cell

        found = [f"{self.state:<9} {self.check}  {cell(self.what)}"]
        if self.command is not None:
            found.append(f"{'':9} by: {self.command}")
        if self.why is not None:
            found.append(f"{'':9} why: {cell(self.why)}")
        return found


def planned(found: Sequence[Remedy], left: Sequence[Left]) -> list[Outcome]:
    """What would be done."""
    would = [Outcome(one.check, one.finding.what, "would", one.command) for one in found]
    return [*would, *map(_of_left, left)]


def fixed(
    found: Sequence[Remedy],
    left: Sequence[Left],
    look: Look,
    *,
    yes: bool,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> list[Outcome]:
    """Carries out each remedy that is confirmed. Raises :class:`CliError` where nobody can be
    asked."""
    outcomes: dict[int, Outcome] = {}
    acted: list[int] = []
    _refuse_unasked(found, yes)
    for number, one in enumerate(found):
        what = one.finding.what
        if not yes and not _is_wanted(one):
            outcomes[number] = Outcome(one.check, what, "declined", one.command)
            continue
        say(f"running: {one.command}")
        error = carry_out(one)
        if error is None:
            acted.append(number)
            continue
        tell(error)
        outcomes[number] = Outcome(one.check, what, "failed", one.command, error.what)
    until = clock() + SETTLED_S
    checks = look() if acted else []
    while any(_finding_left(found[one], checks) for one in acted) and clock() < until:
        pause(PAUSE_S)
        checks = look()
    for number in acted:
        one = found[number]
        still = _finding_left(one, checks)
        outcomes[number] = Outcome(
            one.check,
            one.finding.what,
            "fixed" if still is None else "remains",
            one.command,
            None if still is None else still.what,
        )
    lefts = [
        _of_left(one) if not acted or _is_left(one, left, checks) else _of_gone(one) for one in left
    ]
    return [*(outcomes[number] for number in sorted(outcomes)), *lefts]


def _is_left(one: Left, every: Sequence[Left], checks: Sequence[Check]) -> bool:
    """Whether the finding is still there; its sentence may have other numbers by now."""
    others = {(left.check, left.what) for left in every if left is not one}
    return any(
        (check.name, found.kind, found.broker) == (one.check, one.finding.kind, one.finding.broker)
        and (check.name, found.what) not in others
        for check in checks
        for found in check.findings
    )


def _of_gone(one: Left) -> Outcome:
    return Outcome(one.check, one.what, "gone", None, "it went with what was fixed")


def _of_left(one: Left) -> Outcome:
    return Outcome(one.check, one.what, "left", None, one.why)


def _finding_left(remedy: Remedy, checks: Sequence[Check]) -> Reason | None:
    for check in checks:
        for one in check.findings:
            if (one.kind, one.broker) == (remedy.finding.kind, remedy.finding.broker):
                return one
    return None


def _refuse_unasked(found: Sequence[Remedy], yes: bool) -> None:
    if found and not yes and not sys.stdin.isatty():
        fix = "give -y, or --dry-run to see what would be done"
        raise CliError(Problem.CONFIRMATION_NEEDED, "fixing needs to be confirmed", fix)


def _is_wanted(one: Remedy) -> bool:
    from pyrklog.cli.output import cell

    try:
        return typer.confirm(f"{cell(one.finding.what)}\nRun `{one.command}`?", err=True)
    except typer.Abort:
        raise CliError(Problem.STOPPED, "nothing more was changed") from None
