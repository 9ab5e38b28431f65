"""The controller's interface for brokers and administrators, in the same process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    Elected,
    ElectionKind,
    IsrChangeResult,
    ProducerIdsResponse,
    Refusal,
    TopicPartition,
)
from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.effects import Steps
from pyrklog.controller.machine import Controller
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import ProducerIdBlock


class ControllerApi:
    def __init__(self, driver: ControllerDriver) -> None:
        self._driver = driver

    async def _perform(
        self, broker: int, broker_epoch: int, procedure: Callable[[Controller], Steps]
    ) -> ErrorCode:
        """Runs a broker's procedure, unless the epoch is of an earlier life."""
        error = ErrorCode.NONE

        def fenced(controller: Controller) -> Steps:
            nonlocal error
            if controller.knows(broker, broker_epoch):
                yield from procedure(controller)
            else:
                error = ErrorCode.STALE_BROKER_EPOCH

        return error if await self._driver.perform(fenced) else ErrorCode.NOT_CONTROLLER

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        results: list[IsrChangeResult] = []
        error = await self._perform(
            request.broker,
            request.broker_epoch,
            lambda controller: controller.alter_partitions(request, results),
        )
        return AlterPartitionResponse(error, results if error is ErrorCode.NONE else [])

    async def shut_down(self, broker: int, broker_epoch: int) -> ControlledShutdownResponse:
        remaining: list[TopicPartition] = []
        error = await self._perform(
            broker,
            broker_epoch,
            lambda controller: controller.controlled_shutdown.shut_down(broker, remaining),
        )
        return ControlledShutdownResponse(error, remaining if error is ErrorCode.NONE else [])

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdsResponse:
        blocks: list[ProducerIdBlock] = []
        error = await self._perform(
            broker,
            broker_epoch,
            lambda controller: controller.allocate_producer_ids(broker, blocks),
        )
        if error is ErrorCode.NONE and not blocks:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
        return ProducerIdsResponse(error, blocks[0] if error is ErrorCode.NONE else None)

    async def alter_reassignments(
        self,
        wanted: Mapping[TopicPartition, Sequence[int] | None],
        at_end: Collection[TopicPartition] = (),
    ) -> Mapping[TopicPartition, Refusal] | None:
        results: dict[TopicPartition, Refusal] = {}
        is_done = await self._driver.perform(
            lambda controller: controller.reassignments.alter(wanted, results, at_end)
        )
        return results if is_done else None

    async def reassignments(
        self, keys: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, PartitionAssignment] | None:
        found: dict[TopicPartition, PartitionAssignment] = {}

        def procedure(controller: Controller) -> Steps:
            found.update(controller.reassignments.list(keys))
            yield from ()

        return found if await self._driver.perform(procedure) else None

    async def elect(
        self, kind: ElectionKind, keys: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, Elected] | None:
        results: dict[TopicPartition, Elected] = {}
        is_done = await self._driver.perform(
            lambda controller: controller.elections.elect(kind, keys, results)
        )
        return results if is_done else None
