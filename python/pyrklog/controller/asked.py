"""The controller as brokers ask it: the one implementation of ``ControllerService``."""

from __future__ import annotations

from pyrklog.controller.driver import ControllerDriver
from pyrklog.controller.effects import Steps
from pyrklog.controller.machine import Controller
from pyrklog.controller.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    ControllerService,
    IsrChangeResult,
    ProducerIdsResponse,
    TopicPartition,
)
from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import ProducerIdBlock


class AskedController:
    """Requests take their turn among the controller's events."""

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


def _is_the_service(asked: AskedController) -> ControllerService:
    return asked  # the type checker holds the class to the interface
