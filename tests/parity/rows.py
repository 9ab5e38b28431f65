"""The vocabulary of the table: rows, what prepares them, and the scenarios they stand in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.parity.session import Session

Setup = Callable[["Session"], None]
"""Prepares a broker by requests whose answers are not compared."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What an earlier answer of the scenario said, plus a number."""

    name: str
    plus: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One request of which both brokers' answers are equal.

    ``fields`` are as in :mod:`.definitions`, and may contain :class:`Saved`. ``tags`` are unknown
    tagged fields, ``tail`` follows the body, ``cut`` is the number of bytes missing from its end,
    ``body`` replaces it. ``save`` names values of the answer for later rows (``"topics.0.name"``).
    ``without`` names fields that the brokers may answer differently, beyond those of
    ``session.py``; ``only`` leaves nothing but those named. ``kept`` names fields that are compared
    although ``session.py`` leaves them out, ``ordered`` arrays whose order is compared.
    ``is_answered`` is False for Produce with acks=0. ``on`` names the connection.
    """

    name: str
    api: str
    version: int
    fields: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[int, bytes] = field(default_factory=dict)
    tail: bytes = b""
    cut: int = 0
    body: bytes | None = None
    save: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    only: Sequence[str] = ()
    kept: Sequence[str] = ()
    ordered: Sequence[str] = ()
    is_answered: bool = True
    on: str = ""

    @property
    def title(self) -> str:
        return f"{self.api} v{self.version}: {self.name}"


@dataclass(frozen=True, slots=True)
class Frame:
    """Bytes for a connection of their own, length prefix included.

    Compared is whether the broker closes it, or the answer's first bytes after the length.
    """

    name: str
    data: bytes
    compared_bytes: int = 1_000

    @property
    def title(self) -> str:
        return f"frame: {self.name}"


@dataclass(frozen=True, slots=True)
class Reading:
    """A partition's batches, from its start to its end or to the last stable offset.

    Compared are the batches and the aborted transactions, not in how many fetches they come.
    """

    name: str
    topic: str
    isolation_level: int = 0

    @property
    def title(self) -> str:
        return f"reading: {self.name}"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Steps in order, on topics and groups that no other scenario uses."""

    name: str
    steps: Sequence[Row | Frame | Reading | Setup]

    @property
    def rows(self) -> list[Row | Frame | Reading]:
        return [step for step in self.steps if isinstance(step, Row | Frame | Reading)]


def in_versions(versions: Sequence[int], make: Callable[[int], Row]) -> list[Row]:
    """The same request in several versions."""
    return [make(version) for version in versions]
