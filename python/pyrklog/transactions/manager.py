"""The transactional ids that this broker coordinates. Pure.

An id belongs to the partition of ``__transaction_state`` that its hash names. A partition is
*loading* from this broker's leadership until all ids of its log serve, then *owned* until the
leadership ends. The leadership's epoch is the coordinator epoch of markers.

**Memory.** An id counts with its name and with the partitions of its transaction, a few of which it
may have in any case. It counts for the host whose client initialized it last; a loaded id counts
for no host until then (:mod:`pyrklog.coordinators.memory_pool`). Requests beyond a host's share get
COORDINATOR_NOT_AVAILABLE; what the log has is always accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from pyrklog.coordinators.memory_pool import NO_HOST, MemoryPool, text_bytes
from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import partition_for
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
PARTITIONS_RESERVED = 8
"""So many partitions an id's transaction may have even if all memory is taken."""


class OwnedPartition(NamedTuple):
    epoch: int
    is_loading: bool


class _Charge(NamedTuple):
    host: str
    used_bytes: int


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
        self.open: dict[str, TransactionMachine] = {}
        """Those with a transaction that may time out."""
        self.memory_pool = MemoryPool(memory_max_bytes)
        self._charges: dict[str, _Charge] = {}
        self._of: dict[int, dict[str, TransactionMachine]] = {}
        """Ids by partition."""
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

    def restore(self, partition: int, transactional_id: str, value: bytes) -> bool:
        """Takes an id from the log. Raises ``DecodeError``. False for an id of another partition,
        from a time when the topic had fewer: it is left out."""
        if self.partition_for(transactional_id) != partition:
            return False
        owned = self._partitions.get(partition)
        if owned is not None:
            metadata = metadata_from(value)
            self._add(TransactionMachine(transactional_id, metadata, owned.epoch, partition))
        return True

    def of_partition(self, partition: int) -> list[TransactionMachine]:
        return list(self._of.get(partition, {}).values())

    def finish_load(self, partition: int) -> None:
        """From now on the partition's ids serve."""
        owned = self._partitions.get(partition)
        if owned is not None:
            self._partitions[partition] = owned._replace(is_loading=False)

    def is_served(self, machine: TransactionMachine) -> bool:
        """False: it was unloaded or forgotten, or its partition is loading."""
        owned = self._partitions.get(machine.partition)
        is_known = self.ids.get(machine.transactional_id) is machine
        return is_known and owned is not None and not owned.is_loading

    def unload(self, partition: int) -> list[TransactionMachine]:
        """Returns the ids that were served; the caller runs their ``unload``."""
        if self._partitions.pop(partition, None) is None:
            return []
        moved = self.of_partition(partition)
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
        if not self.memory_pool.has_room(request.host, _bytes(request.transactional_id, 0)):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        metadata = TransactionMetadata(producer_id, NO_PRODUCER_EPOCH, request.timeout_ms)
        partition = self.partition_for(request.transactional_id)
        epoch = self._partitions[partition].epoch
        machine = TransactionMachine(request.transactional_id, metadata, epoch, partition)
        self._add(machine, request.host)
        return machine

    def _add(self, machine: TransactionMachine, host: str = NO_HOST) -> None:
        name = machine.transactional_id
        self.ids[name] = machine
        self._of.setdefault(machine.partition, {})[name] = machine
        # A record that is read again replaces what was read before.
        known = self._charges.get(name)
        self._charge(name, host, 0 if known is None else known.used_bytes)
        self.count(machine)

    def has_room_for(
        self, machine: TransactionMachine, partitions: frozenset[TopicPartition]
    ) -> bool:
        """Whether the id's transaction may get these partitions."""
        name, held = machine.transactional_id, machine.metadata.partitions
        charge = self._charges.get(name, _Charge(NO_HOST, 0))
        more_bytes = _bytes(name, len(held | partitions)) - charge.used_bytes
        return self.memory_pool.has_room(charge.host, more_bytes)

    def pay(self, machine: TransactionMachine, host: str) -> None:
        """The id counts for this host from now on."""
        charge = self._charges.get(machine.transactional_id)
        if charge is not None and charge.host != host:
            self._charge(machine.transactional_id, host, charge.used_bytes)

    def _charge(self, name: str, host: str, used_bytes: int) -> None:
        before = self._charges.get(name)
        if before is not None:
            self.memory_pool.change(before.host, -before.used_bytes)
        self.memory_pool.change(host, used_bytes)
        self._charges[name] = _Charge(host, used_bytes)

    def count(self, machine: TransactionMachine) -> None:
        """Counts the id anew, after an event."""
        name, held = machine.transactional_id, machine.metadata
        if self.ids.get(name) is not machine:
            return
        charge = self._charges[name]
        used_bytes = _bytes(name, len(held.partitions))
        if used_bytes != charge.used_bytes:
            self._charge(name, charge.host, used_bytes)
        if held.state is TransactionState.ONGOING:
            self.open[name] = machine
        else:
            self.open.pop(name, None)

    def forget(self, machine: TransactionMachine) -> None:
        name = machine.transactional_id
        if self.ids.get(name) is not machine:
            return
        del self.ids[name]
        self.open.pop(name, None)
        ids = self._of[machine.partition]
        del ids[name]
        if not ids:
            del self._of[machine.partition]
        charge = self._charges.pop(name)
        self.memory_pool.change(charge.host, -charge.used_bytes)

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
            by_topic(held.partitions if found.unmarked is None else found.unmarked),
        )

    def list_ids(
        self, wanted: TransactionFilter, now_ms: int
    ) -> Iterator[TransactionOverview | None]:
        """ListTransactions: the ids that match, as they are when this comes to them. Yields None
        for others, so that the caller can let others run."""
        for name, machine in list(self.ids.items()):
            held = machine.metadata
            is_listed = not machine.is_new and wanted.matches(held, now_ms)
            state = held.state.protocol_name
            yield TransactionOverview(name, held.producer_id, state) if is_listed else None


class TransactionFilter(NamedTuple):
    """An empty filter and a negative duration match all."""

    states: frozenset[str]
    producer_ids: frozenset[int]
    duration_ms: int

    @property
    def unknown_states(self) -> list[str]:
        return sorted(self.states - STATES_BY_NAME.keys())

    def matches(self, held: TransactionMetadata, now_ms: int) -> bool:
        """Departure from Kafka: ids without an open transaction last no time."""
        if self.states and held.state.protocol_name not in self.states:
            return False
        if self.producer_ids and held.producer_id not in self.producer_ids:
            return False
        if self.duration_ms < 0:
            return True
        return held.state in _OPEN and now_ms - held.start_ms > self.duration_ms


def _bytes(name: str, partitions: int) -> int:
    return ID_BYTES + text_bytes(name) + PARTITION_BYTES * max(partitions, PARTITIONS_RESERVED)


_OPEN = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    }
)
