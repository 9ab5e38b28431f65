"""Plans that depend on no disk of the machine: it may be nearly full, and moves are small."""

from collections.abc import Sequence

PLANNING = ("plan", "auto", "drain", "replace", "expand")
WITHOUT_PLAN = {"--status", "--cancel", "--promote", "--max-fill"}


def with_room(arguments: Sequence[str]) -> list[str]:
    """Arguments of a command, which fills disks to the last byte if it makes plans."""
    found = list(arguments)
    words = found[: 1 + ("reassign" in found) + ("cluster" in found)]
    makes_plan = any(word in PLANNING for word in words)
    return [*found, "--max-fill", "100"] if makes_plan and not WITHOUT_PLAN & {*found} else found
