"""Records of internal topics and transactions' markers, between coordinators and data plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pyrklog.errors import ErrorCode

NO_OFFSET = -1


class Producer(NamedTuple):
    id: int
    epoch: int


class AppendResult(NamedTuple):
    """``base_offset`` is the first record's; -1 with an error."""

    error: ErrorCode
    base_offset: int = NO_OFFSET


class NewRecord(NamedTuple):
    """``value`` is None for a tombstone; ``headers`` are (key, value)."""

    key: bytes
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes]] = ()


class InternalRecord(NamedTuple):
    """``value`` is None for a tombstone."""

    offset: int
    key: bytes | None
    value: bytes | None


class InternalBatch(NamedTuple):
    """A batch that was read. A control batch has one record, whose key tells commit from abort.

    ``damage`` says why a batch could not be read (checksum, records); it has no records then, and
    the next batch follows.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    is_transactional: bool
    is_control: bool
    records: Sequence[InternalRecord]
    damage: str | None = None


class InternalRead(NamedTuple):
    """Whole batches from the requested offset, or from a higher log start.

    The first batch may begin below. Continue at ``next_offset``, until it is ``end_offset``, the
    end of what was readable. With an error there are no batches, and both are -1.
    """

    error: ErrorCode
    batches: Sequence[InternalBatch]
    next_offset: int
    end_offset: int


class LiveRecords(Protocol):
    """What counts of a partition of an internal topic, from its log start to ``end_offset``.

    Of records with the same key the one with the highest offset counts, whatever order their
    transactions ended in; a tombstone leaves nothing. Records of aborted transactions do not count,
    and those of open ones are apart, without what a later tombstone has deleted. Taking records
    gives their memory back.
    """

    @property
    def end_offset(self) -> int:
        """Where the load ended. Markers at or beyond it are not in what it says."""

    @property
    def read(self) -> int:
        """Records that were read, without markers."""

    @property
    def damaged(self) -> Sequence[tuple[int, str]]:
        """The first twenty (base offset, what is wrong) of batches that could not be read, and
        records without a key."""

    @property
    def damaged_count(self) -> int: ...

    def __len__(self) -> int:
        """Live records that were not taken."""

    def take(self, max: int) -> Sequence[tuple[int, bytes, bytes]]:
        """Up to ``max`` (offset, key, value), ascending by offset; empty at the end."""

    def open_transactions(self) -> Sequence[tuple[int, int, int]]:
        """(producer id, epoch, records that were not taken)."""

    def take_open(self, producer_id: int, max: int) -> Sequence[tuple[int, bytes, bytes | None]]:
        """Up to ``max`` records of an open transaction in the order of the log, with tombstones."""


class InternalLoad(NamedTuple):
    """``records`` is None exactly with an error."""

    error: ErrorCode
    records: LiveRecords | None = None


class Marker(NamedTuple):
    """The end of a transaction in one partition (WriteTxnMarkers)."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int
    """From 2 on the epoch must be higher than that of the transaction's records (KIP-1228)."""


class MarkerResult(NamedTuple):
    """``offset`` is the marker's; -1 with an error."""

    error: ErrorCode
    offset: int = NO_OFFSET


class ActiveProducer(NamedTuple):
    """A producer with state in a partition (DescribeProducers)."""

    id: int
    epoch: int
    last_sequence: int
    """-1 where it has written markers only, or no sequences."""
    last_timestamp: int
    coordinator_epoch: int
    """Of its last marker, -1 without."""
    txn_start_offset: int
    """First offset of its open transaction, -1 without."""


class Verification(NamedTuple):
    """``guard`` is for ``append_internal``; 0: no coordinator needs to be asked."""

    error: ErrorCode
    guard: int = 0
