"""Asks the coordinator about a transaction's first batches (KIP-890).

The coordinator is this broker, or another one, which gets AddPartitionsToTxn.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.base.pending import Pending, then
from pyrklog.coordinators.calls import BrokerCalls, PeerUnreachableError
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.protocol.transactions import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsTopic,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsTransaction,
)
from pyrklog.transactions.messages import VERSION_2, AddRequest, ProducerEpoch, TopicPartition
from pyrklog.transactions.persistence import by_topic
from pyrklog.transactions.requests import TransactionCoordinator

ABORTABLE_VERSION = 5
"""The version whose answers may have TRANSACTION_ABORTABLE; Kafka 3.9 has it."""


class TransactionVerifier:
    def __init__(
        self,
        node_id: int,
        coordinator: TransactionCoordinator,
        calls: BrokerCalls | None,
        listener: str,
    ) -> None:
        """``listener`` is the one between brokers; ``calls`` None: the broker is alone."""
        self._node_id = node_id
        self._coordinator = coordinator
        self._calls = calls
        self._listener = listener

    def verify_now(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        enrols: bool,
    ) -> list[ErrorCode] | Pending[list[ErrorCode]] | None:
        """The same without a task, where this broker is the coordinator; None: call
        :meth:`verify`."""
        endpoint = self._coordinator.coordinator_endpoint(transactional_id, self._listener)
        if endpoint is None or endpoint.node_id != self._node_id:
            return None
        held = self._coordinator.hold(transactional_id)
        if held is not None:
            return then(
                held, lambda _: self._ask_settled(transactional_id, producer, partitions, enrols)
            )
        return self._ask_settled(transactional_id, producer, partitions, enrols)

    def _ask_settled(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        enrols: bool,
    ) -> list[ErrorCode] | Pending[list[ErrorCode]]:
        if not enrols:
            found = self._coordinator.verify(transactional_id, producer, partitions)
            return [found[one] for one in partitions]
        request = AddRequest(transactional_id, producer, frozenset(partitions), VERSION_2)
        try:
            adding = self._coordinator.add_partitions(request)
        except ApiError as failure:
            return [failure.code] * len(partitions)
        return then(adding, lambda error: [error] * len(partitions))

    async def verify(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        enrols: bool,
    ) -> list[ErrorCode]:
        """A code for each partition. ``enrols``: adds them (transaction version 2); else NONE means
        that they were added."""
        endpoint = self._coordinator.coordinator_endpoint(transactional_id, self._listener)
        if endpoint is None:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(partitions)
        if endpoint.node_id == self._node_id:
            return await self._ask_here(transactional_id, producer, partitions, enrols)
        if self._calls is None:
            return [ErrorCode.NOT_COORDINATOR] * len(partitions)
        topics = [AddPartitionsTopic(name, some) for name, some in by_topic(partitions).items()]
        transaction = AddPartitionsTransaction(
            transactional_id, producer.id, producer.epoch, not enrols, topics
        )
        message = AddPartitionsToTxnRequest([transaction])
        try:
            answer: AddPartitionsToTxnResponse = await self._calls.call(
                endpoint.node_id, ADD_PARTITIONS_TO_TXN, ABORTABLE_VERSION, message
            )
        except PeerUnreachableError:
            return [ErrorCode.NETWORK_EXCEPTION] * len(partitions)
        return _codes(answer, partitions)

    async def _ask_here(
        self,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        enrols: bool,
    ) -> list[ErrorCode]:
        await self._coordinator.wait_until_settled(transactional_id)
        asked = self._ask_settled(transactional_id, producer, partitions, enrols)
        return await asked if isinstance(asked, Pending) else asked


def _codes(
    answer: AddPartitionsToTxnResponse, partitions: Sequence[TopicPartition]
) -> list[ErrorCode]:
    if answer.error_code:
        return [ErrorCode(answer.error_code)] * len(partitions)
    found = {
        (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for one in topic.results_by_partition
    }
    return [found.get(one, ErrorCode.NETWORK_EXCEPTION) for one in partitions]
