"""What transactional clients did, and what readers may therefore see.

A *processor* counts: its transaction number n writes records and commits offset n for its group. It
may try a number several times, and two of its lives may run at once. Each try is an *attempt*. So
of each number one attempt counts, with all its records, in order, up to the committed offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Violated = Callable[[str], None]


class Attempt:
    def __init__(self, name: str, number: int, serial: int) -> None:
        self.name = name
        self.number = number
        self.serial = serial
        self.records: list[tuple[int, int]] = []
        """Acknowledged ones: partition, and place in the attempt."""
        self.is_committing = False
        """The client has asked for the commit. Nothing may be seen before."""
        self.is_committed = False
        """It was told so."""

    def __str__(self) -> str:
        return f"{self.name} {self.number} (attempt {self.serial})"


class Record(NamedTuple):
    """A transactional record's value."""

    serial: int
    place: int


class Ledger:
    def __init__(self, violated: Violated, note: Callable[[str], None]) -> None:
        self.violated = violated
        self.committed = 0
        self._note = note
        self._attempts: list[Attempt] = []
        self._counting: dict[tuple[str, int], Attempt] = {}
        """By processor and number: the attempt that counts, once it is known."""

    def begin(self, name: str, number: int) -> Attempt:
        attempt = Attempt(name, number, len(self._attempts))
        self._attempts.append(attempt)
        self._note(f"{attempt} begins")
        return attempt

    def ended(self, attempt: Attempt, *, commit: bool) -> None:
        """The client was told that the transaction has ended so."""
        self._note(f"{attempt} is {'committed' if commit else 'aborted'}")
        if commit:
            self.committed += 1
            attempt.is_committed = True
            self._counts(attempt, "is committed")

    def _counts(self, attempt: Attempt, why: str) -> None:
        known = self._counting.setdefault((attempt.name, attempt.number), attempt)
        if known is not attempt:
            self.violated(f"{attempt} {why}, and {known} counts already")

    def read(self, record: Record) -> Attempt:
        """A reader of committed records has got it."""
        attempt = self._attempts[record.serial]
        if not attempt.is_committing:
            self.violated(f"a record of {attempt} is read, which nobody has committed")
        self._counts(attempt, "is read")
        return attempt

    def offset_seen(self, name: str, offset: int) -> None:
        """A group's committed offset, of some coordinator."""
        tries = [a for a in self._attempts if (a.name, a.number) == (name, offset)]
        if offset > 0 and not any(attempt.is_committing for attempt in tries):
            self.violated(f"{name} has offset {offset}, which nobody has committed")

    def conclude(self, offsets: Mapping[str, int], readings: Sequence[Reading]) -> None:
        """The cluster is still: groups' offsets, and whole partitions as read from their starts."""
        for attempt in self._attempts:
            is_in = attempt.number <= offsets.get(attempt.name, 0)
            if attempt.is_committed and not is_in:
                self.violated(f"{attempt} is committed, and the offset is {offsets[attempt.name]}")
        for (name, number), attempt in self._counting.items():
            if number > offsets.get(name, 0):
                self.violated(f"{attempt} is read, and the offset is {offsets.get(name, 0)}")
        for name, offset in offsets.items():
            for number in range(1, offset + 1):
                self._is_whole(name, number, readings)

    def _is_whole(self, name: str, number: int, readings: Sequence[Reading]) -> None:
        attempt = self._counting.get((name, number))
        if attempt is None:
            self.violated(f"{name} {number} is in the offset, and nothing of it is read")
            return
        for reading in readings:
            wanted = [place for index, place in attempt.records if index == reading.index]
            found = reading.found.get(attempt.serial, [])
            if found != wanted:
                self.violated(
                    f"{attempt} wrote {wanted} into t-{reading.index}, and {found} is read"
                )


class Reading:
    """What one reader of committed records has got of a partition."""

    def __init__(self, ledger: Ledger, name: str, index: int) -> None:
        self.index = index
        self.found: dict[int, list[int]] = {}
        """By attempt: places of its records."""
        self._ledger = ledger
        self._name = name
        self._last: dict[str, tuple[int, int, int]] = {}
        """By processor: number, place and attempt of its last record."""

    def take(self, record: Record) -> None:
        attempt = self._ledger.read(record)
        now = (attempt.number, record.place, record.serial)
        last = self._last.get(attempt.name, (0, -1, -1))
        if now[:2] <= last[:2]:
            self._ledger.violated(
                f"{self._name} reads record {record.place} of {attempt} after record {last[1]} of "
                f"number {last[0]}"
            )
        self._last[attempt.name] = now
        self.found.setdefault(record.serial, []).append(record.place)
