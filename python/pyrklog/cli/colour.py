"""Colours of what a terminal shows: ``NO_COLOR`` of the environment before the profile's choice."""

import os
from typing import TextIO

AUTO, ALWAYS, NEVER = MODES = ("auto", "always", "never")

_chosen = AUTO


def choose(mode: str) -> None:
    """``mode`` of the profile that the command uses."""
    global _chosen
    _chosen = mode


def mode() -> str:
    return NEVER if os.environ.get("NO_COLOR") else _chosen


def is_for_people(stream: TextIO) -> bool:
    """Whether tables have bold headings: on a terminal, or where the profile says ``always``."""
    return stream.isatty() or mode() == ALWAYS
