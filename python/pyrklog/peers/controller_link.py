"""A broker's requests to the current controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    ControllerService,
    ProducerIdsResponse,
)
from pyrklog.cluster.to_controller import (
    allocated_response,
    alter_partition_message,
    altered_response,
    left_response,
)
from pyrklog.peers.channels import find_address
from pyrklog.peers.connection import Address, PeerConnection, PeerError
from pyrklog.protocol import DecodeError
from pyrklog.protocol.api import Api
from pyrklog.protocol.to_controller import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
    AllocateProducerIdsRequest,
    ControlledShutdownRequest,
)

ANSWER_TIMEOUT_SECONDS = 30.0


class ControllerLink:
    """One request at a time. A controller in this process is called without a connection."""

    def __init__(
        self,
        metadata: Metadata,
        controller_id: Callable[[], int],
        own: ControllerService,
        listener: str,
    ) -> None:
        """``controller_id`` returns -1 while none is known."""
        self._metadata = metadata
        self._controller_id = controller_id
        self._own = own
        self._listener = listener
        self._turn = trio.Lock()
        self._connected_to = -1
        self._connection = PeerConnection(
            self._address,
            client_id=f"broker-{metadata.node_id}",
            timeout_seconds=ANSWER_TIMEOUT_SECONDS,
        )

    def _address(self) -> Address | None:
        return find_address(self._metadata.image.brokers, self._connected_to, self._listener)

    async def _ask(self, controller: int, api: Api[Any, Any], message: Any) -> Any:
        """Raises :class:`PeerError`."""
        async with self._turn:
            if controller != self._connected_to:
                await self._connection.close()
                self._connected_to = controller
            version = api.versions[1]
            body = api.encode_request(message, version)
            try:
                return api.decode_response(await self._connection.call(api, version, body), version)
            except DecodeError as error:
                raise PeerError(str(error)) from None

    def _controller(self) -> int:
        controller = self._controller_id()
        if controller < 0:
            raise PeerError("no controller is known")
        return controller

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Raises :class:`PeerError`: the change may have been written."""
        controller = self._controller()
        if controller == self._metadata.node_id:
            return await self._own.alter_partitions(request)
        message = alter_partition_message(request)
        return altered_response(await self._ask(controller, ALTER_PARTITION, message))

    async def shut_down(self, broker_epoch: int) -> ControlledShutdownResponse:
        """This broker is about to end. Raises :class:`PeerError`."""
        controller = self._controller()
        node_id = self._metadata.node_id
        if controller == node_id:
            return await self._own.shut_down(node_id, broker_epoch)
        message = ControlledShutdownRequest(node_id, broker_epoch)
        return left_response(await self._ask(controller, CONTROLLED_SHUTDOWN, message))

    async def allocate_producer_ids(self, broker_epoch: int) -> ProducerIdsResponse:
        """Raises :class:`PeerError`."""
        controller = self._controller()
        node_id = self._metadata.node_id
        if controller == node_id:
            return await self._own.allocate_producer_ids(node_id, broker_epoch)
        message = AllocateProducerIdsRequest(node_id, broker_epoch)
        answer = await self._ask(controller, ALLOCATE_PRODUCER_IDS, message)
        return allocated_response(answer, node_id)

    async def close(self) -> None:
        await self._connection.close()
