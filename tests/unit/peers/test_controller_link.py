from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownResponse,
    ProducerIdsResponse,
)
from pyrklog.config.load import load_config
from pyrklog.errors import ErrorCode
from pyrklog.metastore.embedded import open_store
from pyrklog.metastore.znodes import ProducerIdBlock
from pyrklog.peers.connection import Address, PeerError
from pyrklog.peers.controller_link import ControllerLink
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.to_controller import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
    AllocateProducerIdsResponse,
)
from pyrklog.protocol.to_controller import AlterPartitionResponse as AlterPartitionMessage
from pyrklog.protocol.to_controller import ControlledShutdownResponse as ControlledShutdownMessage
from pyrklog.testing.fake_plane import FakePlane
from tests.unit.peers.fake_peer import FakePeer

ME = 1
NOTHING = AlterPartitionRequest(ME, 5, [])


class Controller:
    def __init__(self, code: ErrorCode) -> None:
        self.code = code
        self.asked = 0

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.asked += 1
        return AlterPartitionResponse(self.code, [])

    async def shut_down(self, broker: int, broker_epoch: int) -> ControlledShutdownResponse:
        self.asked += 1
        return ControlledShutdownResponse(self.code, [("t", broker_epoch)])

    async def allocate_producer_ids(self, broker: int, broker_epoch: int) -> ProducerIdsResponse:
        self.asked += 1
        return ProducerIdsResponse(self.code, ProducerIdBlock(broker, 3000, 3999))

    async def answer(self, frame: bytes) -> bytes | None:
        self.asked += 1
        answers: dict[int, tuple[Any, int, Any]] = {
            56: (ALTER_PARTITION, 3, AlterPartitionMessage(error_code=self.code)),
            7: (CONTROLLED_SHUTDOWN, 3, ControlledShutdownMessage(error_code=self.code)),
            67: (ALLOCATE_PRODUCER_IDS, 0, self._allocated()),
        }
        api, version, message = answers[int.from_bytes(frame[:2], "big")]
        return frame[4:8] + b"\0" + bytes(api.encode_response(message, version))

    def _allocated(self) -> AllocateProducerIdsResponse:
        if self.code is not ErrorCode.NONE:
            return AllocateProducerIdsResponse(error_code=self.code)
        return AllocateProducerIdsResponse(producer_id_start=4000, producer_id_len=1000)


class Bench:
    def __init__(self, metadata: Metadata) -> None:
        self.controller_id = -1
        self.own = Controller(ErrorCode.NONE)
        self.metadata = metadata
        self.link = ControllerLink(metadata, lambda: self.controller_id, self.own, "PLAINTEXT")

    def know(self, *brokers: tuple[int, Address | None]) -> None:
        images = [
            BrokerImage(number, None, [("PLAINTEXT", *address)] if address else [])
            for number, address in brokers
        ]
        self.metadata.image.set_brokers(self.controller_id, images)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = await open_store(tmp_path / "meta")
    config = load_config(flags={"pyrklog.data.dir": str(tmp_path)})
    made = Bench(Metadata(ME, config, store.session(), FakePlane()))
    yield made
    await made.link.close()
    await store.close()


@asynccontextmanager
async def listening(code: ErrorCode) -> AsyncIterator[tuple[Controller, Address]]:
    controller = Controller(code)
    peer = FakePeer(controller.answer)
    async with peer.listening():
        assert peer.address is not None
        yield controller, peer.address


async def test_request_without_a_controller_is_not_sent(bench: Bench) -> None:
    with pytest.raises(PeerError, match="no controller is known"):
        await bench.link.alter_partitions(NOTHING)
    bench.controller_id = 7
    with pytest.raises(PeerError, match="address is not known"):
        await bench.link.shut_down(5)


async def test_own_controller_is_asked_without_a_connection(bench: Bench) -> None:
    bench.controller_id = ME
    assert (await bench.link.alter_partitions(NOTHING)).error is ErrorCode.NONE
    assert (await bench.link.shut_down(5)).remaining == [("t", 5)]
    assert bench.own.asked == 2


async def test_a_new_controller_is_asked_at_its_own_address(bench: Bench) -> None:
    with trio.fail_after(10):
        async with (
            listening(ErrorCode.NOT_CONTROLLER) as (second, second_address),
            listening(ErrorCode.STALE_BROKER_EPOCH) as (third, third_address),
        ):
            bench.know((ME, None), (2, second_address), (3, third_address))
            bench.controller_id = 2
            answer = await bench.link.alter_partitions(NOTHING)
            assert answer.error is ErrorCode.NOT_CONTROLLER
            bench.controller_id = 3
            answer = await bench.link.alter_partitions(NOTHING)
            assert answer.error is ErrorCode.STALE_BROKER_EPOCH
            assert (await bench.link.shut_down(5)).error is ErrorCode.STALE_BROKER_EPOCH
            assert (second.asked, third.asked, bench.own.asked) == (1, 2, 0)


async def test_producer_ids_come_locally_or_over_the_wire(bench: Bench) -> None:
    bench.controller_id = ME
    own = await bench.link.allocate_producer_ids(5)
    assert own.block == ProducerIdBlock(ME, 3000, 3999)
    with trio.fail_after(10):
        async with (
            listening(ErrorCode.NONE) as (_, address),
            listening(ErrorCode.STALE_BROKER_EPOCH) as (_, refusing),
        ):
            bench.know((ME, None), (2, address), (3, refusing))
            bench.controller_id = 2
            given = await bench.link.allocate_producer_ids(5)
            assert given == ProducerIdsResponse(ErrorCode.NONE, ProducerIdBlock(ME, 4000, 4999))
            bench.controller_id = 3
            refused = await bench.link.allocate_producer_ids(5)
            assert refused == ProducerIdsResponse(ErrorCode.STALE_BROKER_EPOCH, None)
