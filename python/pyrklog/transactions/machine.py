"""One transactional id: its rules. Pure.

Each event returns its effects in order. A change becomes a record first (:class:`.effects.Append`)
and counts once that is replicated; until then the id is *changing*, and requests get
CONCURRENT_TRANSACTIONS, which clients retry. The tables of docs/understanding/transactions.md say
which request is allowed in which state.

``now_ms`` is the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from pyrklog.errors import ErrorCode
from pyrklog.transactions import metadata as steps
from pyrklog.transactions.effects import (
    Append,
    Effects,
    Notice,
    Reload,
    Reply,
    Retry,
    WriteMarkers,
)
from pyrklog.transactions.messages import (
    EPOCH_GIVEN_MAX,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    VERSION_2,
    AddRequest,
    EndRequest,
    InitRequest,
    ProducerEpoch,
    ProducerResult,
    Result,
    TopicPartition,
)
from pyrklog.transactions.metadata import TransactionMetadata, is_exhausted
from pyrklog.transactions.persistence import append_error, is_surely_not_appended
from pyrklog.transactions.states import AT_REST, PREPARING, TRANSITIONS, TransactionState

_State = TransactionState


class InvariantError(Exception):
    """A rule of the machine is broken: a bug."""


class _Change(NamedTuple):
    """A change whose record is being appended. ``after`` None: the tombstone."""

    after: TransactionMetadata | None
    token: int | None
    """The request that waits for it."""
    result: Callable[[ErrorCode], Result]
    """Its answer; the code is NONE, or why the append failed."""


class TransactionMachine:
    def __init__(
        self,
        transactional_id: str,
        metadata: TransactionMetadata,
        coordinator_epoch: int,
        partition: int = 0,
    ) -> None:
        """``partition`` of ``__transaction_state``, which this broker leads with the epoch."""
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.coordinator_epoch = coordinator_epoch
        self.partition = partition
        self._change: _Change | None = None
        self.is_new = metadata.epoch == NO_PRODUCER_EPOCH
        """Not in the log yet."""
        self.is_dead = False
        """Expired, or never written: to be forgotten."""
        self.unmarked: frozenset[TopicPartition] | None = None
        """What still lacks its marker, of a transaction that is being ended."""
        self._is_unsure = False
        """The last append's end is unknown: nothing is allowed until the next load."""

    @property
    def is_changing(self) -> bool:
        return self._change is not None or self.metadata.state in PREPARING

    def ending_ms(self, now_ms: int) -> int:
        """How long its transaction has been ended without all of its markers; else 0."""
        return now_ms - self.metadata.updated_ms if self.metadata.state in PREPARING else 0

    # --- requests --------------------------------------------------------------------------------

    def needs_producer_id(self, request: InitRequest | EndRequest) -> bool:
        """Whether the request's event needs a fresh producer id."""
        if self.is_changing:
            return False
        held = self.metadata
        if isinstance(request, InitRequest):
            epoch = None if request.known is None else request.known.epoch
            return held.is_exhausted and held.state in AT_REST and epoch in (None, held.epoch)
        return request.client_version >= VERSION_2 and held.is_exhausted

    def init_producer_id(
        self, request: InitRequest, token: int, now_ms: int, fresh_id: int | None = None
    ) -> Effects:
        """The reply is a ``ProducerResult``. An open transaction is aborted first: the client gets
        CONCURRENT_TRANSACTIONS and comes back."""
        held = self.metadata
        if self._is_unsure:
            return [Reply(token, ProducerResult(ErrorCode.NOT_COORDINATOR))]
        if self.is_changing:
            return [Reply(token, ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS))]
        if request.known is not None and not self._may_init(request.known):
            return [Reply(token, ProducerResult(ErrorCode.PRODUCER_FENCED))]
        if held.state is _State.ONGOING:
            return self._fence(now_ms, token, ErrorCode.CONCURRENT_TRANSACTIONS)
        after = self._next_epoch(request, now_ms, fresh_id)
        if isinstance(after, ErrorCode):
            return [Reply(token, ProducerResult(after))]
        if after is held:
            # A retry: the record is in the log.
            return [Reply(token, ProducerResult(ErrorCode.NONE, held.producer_id, held.epoch))]
        return self._append(after, token, _producer(after.producer_id, after.epoch))

    def _may_init(self, known: ProducerEpoch) -> bool:
        held = self.metadata
        if held.epoch == NO_PRODUCER_EPOCH:
            return True
        if known.id == held.producer_id:
            return held.state is not _State.ONGOING or known.epoch == held.epoch
        # A retry after the epochs of the former id were used up.
        return known.id == held.previous_producer_id and is_exhausted(known.epoch)

    def _next_epoch(
        self, request: InitRequest, now_ms: int, fresh_id: int | None
    ) -> TransactionMetadata | ErrorCode:
        held, known = self.metadata, request.known
        last_epoch = NO_PRODUCER_EPOCH if known is None else held.epoch
        if held.is_exhausted and (known is None or known.epoch == held.epoch):
            if fresh_id is None:
                return ErrorCode.CONCURRENT_TRANSACTIONS
            return steps.rotated(
                held,
                fresh_id,
                last_epoch=last_epoch,
                timeout_ms=request.timeout_ms,
                now_ms=now_ms,
            )
        is_first = held.epoch == NO_PRODUCER_EPOCH
        if known is None or is_first or known.epoch == held.epoch:
            return steps.initialized(
                held,
                epoch=held.epoch + 1,
                last_epoch=last_epoch,
                timeout_ms=request.timeout_ms,
                now_ms=now_ms,
            )
        if known.epoch == held.last_epoch != NO_PRODUCER_EPOCH:
            if request.timeout_ms == held.timeout_ms and held.state is _State.EMPTY:
                return held
            return steps.initialized(
                held,
                epoch=held.epoch,
                last_epoch=held.last_epoch,
                timeout_ms=request.timeout_ms,
                now_ms=now_ms,
            )
        return ErrorCode.PRODUCER_FENCED

    def add_partitions(self, request: AddRequest, token: int, now_ms: int) -> Effects:
        """AddPartitionsToTxn and AddOffsetsToTxn. The reply is a code."""
        held = self.metadata
        error = self._check_producer(request.producer)
        if error is not ErrorCode.NONE:
            return [Reply(token, error)]
        if held.state is _State.ONGOING and request.partitions <= held.partitions:
            return [Reply(token, ErrorCode.NONE)]
        after = steps.with_partitions(held, request.partitions, request.client_version, now_ms)
        return self._append(after, token, lambda error: error)

    def verify(
        self, producer: ProducerEpoch, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Whether the partitions were added (KIP-890 part 1). A question, no event."""
        error = self._check_producer(producer)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        held = self.metadata
        added = held.partitions if held.state is _State.ONGOING else frozenset()
        missing = ErrorCode.TRANSACTION_ABORTABLE
        return {one: ErrorCode.NONE if one in added else missing for one in partitions}

    def _check_producer(self, producer: ProducerEpoch) -> ErrorCode:
        if self._is_unsure:
            return ErrorCode.NOT_COORDINATOR
        if self.is_changing:
            # Before the id: the producer may have the one that the change brings.
            is_fenced = self._is_fenced_by_now(producer)
            return ErrorCode.PRODUCER_FENCED if is_fenced else ErrorCode.CONCURRENT_TRANSACTIONS
        return self._check_epoch(producer)

    def _is_fenced_by_now(self, producer: ProducerEpoch) -> bool:
        """Of an id that changes: whether no change can make the producer the current one. After an
        end of version 2 the producer has the epoch before."""
        held = self.metadata
        lowest = held.epoch - 1 if held.has_version_2 else held.epoch
        return producer.id == held.producer_id and producer.epoch < lowest

    def _check_epoch(self, producer: ProducerEpoch) -> ErrorCode:
        if producer.id != self.metadata.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        # No producer is ever given the highest epoch, with which the last one is fenced.
        if producer.epoch != self.metadata.epoch or producer.epoch > EPOCH_GIVEN_MAX:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def end(
        self, request: EndRequest, token: int, now_ms: int, fresh_id: int | None = None
    ) -> Effects:
        """EndTxn. The reply, a ``ProducerResult``, comes once the decision is replicated; its
        producer is that of the next transaction."""
        error = self._check_end(request)
        held = self.metadata
        if error is ErrorCode.NONE and self._is_retry(request):
            return [Reply(token, ProducerResult(error, held.producer_id, held.epoch))]
        if error is not ErrorCode.NONE:
            return [Reply(token, ProducerResult(error))]
        next_id = NO_PRODUCER_ID
        if request.client_version >= VERSION_2 and held.is_exhausted:
            if fresh_id is None:
                return [Reply(token, ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS))]
            next_id = fresh_id
        after = steps.prepared(
            held,
            is_commit=request.is_commit,
            client_version=request.client_version,
            now_ms=now_ms,
            next_producer_id=next_id,
        )
        return self._append(after, token, _producer(*after.after_end))

    def _check_end(self, request: EndRequest) -> ErrorCode:
        """NONE: the transaction may be ended, or has been by this request before."""
        held, producer = self.metadata, request.producer
        if self._is_unsure:
            return ErrorCode.NOT_COORDINATOR
        if self.is_changing:
            is_fenced = self._is_fenced_by_now(producer)
            return ErrorCode.PRODUCER_FENCED if is_fenced else ErrorCode.CONCURRENT_TRANSACTIONS
        if self._is_version_2_retry(request):
            return ErrorCode.NONE if self._has_ended_so(request) else ErrorCode.INVALID_TXN_STATE
        error = self._check_epoch(producer)
        if error is not ErrorCode.NONE:
            return error
        match held.state:
            case _State.ONGOING:
                return ErrorCode.NONE
            case _State.EMPTY:
                may_end = request.client_version >= VERSION_2 and not request.is_commit
            case _ if held.has_version_2:
                # Version 2 may abort a transaction that has nothing.
                may_end = request.client_version >= VERSION_2 and not request.is_commit
            case _:
                may_end = self._has_ended_so(request)
        return ErrorCode.NONE if may_end else ErrorCode.INVALID_TXN_STATE

    def _has_ended_so(self, request: EndRequest) -> bool:
        wanted = _State.COMPLETE_COMMIT if request.is_commit else _State.COMPLETE_ABORT
        return self.metadata.state is wanted

    def _is_retry(self, request: EndRequest) -> bool:
        """Of a request that may be answered: whether it was carried out before."""
        if self._is_version_2_retry(request):
            return True
        return not self.metadata.has_version_2 and self._has_ended_so(request)

    def _is_version_2_retry(self, request: EndRequest) -> bool:
        """The producer has the epoch before that of the end, which it has not been told."""
        held, producer = self.metadata, request.producer
        if not held.has_version_2 or held.state not in AT_REST or held.state is _State.EMPTY:
            return False
        if producer.id == held.producer_id:
            # The highest epoch only comes of a fence.
            return producer.epoch + 1 == held.epoch < EPOCH_MAX
        is_former = producer.id == held.previous_producer_id
        return is_former and is_exhausted(producer.epoch) and held.epoch == 0

    # --- time ------------------------------------------------------------------------------------

    def is_overdue(self, now_ms: int) -> bool:
        held = self.metadata
        is_open = held.state is _State.ONGOING and not self.is_changing
        return is_open and now_ms - held.start_ms > held.timeout_ms

    def time_out(self, now_ms: int) -> Effects:
        """Aborts a transaction that lasts too long, and fences its producer."""
        if not self.is_overdue(now_ms):
            return []
        held = self.metadata
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": held.producer_id,
            "epoch": held.epoch,
            "timeout_ms": held.timeout_ms,
        }
        return [Notice("transaction_timed_out", fields), *self._fence(now_ms, None)]

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        held = self.metadata
        is_idle = held.state in AT_REST and not self.is_changing
        return is_idle and now_ms - held.updated_ms >= expiration_ms

    def expire(self, now_ms: int, expiration_ms: int) -> Effects:
        """Removes an id that has had no transaction for long."""
        if not self.is_expired(now_ms, expiration_ms):
            return []
        return self._append(None, None, lambda error: error)

    def _fence(self, now_ms: int, token: int | None, answer: ErrorCode = ErrorCode.NONE) -> Effects:
        after = steps.fenced(self.metadata, now_ms)
        return self._append(after, token, lambda error: ProducerResult(error or answer))

    # --- the log ---------------------------------------------------------------------------------

    def _append(
        self,
        after: TransactionMetadata | None,
        token: int | None,
        result: Callable[[ErrorCode], Result],
    ) -> Effects:
        if self._change is not None:
            raise InvariantError(f"{self.transactional_id}: a second change begins")
        held = self.metadata.state
        if (_State.DEAD if after is None else after.state) not in TRANSITIONS[held]:
            raise InvariantError(f"{self.transactional_id}: {held} before {after}")
        self._change = _Change(after, token, result)
        return [Append(after)]

    def append_finished(self, error: ErrorCode, now_ms: int) -> Effects:
        """The pending record is replicated, or not appended."""
        if self._is_unsure:
            return []
        change, self._change = self._change, None
        if change is None:
            raise InvariantError(f"{self.transactional_id}: no append is pending")
        if error is not ErrorCode.NONE:
            return self._append_failed(change, error)
        replies: Effects = []
        if change.token is not None:
            replies.append(Reply(change.token, change.result(error)))
        if change.after is None:
            self.is_dead = True
            return replies
        self.metadata = change.after
        self.is_new = False
        self.unmarked = None
        return replies + self._go_on(now_ms)

    def _append_failed(self, change: _Change, error: ErrorCode) -> Effects:
        replies: Effects = []
        if change.token is not None:
            replies.append(Reply(change.token, change.result(append_error(error))))
        if not is_surely_not_appended(error):
            self._is_unsure = True
            return [*replies, Reload()]
        self.is_dead = self.is_new
        return [*replies, Retry()] if self.metadata.state in PREPARING else replies

    def _go_on(self, now_ms: int) -> Effects:
        """After a decision: the markers, or the end where none are needed."""
        held = self.metadata
        if held.state not in PREPARING or self._change is not None or self._is_unsure:
            return []
        if not held.partitions:
            return self._append(steps.completed(held, now_ms), None, lambda error: error)
        is_commit = held.state is _State.PREPARE_COMMIT
        return [
            WriteMarkers(
                held.producer_id, held.epoch, is_commit, held.client_version, held.partitions
            )
        ]

    def marks_left(self, partitions: Collection[TopicPartition]) -> None:
        """These still lack their marker."""
        self.unmarked = frozenset(partitions)

    def markers_written(self, now_ms: int) -> Effects:
        """All partitions have their marker."""
        held = self.metadata
        if held.state not in PREPARING or self._change is not None or self._is_unsure:
            return []
        return self._append(steps.completed(held, now_ms), None, lambda error: error)

    def retry(self, now_ms: int) -> Effects:
        """The last record of a transaction could not be appended. Its markers are written."""
        return self.markers_written(now_ms)

    def loaded(self, now_ms: int) -> Effects:
        """The id is served from now on: a decision in the log is carried out."""
        return self._go_on(now_ms)

    def unload(self) -> Effects:
        """Another broker coordinates the id, or the log is read again."""
        change, self._change = self._change, None
        self._is_unsure = True
        if change is None or change.token is None:
            return []
        return [Reply(change.token, change.result(ErrorCode.NOT_COORDINATOR))]


def _producer(producer_id: int, epoch: int) -> Callable[[ErrorCode], ProducerResult]:
    def result(error: ErrorCode) -> ProducerResult:
        if error is not ErrorCode.NONE:
            return ProducerResult(error)
        return ProducerResult(error, producer_id, epoch)

    return result
