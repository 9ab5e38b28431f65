"""What brokers have of a partition, and what must not be lost of it.

A batch is known by its first offset and its leader epoch. What a client was told, or could have
read, is *promised*: from then on it is on every member of the in-sync replicas.
"""

from __future__ import annotations

from typing import NamedTuple

from pyrklog.metastore import znodes

Key = tuple[int, int]
"""First offset and leader epoch of a batch."""


class Batch(NamedTuple):
    """A batch of a log."""

    base: int
    last: int
    epoch: int
    crc: int

    @property
    def key(self) -> Key:
        """Its name."""
        return self.base, self.epoch


class Replica:
    """What a broker's disk has of a partition, as far as it is durable."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.keys: set[Key] = set()
        self.view: object = None
        self.extent: tuple[int, int] | None = None
        """Where it started and ended when it was last read."""
        self.is_known = True
        """False after a loss of power, until it is looked at again."""


class Promises:
    """What must not be lost of a partition."""

    def __init__(self, minimum: int) -> None:
        self.by_base: dict[int, Batch] = {}
        self.shown_end = 0
        self.leaders: dict[int, int] = {}
        """Leader epoch -> the broker that led in it."""
        self.marks: dict[tuple[str, int], int] = {}
        """(life, leader epoch) -> high watermark."""
        self.leadership: znodes.Leadership | None = None
        self.lacking: set[int] = set()
        """Brokers that have lost power, and have not come back into the ISR since."""
        self.taken_back: dict[int, frozenset[object]] = {}
        """Replicas that a cancellation took out of a small ISR, and what they had then."""
        self.is_cut = False
        """More machines have lost power than is borne, and nobody has led since."""
        self.cut_epoch = -1
        """The leader epoch of the last such cut."""
        self.unclean_epoch = -1
        """The leader epoch before the last unclean election: what it shows is not promised."""
        self.floor = minimum
        """On how many brokers each promise is (``Options.promised``)."""
