"""Transactions of a fake plane: guards, markers, and the live records of an internal topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.errors import ErrorCode
from pyrklog.plane.internal_log import (
    ActiveProducer,
    InternalBatch,
    Marker,
    MarkerResult,
    Producer,
    Verification,
)

COMMIT_KEY = bytes([0, 0, 0, 1])
ABORT_KEY = bytes(4)


class FakeVerifyTransaction(NamedTuple):
    """An event for ``FakePlane.verify_transaction``."""

    id: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[tuple[str, int]]
    enrols: bool = False


class FakeLiveRecords:
    """Implements ``LiveRecords`` for the batches of one partition."""

    def __init__(
        self, batches: Sequence[InternalBatch], epochs: dict[int, int], end_offset: int
    ) -> None:
        self.end_offset = end_offset
        self.read = 0
        self.damaged: list[tuple[int, str]] = []
        self._epochs = epochs
        self._latest: dict[bytes, tuple[int, bytes | None]] = {}
        self._open: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        for batch in batches:
            self._feed(batch)
        for producer_id, kept in self._open.items():
            self._open[producer_id] = [one for one in kept if not self._is_deleted(*one[:2])]
        found = [(at, key, value) for key, (at, value) in self._latest.items() if value is not None]
        self._live = sorted(found)

    @property
    def damaged_count(self) -> int:
        return len(self.damaged)

    def __len__(self) -> int:
        return len(self._live)

    def _feed(self, batch: InternalBatch) -> None:
        if batch.damage is not None:
            self.damaged.append((batch.base_offset, batch.damage))
        elif batch.is_control:
            ended = self._open.pop(batch.producer_id, [])
            if batch.records and batch.records[0].key == COMMIT_KEY:
                for record in ended:
                    self._keep(*record)
        else:
            for offset, key, value in batch.records:
                self.read += 1
                if key is None:
                    self.damaged.append((offset, "a record without a key"))
                elif batch.is_transactional:
                    opened = self._open.setdefault(batch.producer_id, [])
                    opened.append((offset, key, value))
                else:
                    self._keep(offset, key, value)

    def _keep(self, offset: int, key: bytes, value: bytes | None) -> None:
        if key not in self._latest or self._latest[key][0] < offset:
            self._latest[key] = (offset, value)

    def _is_deleted(self, offset: int, key: bytes) -> bool:
        latest_offset, value = self._latest.get(key, (-1, None))
        return value is None and latest_offset > offset

    def take(self, max: int) -> Sequence[tuple[int, bytes, bytes]]:
        taken, self._live = self._live[:max], self._live[max:]
        return taken

    def open_transactions(self) -> Sequence[tuple[int, int, int]]:
        return [(one, self._epochs.get(one, 0), len(kept)) for one, kept in self._open.items()]

    def take_open(self, producer_id: int, max: int) -> Sequence[tuple[int, bytes, bytes | None]]:
        kept = self._open[producer_id]
        taken, self._open[producer_id] = kept[:max], kept[max:]
        return taken


class FakeTransactions:
    """What the partitions of a fake plane know of transactions."""

    def __init__(self) -> None:
        self.markers: list[Marker] = []
        """All that were written, also those that failed."""
        self.failing: dict[tuple[str, int], ErrorCode] = {}
        """What markers for these partitions fail with."""
        self.verified: dict[int, Sequence[int]] = {}
        self.producers: dict[tuple[str, int], list[ActiveProducer]] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._guards: dict[tuple[str, int, int], tuple[int, int]] = {}
        """(topic, partition, producer id) -> (epoch, guard)."""
        self._open: dict[tuple[str, int, int], int] = {}
        """The same -> epoch."""
        self._next_guard = 1

    def begin_verification(self, topic: str, partition: int, producer: Producer) -> Verification:
        key = (topic, partition, producer.id)
        if self._open.get(key) == producer.epoch:
            return Verification(ErrorCode.NONE)
        known = self._guards.get(key)
        if known is not None and known[0] > producer.epoch:
            return Verification(ErrorCode.INVALID_PRODUCER_EPOCH)
        if known is None or known[0] < producer.epoch:
            known = self._guards[key] = (producer.epoch, self._next_guard)
            self._next_guard += 1
        return Verification(ErrorCode.NONE, known[1])

    def end_verification(self, topic: str, partition: int, producer: Producer, guard: int) -> None:
        key = (topic, partition, producer.id)
        if self._guards.get(key) == (producer.epoch, guard):
            del self._guards[key]

    def guard_count(self) -> int:
        """Guards that are open."""
        return len(self._guards)

    def admits(self, topic: str, partition: int, producer: Producer, guard: int | None) -> bool:
        """Whether a batch may enter; its transaction is open afterwards."""
        key = (topic, partition, producer.id)
        is_open = self._open.get(key) == producer.epoch
        if guard is not None and not is_open and self._guards.get(key) != (producer.epoch, guard):
            return False
        self._guards.pop(key, None)
        self._open[key] = producer.epoch
        return True

    def write(self, marker: Marker) -> MarkerResult:
        self.markers.append(marker)
        key = (marker.topic, marker.partition)
        if key in self.failing:
            return MarkerResult(self.failing[key])
        guarded, _ = self._guards.get((*key, marker.producer_id), (-1, 0))
        # With version 2 a marker has the epoch of the next transaction.
        if guarded < marker.producer_epoch + (marker.transaction_version < 2):
            self._guards.pop((*key, marker.producer_id), None)
        self._open.pop((*key, marker.producer_id), None)
        offset = self._ends.get(key, 0)
        self._ends[key] = offset + 1
        return MarkerResult(ErrorCode.NONE, offset)
