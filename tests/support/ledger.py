"""What producers were told and readers saw, record by record.

A record's value begins with its writer's number and the writer's count in that partition: ``b"3
1207 ..."``. The records of an ``exact`` writer, which repeats what was not answered, are 0, 1, 2,
... without a gap; other writers may lack unacknowledged records. No record appears twice, and
acknowledged records are at the acknowledged offsets.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

Place = tuple[str, int]

_UNKNOWN = -1
_COUNT_BITS = 40


def value(writer: int, count: int, padding: int = 0) -> bytes:
    return b"%d %d " % (writer, count) + bytes(padding)


def parse(text: bytes) -> tuple[int, int]:
    writer, count, _ = text[:40].split(b" ", 2)
    return int(writer), int(count)


@dataclass
class _Partition:
    told: array[int] = field(default_factory=lambda: array("q"))
    seen: array[int] = field(default_factory=lambda: array("q"))
    last: dict[int, int] = field(default_factory=dict)
    somewhere: dict[int, int] = field(default_factory=dict)


class Ledger:
    """Thread-safe. ``errors`` holds contradictions."""

    def __init__(self, exact: Iterable[int]) -> None:
        self.acknowledged: Counter[int] = Counter()
        self.read = 0
        self.repeated = 0
        self.errors: list[str] = []
        self._exact = frozenset(exact)
        self._partitions: dict[Place, _Partition] = {}
        self._lock = threading.Lock()

    def tell(self, place: Place, offset: int, writer: int, count: int) -> None:
        """The writer's record was acknowledged at ``offset``."""
        packed = writer << _COUNT_BITS | count
        with self._lock:
            found = self._partitions.setdefault(place, _Partition())
            self.acknowledged[writer] += 1
            found.told.extend([_UNKNOWN] * (offset + 1 - len(found.told)))
            if found.told[offset] not in (_UNKNOWN, packed):
                self._fail(
                    f"{place} {offset}: acknowledged for {_named(found.told[offset])} "
                    f"and for {_named(packed)}"
                )
            found.told[offset] = packed
            if offset < len(found.seen) and found.seen[offset] != packed:
                self._fail(
                    f"{place} {offset}: holds {_named(found.seen[offset])}, "
                    f"acknowledged for {_named(packed)}"
                )

    def tell_somewhere(self, place: Place, writer: int, count: int) -> None:
        """The writer's record was acknowledged as a duplicate, without its offset."""
        with self._lock:
            found = self._partitions.setdefault(place, _Partition())
            self.acknowledged[writer] += 1
            self.repeated += 1
            found.somewhere[writer] = max(count, found.somewhere.get(writer, -1))

    def check_complete(self) -> None:
        """Everything was read: no acknowledged record may be missing at the end."""
        with self._lock:
            for place, found in self._partitions.items():
                if len(found.told) > len(found.seen):
                    self._fail(f"{place}: {len(found.told)} told, {len(found.seen)} seen")
                for writer, count in found.somewhere.items():
                    if found.last.get(writer, -1) < count:
                        self._fail(f"{place}: {count} of writer {writer} was told and never seen")

    def see(self, place: Place, offset: int, text: bytes) -> None:
        """A reader saw the record, in log order."""
        writer, count = parse(text)
        packed = writer << _COUNT_BITS | count
        with self._lock:
            found = self._partitions.setdefault(place, _Partition())
            self.read += 1
            if offset != len(found.seen):
                self._fail(f"{place}: offset {offset} follows {len(found.seen) - 1}")
                return
            found.seen.append(packed)
            self._judge(place, found, offset, writer, count)

    def _judge(self, place: Place, found: _Partition, offset: int, writer: int, count: int) -> None:
        last = found.last.get(writer, -1)
        found.last[writer] = count
        if count <= last or (writer in self._exact and count != last + 1):
            self._fail(f"{place} {offset}: count {count} of writer {writer} follows {last}")
        told = found.told[offset] if offset < len(found.told) else _UNKNOWN
        if told not in (_UNKNOWN, found.seen[offset]):
            self._fail(
                f"{place} {offset}: holds {_named(found.seen[offset])}, "
                f"acknowledged for {_named(told)}"
            )

    def ends(self) -> dict[Place, int]:
        """The offset after the last acknowledged or seen one, by partition."""
        with self._lock:
            return {
                place: max(len(found.told), len(found.seen))
                for place, found in self._partitions.items()
            }

    def seen_up_to(self, place: Place) -> int:
        """The offset after the last one that a reader saw."""
        with self._lock:
            found = self._partitions.get(place)
            return len(found.seen) if found is not None else 0

    def compare(self, place: Place, offset: int, text: bytes) -> None:
        """A record read again, or in another way, must be the one seen before."""
        writer, count = parse(text)
        packed = writer << _COUNT_BITS | count
        with self._lock:
            seen = self._partitions[place].seen
            if offset >= len(seen) or seen[offset] != packed:
                self._fail(f"{place} {offset}: now holds {_named(packed)}")

    def note(self, error: str) -> None:
        with self._lock:
            self._fail(error)

    def _fail(self, error: str) -> None:
        if len(self.errors) < 100:
            self.errors.append(error)


def _named(packed: int) -> str:
    if packed == _UNKNOWN:
        return "nobody"
    return f"{packed >> _COUNT_BITS}:{packed & (1 << _COUNT_BITS) - 1}"
