"""What ``pyrklog mirror run`` says, on standard error."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from pyrklog.cli.failures import counted
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_plan import amount

if TYPE_CHECKING:
    from pyrklog.mirror import Names
    from pyrklog.mirror.state import Partition, Progress
    from pyrklog.mirror.topics import Plan

REPORT_S = 10.0


class Said:
    """Notes, and every :data:`REPORT_S` how much was copied, if anything was."""

    def __init__(self, names: "Names", options: Settings) -> None:
        self._names = names
        self._is_quiet = options.quiet
        self._report_s = 0.0 if options.verbose else REPORT_S
        self._at = time.monotonic()
        self._begun = self._at
        self._first: tuple[int, int] | None = None
        self._told = (0, 0)
        self._now = (0, 0)

    def note(self, text: str) -> None:
        if not self._is_quiet:
            typer.echo(f"note: {text}", err=True)

    def began(self, plan: "Plan", progress: "Mapping[Partition, Progress]") -> None:
        topics = counted(len(plan.topics), "topic")
        partitions = counted(sum(plan.topics.values()), "partition")
        self._say(f"{self._names.source} -> {self._names.target}: {topics}, {partitions}")
        if self._first is None:
            # What earlier runs have copied does not count.
            self._first = self._told = self._now = _sums(progress)
            self._at = self._begun = time.monotonic()

    def copied(self, progress: "Mapping[Partition, Progress]") -> None:
        self._now = _sums(progress)
        now = time.monotonic()
        if now - self._at >= self._report_s and self._now != self._told:
            records, size = (a - b for a, b in zip(self._now, self._told, strict=True))
            seconds = max(now - self._at, 0.001)
            rate = f"{records / seconds:,.0f} records/s, {amount(size / seconds)}/s"
            self._say(f"{counted(records, 'record')}, {amount(size)}: {rate}")
            self._told, self._at = self._now, now

    def summary(self) -> None:
        if self._first is not None:
            records, size = (a - b for a, b in zip(self._now, self._first, strict=True))
            seconds = time.monotonic() - self._begun
            copied = counted(records, "record")
            self._say(f"copied {copied}, {amount(size)}, in {seconds:.1f} s")

    def _say(self, line: str) -> None:
        if not self._is_quiet:
            typer.echo(line, err=True)


def _sums(progress: "Mapping[Partition, Progress]") -> tuple[int, int]:
    """Records and bytes."""
    return (
        sum(one.records for one in progress.values()),
        sum(one.bytes for one in progress.values()),
    )
