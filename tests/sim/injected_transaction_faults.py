"""Injected bugs of transactions' coordinators, which replace a function during a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyrklog.groups.messages import Offset, TopicPartition
from pyrklog.groups.offsets import GroupOffsets
from pyrklog.groups.transaction_offsets import CommittedOffset
from pyrklog.transactions import driver, metadata
from pyrklog.transactions.driver import TransactionDriver
from pyrklog.transactions.effects import Append, Effect, WriteMarkers
from pyrklog.transactions.machine import TransactionMachine
from pyrklog.transactions.marking.sender import CoordinatorFencedError, MarkerSender
from pyrklog.transactions.metadata import TransactionMetadata
from pyrklog.transactions.states import PREPARING, TransactionState


@contextmanager
def replaced(owner: Any, name: str, by: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, by)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _markers_of(held: TransactionMetadata) -> WriteMarkers:
    is_commit = held.state is TransactionState.PREPARE_COMMIT
    return WriteMarkers(
        held.producer_id, held.epoch, is_commit, held.client_version, held.partitions
    )


@contextmanager
def marker_before_decision() -> Iterator[None]:
    """Markers are written while the decision is not replicated."""
    do = TransactionDriver._do
    sent: dict[TransactionMachine, Any] = {}

    async def send(
        self: TransactionDriver, work: WriteMarkers, coordinator_epoch: int, done: Any
    ) -> None:
        try:
            await self.markers.send(work, coordinator_epoch)
        except CoordinatorFencedError:
            return
        done.set()

    async def finish(self: TransactionDriver, one: TransactionMachine, done: Any) -> None:
        await done.wait()
        self._tell(one, lambda: one.markers_written(self._wall_ms()))

    def early(self: TransactionDriver, one: TransactionMachine, effect: Effect) -> None:
        if isinstance(effect, WriteMarkers) and one in sent:
            self._nursery.start_soon(finish, self, one, sent.pop(one))
            return
        do(self, one, effect)
        held = effect.metadata if isinstance(effect, Append) else None
        if held is not None and held.state in PREPARING and held.partitions:
            done = sent[one] = vars(driver)["trio"].Event()
            work = _markers_of(held)
            self._nursery.start_soon(send, self, work, one.coordinator_epoch, done)

    with replaced(TransactionDriver, "_do", early):
        yield


@contextmanager
def end_without_a_marker() -> Iterator[None]:
    """A transaction counts as complete although a leader could not be told."""

    async def send(
        self: MarkerSender, work: WriteMarkers, coordinator_epoch: int, *_rest: Any
    ) -> None:
        by_leader = self._by_leader(work.partitions, {})
        rounds = await self._send_round(by_leader, work, coordinator_epoch)
        if any(one.is_fenced for one in rounds):
            raise CoordinatorFencedError

    with replaced(MarkerSender, "send", send):
        yield


@contextmanager
def offsets_before_the_marker() -> Iterator[None]:
    """A transaction's offsets count once they are written."""
    append = GroupOffsets.append_transaction

    def early(
        self: GroupOffsets,
        producer_id: int,
        ticket: int,
        offsets: Mapping[TopicPartition, Offset],
        first_record: int,
    ) -> None:
        append(self, producer_id, ticket, offsets, first_record)
        numbered = enumerate(offsets.items(), first_record)
        self._keep([(key, CommittedOffset(at, value)) for at, (key, value) in numbered])

    with replaced(GroupOffsets, "append_transaction", early):
        yield


@contextmanager
def time_out_without_a_fence() -> Iterator[None]:
    """A time-out aborts a transaction of version 1, and its producer goes on."""
    fenced = metadata.fenced
    time_out = TransactionMachine.time_out

    def unfenced(before: TransactionMetadata, now_ms: int) -> TransactionMetadata:
        after = fenced(before, now_ms)
        return after if before.has_version_2 else after._replace(epoch=before.epoch)

    def lenient(self: TransactionMachine, now_ms: int) -> Any:
        with replaced(metadata, "fenced", unfenced):
            return time_out(self, now_ms)

    with replaced(TransactionMachine, "time_out", lenient):
        yield
