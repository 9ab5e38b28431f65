"""Handlers' requests as events of transactional ids; questions go to
:attr:`.TransactionDriver.manager`.

A request with a ``Pending`` has been acted on when the call returns, in call order; only its answer
may wait for replication. The others wait first for an id that changes, as do the callers of those
with a ``Pending``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from pyrklog.base.pending import Pending, answered, then
from pyrklog.coordinators.interfaces import BrokerEndpoint, InternalTopic
from pyrklog.coordinators.topic_creation import CoordinatorFinder
from pyrklog.errors import ErrorCode
from pyrklog.plane.core_plane import Plane
from pyrklog.transactions.driver import TransactionDriver
from pyrklog.transactions.machine import TransactionMachine
from pyrklog.transactions.manager import TRANSACTION_TOPIC
from pyrklog.transactions.marking.sender import MarkerSender
from pyrklog.transactions.messages import (
    AddRequest,
    EndRequest,
    InitRequest,
    ProducerEpoch,
    ProducerResult,
    TopicPartition,
)
from pyrklog.transactions.options import TransactionOptions


class TransactionCoordinator(TransactionDriver):
    """Coordinates the transactional ids whose partitions this broker leads."""

    def __init__(
        self,
        options: TransactionOptions,
        internal_log: Plane,
        topic: InternalTopic,
        markers: MarkerSender,
        *,
        wall_ms: Callable[[], int],
        next_producer_id: Callable[[], Awaitable[int]],
    ) -> None:
        super().__init__(
            options,
            internal_log,
            topic,
            markers,
            wall_ms=wall_ms,
            next_producer_id=next_producer_id,
        )
        self._finder = CoordinatorFinder(topic, TRANSACTION_TOPIC)

    async def find(
        self, transactional_id: str, listener: str
    ) -> tuple[ErrorCode, BrokerEndpoint | None]:
        """An id's coordinator as advertised on a listener; creates a missing
        ``__transaction_state``."""

        def partition_of(count: int) -> int:
            if not self.manager.partitions():
                self.manager.partition_count = count
            return self.manager.partition_for(transactional_id)

        return await self._finder.find(partition_of, listener)

    def coordinator_endpoint(self, transactional_id: str, listener: str) -> BrokerEndpoint | None:
        """The same of a topic that exists."""
        count = self._topic.partition_count()
        if count is None:
            return None
        if not self.manager.partitions():
            self.manager.partition_count = count
        return self._topic.leader_endpoint(self.manager.partition_for(transactional_id), listener)

    async def init_producer_id(self, request: InitRequest) -> ProducerResult:
        """InitProducerId. Raises ``ApiError`` where no producer id is to be had."""
        if not 0 < request.timeout_ms <= self._options.timeout_max_ms:
            return ProducerResult(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        await self.wait_until_settled(request.transactional_id)
        found = self.manager.find(request.transactional_id)
        if found is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            found = self.manager.create(request, await self._next_producer_id())
        if isinstance(found, ErrorCode):
            return ProducerResult(found)
        fresh = await self._next_producer_id() if found.needs_producer_id(request) else None
        if not self._is_served(found):
            # It was unloaded while the controller was asked.
            return ProducerResult(ErrorCode.NOT_COORDINATOR)
        machine = found
        self.manager.pay(machine, request.host)
        pending: Pending[ProducerResult] = self._begin(
            machine,
            lambda token: machine.init_producer_id(request, token, self._wall_ms(), fresh),
        )
        return await pending.wait()

    def add_partitions(self, request: AddRequest) -> Pending[ErrorCode]:
        found = self.manager.find(request.transactional_id)
        if isinstance(found, ErrorCode):
            return answered(found)
        machine: TransactionMachine = found
        if not self.manager.has_room_for(machine, request.partitions):
            return answered(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.markers.note_added(request.partitions)
        return self._begin(
            machine, lambda token: machine.add_partitions(request, token, self._wall_ms())
        )

    def verify(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Collection[TopicPartition],
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Whether the transaction has these partitions."""
        found = self.manager.find(transactional_id)
        if isinstance(found, ErrorCode):
            return dict.fromkeys(partitions, found)
        return found.verify(producer, partitions)

    def end_now(self, request: EndRequest) -> Pending[ProducerResult] | None:
        """EndTxn. None where it needs a producer id: call :meth:`end`."""
        held = self.hold(request.transactional_id)
        if held is not None:
            return then(held, lambda _: self._end_held(request))
        return self._end(request)

    def _end_held(self, request: EndRequest) -> Pending[ProducerResult] | ProducerResult:
        ending = self._end(request)
        # Clients retry this, and the id is at rest by then.
        return ProducerResult(ErrorCode.CONCURRENT_TRANSACTIONS) if ending is None else ending

    def _end(self, request: EndRequest) -> Pending[ProducerResult] | None:
        found = self.manager.find(request.transactional_id)
        if isinstance(found, ErrorCode):
            return answered(ProducerResult(found))
        if found.needs_producer_id(request):
            return None
        machine = found
        return self._begin(machine, lambda token: machine.end(request, token, self._wall_ms()))

    async def end(self, request: EndRequest) -> ProducerResult:
        """EndTxn. Raises ``ApiError`` where no producer id is to be had."""
        await self.wait_until_settled(request.transactional_id)
        found = self.manager.find(request.transactional_id)
        if isinstance(found, ErrorCode):
            return ProducerResult(found)
        fresh = await self._next_producer_id() if found.needs_producer_id(request) else None
        if not self._is_served(found):
            return ProducerResult(ErrorCode.NOT_COORDINATOR)
        machine = found
        pending: Pending[ProducerResult] = self._begin(
            machine, lambda token: machine.end(request, token, self._wall_ms(), fresh)
        )
        return await pending.wait()

    def now_ms(self) -> int:
        """The wall clock of transactions."""
        return self._wall_ms()
