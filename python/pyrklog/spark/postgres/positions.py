"""How far a stream of a database's changes has come, as Spark keeps it in the checkpoint.

Spark compares offsets as texts and keeps no first one, so a document is canonical, and the first is
the same for every start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

VERSION = 1
_XIDS = 2**32


class PositionError(ValueError):
    """A checkpoint's offset is not one of this source's, or of its other mode."""


@dataclass(frozen=True)
class Snapshot:
    """What PostgreSQL's ``pg_current_snapshot()`` tells: which transactions a snapshot sees."""

    xmin: int
    """All before are seen."""
    xmax: int
    """None from here on."""
    running: frozenset[int]
    """Of those between: not seen."""

    @staticmethod
    def parse(text: str) -> Snapshot:
        """Raises ValueError."""
        xmin, xmax, running = text.split(":")
        return Snapshot(
            int(xmin), int(xmax), frozenset(map(int, running.split(",") if running else ()))
        )

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, sorted(self.running)))}"

    def sees(self, xid: int) -> bool:
        """Whether it has what a committed transaction did, of which the lower 32 bits are known.
        The transaction is less than 2^31 away."""
        full = self.xmax - self.xmax % _XIDS + xid
        if full - self.xmax > _XIDS // 2:
            full -= _XIDS
        elif self.xmax - full > _XIDS // 2:
            full += _XIDS
        return full < self.xmin or (full < self.xmax and full not in self.running)


@dataclass(frozen=True)
class Position:
    """Read is every transaction whose commit begins before ``lsn``, and the snapshot.

    What the snapshot sees was told by it. Nothing from ``until`` on is seen, so that it is
    forgotten there.
    """

    lsn: int
    snapshot: Snapshot | None = None
    until: int = 0

    def moved(self, lsn: int) -> Position:
        """``lsn`` does not go back."""
        if self.snapshot is None or lsn >= self.until:
            return Position(lsn)
        return Position(lsn, self.snapshot, self.until)

    def to_json(self) -> Json:
        document: Json = {"version": VERSION, "lsn": shown(self.lsn)}
        if self.snapshot is not None:
            document |= {"snapshot": str(self.snapshot), "until": shown(self.until)}
        return document


START: Json = {"version": VERSION}
"""Before the snapshot."""


def position(document: Json) -> Position | None:
    """None for ``START``. Raises PositionError."""
    _check_version(document)
    if document == START:
        return None
    try:
        snapshot = document.get("snapshot")
        if snapshot is None:
            return Position(lsn_of(document["lsn"]))
        return Position(
            lsn_of(document["lsn"]), Snapshot.parse(snapshot), lsn_of(document["until"])
        )
    except (KeyError, ValueError, AttributeError) as error:
        raise PositionError(f"{document} is no position of changes in a database") from error


def marks(document: Json) -> dict[str, str]:
    """With option ``watermark``: by table, the last value that was read, in text. None of a table
    whose first value is still to come. Raises PositionError."""
    _check_version(document)
    found = {} if document == START else document.get("watermarks")
    if not isinstance(found, dict):
        raise PositionError(f"{document} is no position of a watermark")
    return found


def marks_to_json(found: dict[str, str]) -> Json:
    return {"version": VERSION, "watermarks": dict(sorted(found.items()))}


def shown(lsn: int) -> str:
    """As PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFF_FFFF:X}"


def lsn_of(text: str) -> int:
    """Raises ValueError."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def _check_version(document: Json) -> None:
    if document.get("version") != VERSION:
        raise PositionError(f"{document} is no position of this version")
