"""The controller's interface for brokers and administrators, in the same process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    ControllerAdmin,
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

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        results: list[IsrChangeResult] = []
        errors: list[ErrorCode] = []

        def procedure(controller: Controller) -> Steps:
            if not controller.knows(request.broker, request.broker_epoch):
                errors.append(ErrorCode.STALE_BROKER_EPOCH)
                return
            yield from controller.alter_partitions(request, results)

        if not await self._driver.perform(procedure):
            return AlterPartitionResponse(ErrorCode.NOT_CONTROLLER, [])
        return AlterPartitionResponse(errors[0] if errors else ErrorCode.NONE, results)

    async def shut_down(self, broker: int, broker_epoch: int) -> ControlledShutdownResponse:
        remaining: list[TopicPartition] = []
        errors: list[ErrorCode] = []

        def procedure(controller: Controller) -> Steps:
            if not controller.knows(broker, broker_epoch):
                errors.append(ErrorCode.STALE_BROKER_EPOCH)
                return
            yield from controller.shut_down(broker, remaining)

        if not await self._driver.perform(procedure):
            return ControlledShutdownResponse(ErrorCode.NOT_CONTROLLER, [])
        return ControlledShutdownResponse(errors[0] if errors else ErrorCode.NONE, remaining)

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdsResponse:
        blocks: list[ProducerIdBlock] = []
        errors: list[ErrorCode] = []

        def procedure(controller: Controller) -> Steps:
            if not controller.knows(broker, broker_epoch):
                errors.append(ErrorCode.STALE_BROKER_EPOCH)
                return
            yield from controller.allocate_producer_ids(broker, blocks)

        if not await self._driver.perform(procedure):
            return ProducerIdsResponse(ErrorCode.NOT_CONTROLLER, None)
        if blocks:
            return ProducerIdsResponse(ErrorCode.NONE, blocks[0])
        return ProducerIdsResponse(errors[0] if errors else ErrorCode.UNKNOWN_SERVER_ERROR, None)

    async def alter_reassignments(
        self, wanted: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Mapping[TopicPartition, Refusal] | None:
        results: dict[TopicPartition, Refusal] = {}
        is_done = await self._driver.perform(
            lambda controller: controller.reassignments.alter(wanted, results)
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


def _is_the_service(api: ControllerApi) -> ControllerAdmin:
    return api  # the type checker holds the class to the interface
