"""Producers with a transactional id: initialize, write, commit offset and end, again and again.

With version 1 offsets and ends that are late by a whole transaction count for the next one
(KIP-890), so a producer of version 1 that has lost their answer takes a new epoch before it goes
on.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.protocol.producer_ids import INIT_PRODUCER_ID, InitProducerIdRequest
from pyrklog.protocol.transaction_offsets import (
    TXN_OFFSET_COMMIT,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pyrklog.protocol.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    AddOffsetsToTxnRequest,
    AddPartitionsTopic,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from pyrklog.transactions.manager import TRANSACTION_TOPIC
from tests.sim.clients import EVERYWHERE, REQUEST_TIMEOUT_MS
from tests.sim.heap import Process
from tests.sim.life import WALL_MS
from tests.sim.settings import TOPIC
from tests.sim.transactions.client import Client
from tests.sim.transactions.ledger import Attempt, Ledger, Record
from tests.sim.transactions.messages import (
    FLEXIBLE_SINCE,
    batch_of,
    produce_body,
    produced,
)
from tests.sim.transactions.offsets import (
    COUNT_PARTITION,
    SENTINEL_PARTITION,
    fetch_offset,
    group_of,
)
from tests.sim.world import World
from tests.support import wire

INIT_VERSION = 4


class Versions(NamedTuple):
    """Of the requests that differ between the transaction versions."""

    produce: int
    commit_offset: int
    end: int


VERSIONS = {1: Versions(8, 3, 3), 2: Versions(12, 5, 5)}
ADD_VERSION = 3
TIMEOUTS_MS = (1_500, 5_000)
TRIES = 16
RETRY_US = (10_000, 250_000)
RETURN_US = ((1_000, 500_000), (2_000_000, 10_000_000))
"""By life: pauses before it initializes its producer, again."""
BETWEEN_US = (1_000, 40_000, 400_000)
"""Longest pauses between two transactions."""
WITHIN_US = (1_000, 400_000)
"""Longest pauses behind a record."""
LONG_SHARE, LONG_US = 0.03, (1_000_000, 7_000_000)
"""Of transactions that pause in between, perhaps for longer than their time-out."""
ABORT_SHARE = 0.1
HASTY_SHARE = 0.25
"""Of transactions that are aborted while a batch is on its way."""
HASTY_US = 4_000
DEAF_SHARE = 0.08
"""Of ends whose answer is not waited for."""
DIES_SHARE = 0.25
"""Of ends that did not succeed at once."""
RECORDS_MAX = 3


class LostError(Exception):
    """The transaction, or the producer, cannot go on."""


class Processor(Client):
    """One life of a processor; several of a name fence each other."""

    def __init__(
        self, world: World, ledger: Ledger, name: str, life: int, version: int, until_us: int
    ) -> None:
        super().__init__(world)
        self._ledger = ledger
        self._name = name
        self._life = life
        self._version = version
        self._versions = VERSIONS[version]
        self._until_us = until_us
        self._dice = world.heap.dice(f"processor {name}.{life}")
        self._hasty = Client(world)
        """A second connection."""
        self._producer = (-1, -1)
        self._sequences: dict[int, int] = {}
        self._has_stray = False
        """An answer was lost, so a request that does harm in a later transaction may still come."""
        process = Process(f"processor {name}.{life}")
        world.scheduler.run_in(process, self._run)

    @property
    def _goes_on(self) -> bool:
        return self.world.heap.now_us < self._until_us

    async def _run(self) -> None:
        while self._goes_on:
            await self.sleep(self._dice.randint(*RETURN_US[self._life]))
            try:
                await self._initialize()
                number = None
                while self._goes_on:
                    number = await self._transaction(number)
                    await self.sleep(self._dice.randint(100, self._dice.choice(BETWEEN_US)))
            except LostError as error:
                self.world.heap.note(f"{self._name} is lost: {error}")

    async def _until_done(self, ask: Callable[[], Awaitable[ErrorCode | None]]) -> None:
        """Repeats a request. Raises :class:`LostError`."""
        for _ in range(TRIES):
            code = await ask()
            if code is ErrorCode.NONE:
                return
            if code is not None and not code.retriable:
                raise LostError(code.name)
            await self.sleep(self._dice.randint(*RETRY_US))
        raise LostError("no success")

    def _coordinator(self, topic: str) -> int | None:
        """Where it is, if it takes connections."""
        found = self.leader(0, topic)
        if found is None or self.world.server_at(EVERYWHERE, found[0]) is None:
            return None
        return found[0]

    # --- the producer ----------------------------------------------------------------------------

    async def _initialize(self) -> None:
        known = self._producer if self._dice.random() < 0.5 else (-1, -1)
        self._producer = (-1, -1)
        timeout_ms = self._dice.choice(TIMEOUTS_MS)
        request = InitProducerIdRequest(self._name, timeout_ms, *known)
        await self._until_done(lambda: self._init(request))
        self._has_stray = False

    async def _init(self, request: InitProducerIdRequest) -> ErrorCode | None:
        broker = self._coordinator(TRANSACTION_TOPIC)
        if broker is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = await self.ask(broker, INIT_PRODUCER_ID, INIT_VERSION, request)
        if answer is None:
            return None
        if answer.error_code == ErrorCode.NONE:
            self._becomes(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    def _becomes(self, producer_id: int, epoch: int) -> None:
        self._producer = (producer_id, epoch)
        self._sequences.clear()
        self.world.heap.note(f"{self._name} is producer {producer_id} epoch {epoch}")

    # --- a transaction ---------------------------------------------------------------------------

    async def _transaction(self, before: int | None) -> int:
        """``before``: the number of the last committed one, None if it is to be asked for. Returns
        the number of the last one committed now."""
        if self._has_stray and self._version == 1:
            raise LostError("an answer was lost")
        if before is None:
            before = await self._where()
        attempt = self._ledger.begin(self._name, before + 1)
        partitions = list(self.world.settings.partitions)
        left = self._dice.choice(partitions)
        is_hasty = self._dice.random() < HASTY_SHARE
        if is_hasty:
            partitions.remove(left)
        indexes = [self._dice.choice(partitions) for _ in range(self._dice.randint(1, RECORDS_MAX))]
        for index in indexes:
            await self._write(attempt, index)
            await self.sleep(self._dice.randint(100, self._dice.choice(WITHIN_US)))
            if self._dice.random() < LONG_SHARE:
                await self.sleep(self._dice.randint(*LONG_US))
        if is_hasty:
            await self._abort_in_haste(attempt, left)
            return before
        if self._dice.random() < ABORT_SHARE:
            await self._finish(attempt, commit=False)
            return before
        await self._commit_offset(COUNT_PARTITION, attempt.number)
        attempt.is_committing = True
        await self._finish(attempt, commit=True)
        return attempt.number

    async def _where(self) -> int:
        """The number of the last committed transaction.

        A former coordinator of the group would tell an old one. But the one that takes an offset of
        this transaction has all that earlier producers committed, and later ones fence this one.
        """
        broker = await self._commit_offset(SENTINEL_PARTITION, 0)
        error, offset = await fetch_offset(self, broker, self._name, require_stable=True)
        if error is not ErrorCode.NONE:
            raise LostError(f"no offset: {error}")
        self._ledger.offset_seen(self._name, offset)
        return offset

    async def _write(self, attempt: Attempt, index: int) -> None:
        await self._add_partition(index)
        record, batch = self._batch(attempt, index)
        await self._until_done(lambda: self._produce(self, index, batch))
        self._sequences[index] = self._sequences.get(index, 0) + 1
        attempt.records.append((index, record.place))

    def _batch(self, attempt: Attempt, index: int) -> tuple[Record, bytes]:
        record = Record(attempt.serial, len(attempt.records))
        producer = (*self._producer, self._sequences.get(index, 0))
        return record, batch_of(record, producer, WALL_MS + self.world.heap.now_ms)

    async def _add_partition(self, index: int) -> None:
        """Version 2 needs no such request."""
        if self._version == 1:
            await self._until_done(lambda: self._add(index))

    async def _add(self, index: int) -> ErrorCode | None:
        broker = self._coordinator(TRANSACTION_TOPIC)
        if broker is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        producer_id, epoch = self._producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsTopic(TOPIC, [index])],
        )
        answer = await self.ask(broker, ADD_PARTITIONS_TO_TXN, ADD_VERSION, request)
        if answer is None:
            return None
        (found,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        return ErrorCode(found.partition_error_code)

    async def _produce(self, client: Client, index: int, batch: bytes) -> ErrorCode | None:
        found = self.leader(index)
        if found is None:
            return ErrorCode.LEADER_NOT_AVAILABLE
        version = self._versions.produce
        body = produce_body(version, self._name, index, batch, REQUEST_TIMEOUT_MS)
        flexible = version >= FLEXIBLE_SINCE
        answer = await client.exchange(found[0], wire.PRODUCE, version, body, flexible=flexible)
        if answer is None:
            return None
        code, base = produced(version, answer)
        if code == ErrorCode.NONE:
            (crc,) = struct.unpack_from(">I", batch, 17)
            self.world.checker.acked(index, base, crc)
        return ErrorCode(code)

    async def _commit_offset(self, partition: int, offset: int) -> int:
        """Returns the broker that has taken it."""
        taken: list[int] = []
        if self._version == 1:
            await self._until_done(self._add_group)
        await self._until_done(lambda: self._commit(partition, offset, taken))
        return taken[-1]

    async def _add_group(self) -> ErrorCode | None:
        broker = self._coordinator(TRANSACTION_TOPIC)
        if broker is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        request = AddOffsetsToTxnRequest(self._name, *self._producer, group_of(self._name))
        answer = await self.ask(broker, ADD_OFFSETS_TO_TXN, ADD_VERSION, request)
        return None if answer is None else ErrorCode(answer.error_code)

    async def _commit(self, partition: int, offset: int, taken: list[int]) -> ErrorCode | None:
        broker = self._coordinator(OFFSETS_TOPIC)
        if broker is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        one = TxnOffsetCommitRequestPartition(partition, offset)
        request = TxnOffsetCommitRequest(
            self._name,
            group_of(self._name),
            *self._producer,
            topics=[TxnOffsetCommitRequestTopic(TOPIC, [one])],
        )
        version = self._versions.commit_offset
        answer = await self.ask(broker, TXN_OFFSET_COMMIT, version, request)
        if answer is None:
            self._has_stray = True
            return None
        taken.append(broker)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    # --- its end ---------------------------------------------------------------------------------

    async def _abort_in_haste(self, attempt: Attempt, index: int) -> None:
        """The partition's first batch is on its way, and the abort overtakes it or not."""
        await self._add_partition(index)
        _, batch = self._batch(attempt, index)
        process = self.world.scheduler.process
        self.world.scheduler.run_in(process, self._produce, self._hasty, index, batch)
        await self.sleep(self._dice.randint(100, HASTY_US))
        self._has_stray = True
        await self._finish(attempt, commit=False)

    async def _finish(self, attempt: Attempt, *, commit: bool) -> None:
        if self._dice.random() < DEAF_SHARE:
            scheduler = self.world.scheduler
            ended = self._ask_end, self._hasty, self._producer, commit
            scheduler.run_in(scheduler.process, *ended)
            raise LostError("it does not wait for the end")
        await self._until_done(lambda: self._ask_end_or_die(commit))
        self._ledger.ended(attempt, commit=commit)

    async def _ask_end_or_die(self, commit: bool) -> ErrorCode | None:
        code = await self._ask_end(self, self._producer, commit)
        if code is not ErrorCode.NONE and self._dice.random() < DIES_SHARE:
            raise LostError("it dies before it knows the end")
        return code

    async def _ask_end(
        self, client: Client, producer: tuple[int, int], commit: bool
    ) -> ErrorCode | None:
        broker = self._coordinator(TRANSACTION_TOPIC)
        if broker is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        request = EndTxnRequest(self._name, *producer, commit)
        answer = await client.ask(broker, END_TXN, self._versions.end, request)
        if answer is None:
            self._has_stray = True
            return None
        if answer.error_code == ErrorCode.NONE and client is self and self._version == 2:
            self._becomes(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)
