"""What brokers have of a partition, and what must not be lost of it.

A batch is known by its first offset and leader epoch. What a client was told, or could have read,
is *promised*: from then on it is on every ISR member.
"""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.metastore import znodes

Key = tuple[int, int]
"""First offset and leader epoch of a batch."""


class Batch(NamedTuple):
    base: int
    last: int
    epoch: int
    crc: int

    @property
    def key(self) -> Key:
        return self.base, self.epoch


class Replica:
    """The durable part of a broker's replica."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.keys: set[Key] = set()
        self.view: object = None
        self.extent: tuple[int, int] | None = None
        """Its log start and end when it was last read."""
        self.is_known = True
        """False from a power loss to the next read."""


class Fetched(NamedTuple):
    """By the member of a group, and answered."""

    broker: int
    offset: int
    asked_us: int
    answered_us: int


class Promises:
    def __init__(self, minimum: int) -> None:
        self.by_base: dict[int, Batch] = {}
        self.shown_end = 0
        self.deleted_below = 0
        """Records below were to be deleted, so that nothing is promised of them."""
        self.committed = -1
        """By the group."""
        self.fetched: list[Fetched] = []
        self.leaders: dict[int, int] = {}
        """Leader epoch -> its leader."""
        self.marks: dict[tuple[str, int], int] = {}
        """(life, leader epoch) -> high watermark."""
        self.leadership: znodes.Leadership | None = None
        self.lacking: set[int] = set()
        """Brokers that lost power and are not back in the ISR."""
        self.taken_back: dict[int, frozenset[object]] = {}
        """Replicas that a cancellation took out of a small ISR, with their batches then."""
        self.is_cut = False
        """More machines lost power than is survivable, and nobody has led since."""
        self.cut_epoch = -1
        """The leader epoch of the last such cut."""
        self.unclean_epoch = -1
        """The leader epoch before the last unclean election: what it shows is not promised."""
        self.floor = minimum
        """On how many brokers each promise is (``Options.promised``)."""

    def delete_below(self, offset: int) -> None:
        self.deleted_below = max(self.deleted_below, offset)
        gone = [base for base, batch in self.by_base.items() if self.is_deleted(batch)]
        for base in gone:
            del self.by_base[base]

    def is_deleted(self, batch: Batch) -> bool:
        return batch.last < self.deleted_below
