"""The transactional ids that this broker coordinates. Pure.

An id belongs to the partition of ``__transaction_state`` that its hash names. A partition is
*loading* from this broker's leadership until all ids of its log serve, then *owned* until the
leadership ends. The leadership's epoch is the coordinator epoch of markers.

**Memory.** An id counts with its name and with the partitions of its transaction. Requests that
would exceed the limit get COORDINATOR_NOT_AVAILABLE; what the log has is always accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import partition_for
from pyrklog.transactions.effects import Effects
from pyrklog.transactions.machine import TransactionMachine
from pyrklog.transactions.messages import (
    NO_PRODUCER_EPOCH,
    InitRequest,
    TopicPartition,
    TransactionDescription,
    TransactionOverview,
)
from pyrklog.transactions.metadata import TransactionMetadata
from pyrklog.transactions.persistence import by_topic, metadata_from
from pyrklog.transactions.states import STATES_BY_NAME, TransactionState

TRANSACTION_TOPIC = "__transaction_state"
ID_BYTES = 1024
"""An id without its name, in an empty transaction."""
PARTITION_BYTES = 160
"""A partition of a transaction: its place in two sets (before and after a change), and its name's
share."""


class OwnedPartition(NamedTuple):
    epoch: int
    is_loading: bool


class TransactionManager:
    def __init__(
        self,
        partition_count: int,
        memory_max_bytes: int,
        assigned: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """``assigned`` gives the partitions that this broker is to lead, opened or not."""
        self.partition_count = partition_count
        self.ids: dict[str, TransactionMachine] = {}
        self.used_bytes = 0
        self._max_bytes = memory_max_bytes
        self._bytes: dict[str, int] = {}
        self._assigned = assigned
        self._partitions: dict[int, OwnedPartition] = {}

    def partition_for(self, transactional_id: str) -> int:
        return partition_for(transactional_id, self.partition_count)

    def partitions(self) -> dict[int, OwnedPartition]:
        return dict(self._partitions)

    def epoch_of(self, partition: int) -> int | None:
        """The leader epoch in which this broker owns the partition, if it does."""
        owned = self._partitions.get(partition)
        return None if owned is None else owned.epoch

    @property
    def is_loading(self) -> bool:
        """Whether some partition is loading, or about to."""
        reading = any(partition.is_loading for partition in self._partitions.values())
        return reading or any(one not in self._partitions for one in self._assigned())

    # --- the life of a partition -----------------------------------------------------------------

    def begin_load(self, partition: int, epoch: int) -> bool:
        """False: the log need not be read again."""
        if partition in self._partitions:
            return False
        self._partitions[partition] = OwnedPartition(epoch, is_loading=True)
        return True

    def restore(self, partition: int, transactional_id: str, value: bytes) -> None:
        """Takes an id from the log. Raises ``DecodeError``. Skips ids of other partitions, from a
        time when the topic had fewer."""
        owned = self._partitions.get(partition)
        if owned is None or self.partition_for(transactional_id) != partition:
            return
        machine = TransactionMachine(transactional_id, metadata_from(value), owned.epoch)
        self.ids[transactional_id] = machine
        self.count(machine)

    def finish_load(self, partition: int, now_ms: int) -> list[tuple[TransactionMachine, Effects]]:
        """From now on the partition's ids serve. Returns what is to be carried out."""
        owned = self._partitions.get(partition)
        if owned is None:
            return []
        self._partitions[partition] = owned._replace(is_loading=False)
        return [(machine, machine.loaded(now_ms)) for machine in self._of(partition)]

    def _of(self, partition: int) -> list[TransactionMachine]:
        return [one for name, one in self.ids.items() if self.partition_for(name) == partition]

    def unload(self, partition: int) -> list[TransactionMachine]:
        """Returns the ids that were served; the caller runs their ``unload``."""
        if self._partitions.pop(partition, None) is None:
            return []
        moved = self._of(partition)
        for machine in moved:
            self.forget(machine)
        return moved

    # --- ids -------------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> TransactionMachine | ErrorCode:
        """The id; or why it is not served, INVALID_PRODUCER_ID_MAPPING where it is unknown."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        error = self._refusal(transactional_id)
        if error is not ErrorCode.NONE:
            return error
        return self.ids.get(transactional_id, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def _refusal(self, transactional_id: str) -> ErrorCode:
        number = self.partition_for(transactional_id)
        owned = self._partitions.get(number)
        if owned is None and number not in self._assigned():
            return ErrorCode.NOT_COORDINATOR
        if owned is None or owned.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def create(self, request: InitRequest, producer_id: int) -> TransactionMachine | ErrorCode:
        """A new id; the known one, where it has come to be meanwhile."""
        known = self.find(request.transactional_id)
        if known is not ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return known
        if not self._has_room(ID_BYTES + len(request.transactional_id)):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        metadata = TransactionMetadata(producer_id, NO_PRODUCER_EPOCH, request.timeout_ms)
        epoch = self._partitions[self.partition_for(request.transactional_id)].epoch
        machine = TransactionMachine(request.transactional_id, metadata, epoch)
        self.ids[request.transactional_id] = machine
        self.count(machine)
        return machine

    def has_room_for(
        self, machine: TransactionMachine, partitions: frozenset[TopicPartition]
    ) -> bool:
        """Whether the id's transaction may get these partitions."""
        return self._has_room(PARTITION_BYTES * len(partitions - machine.metadata.partitions))

    def _has_room(self, more_bytes: int) -> bool:
        return self.used_bytes + more_bytes <= self._max_bytes or not more_bytes

    def count(self, machine: TransactionMachine) -> None:
        """Counts the id's memory anew, after an event."""
        name = machine.transactional_id
        if self.ids.get(name) is not machine:
            return
        now = ID_BYTES + len(name) + PARTITION_BYTES * len(machine.metadata.partitions)
        self.used_bytes += now - self._bytes.get(name, 0)
        self._bytes[name] = now

    def forget(self, machine: TransactionMachine) -> None:
        name = machine.transactional_id
        if self.ids.get(name) is machine:
            del self.ids[name]
            self.used_bytes -= self._bytes.pop(name, 0)

    # --- questions -------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> TransactionDescription:
        """DescribeTransactions."""
        found = self.find(transactional_id)
        unknown = TransactionDescription(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
        if found is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return unknown
        if isinstance(found, ErrorCode):
            return TransactionDescription(found, transactional_id)
        if found.is_new:
            return unknown
        held = found.metadata
        return TransactionDescription(
            ErrorCode.NONE,
            transactional_id,
            held.state.protocol_name,
            held.timeout_ms,
            held.start_ms,
            held.producer_id,
            held.epoch,
            by_topic(held.partitions),
        )

    def list_ids(
        self,
        states: Iterable[str],
        producer_ids: Collection[int],
        duration_ms: int,
        now_ms: int,
    ) -> tuple[ErrorCode, Sequence[str], Sequence[TransactionOverview]]:
        """ListTransactions: error, unknown states, and the ids that match all filters; an empty
        filter and a negative duration match all."""
        if self.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], []
        named = list(states)
        unknown = [name for name in named if name not in STATES_BY_NAME]
        wanted = {STATES_BY_NAME[name] for name in named if name in STATES_BY_NAME}
        ids = frozenset(producer_ids)

        def matches(held: TransactionMetadata) -> bool:
            if named and held.state not in wanted:
                return False
            if ids and held.producer_id not in ids:
                return False
            if duration_ms < 0:
                return True
            is_open = held.state in _OPEN
            return is_open and now_ms - held.start_ms > duration_ms

        return (
            ErrorCode.NONE,
            unknown,
            [
                TransactionOverview(
                    name, one.metadata.producer_id, one.metadata.state.protocol_name
                )
                for name, one in self.ids.items()
                if not one.is_new and matches(one.metadata)
            ],
        )


_OPEN = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    }
)
