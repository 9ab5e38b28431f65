"""Bodies of UpdateMetadata: encoded once for all brokers, in turns."""

import itertools
from collections.abc import Generator

import pytest
import trio
from msgspec.structs import replace

from pyrklog.base.pieces import PARTITIONS_A_TURN
from pyrklog.cluster import wire
from pyrklog.cluster.requests import UpdateMetadataRequest
from pyrklog.peers.metadata_bodies import KEPT, MetadataBodies
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions
from pyrklog.protocol.primitives import EncodeError

OF_TOPIC = 100
IMAGES = [BrokerImage(1, "r", [("PLAINTEXT", "a", 9092)]), BrokerImage(2, None, [])]


def topics(partitions: int) -> list[TopicPartitions]:
    infos = [
        PartitionInfo(i, 3, 1, 5, (1, 2), 4, (1, 2), (), (), (2,), False, 0, (2,), ())
        for i in range(OF_TOPIC)
    ]
    count = partitions // OF_TOPIC
    return [TopicPartitions(f"t{n}", str(n).encode().ljust(16), infos) for n in range(count)]


def request(told: list[TopicPartitions], number: int = 1) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(1, 7, 100, told, IMAGES, number, True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []
    pieces = wire.metadata_pieces

    def counting(asked: UpdateMetadataRequest) -> Generator[None, None, bytes]:
        counted.append(1)
        steps = pieces(asked)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                body: bytes = end.value
                return body
            counted[-1] += 1
            yield

    monkeypatch.setattr(wire, "metadata_pieces", counting)
    return counted


@pytest.mark.parametrize("partitions", [0, 300, 20_000])
async def test_a_body_is_made_once_for_all_brokers(made: list[int], partitions: int) -> None:
    bodies = MetadataBodies()
    asked = request(topics(partitions))
    found: dict[int, bytes] = {}

    async def ask(epoch: int) -> None:
        found[epoch] = await bodies.body_of(asked._replace(broker_epoch=epoch))

    async with trio.open_nursery() as nursery:
        for epoch in (5, 2**40, -1):
            nursery.start_soon(ask, epoch)
    for epoch, body in found.items():
        assert body == wire.encode_request(asked._replace(broker_epoch=epoch), {}, "PLAINTEXT")
    assert made == [partitions // PARTITIONS_A_TURN + 1]


async def test_different_metadata_requests_have_different_bodies(made: list[int]) -> None:
    bodies = MetadataBodies()
    first = request(topics(100))
    others = [
        first._replace(number=2),
        first._replace(topics=topics(200)),
        first._replace(brokers=IMAGES[:1]),
        first._replace(is_full=False),
    ]
    for one in [first, *others]:
        assert await bodies.body_of(one) == wire.encode_request(one, {}, "PLAINTEXT")
    assert len(made) == 5 == KEPT + 1
    await bodies.body_of(others[0])
    assert len(made) == 5
    await bodies.body_of(first)
    assert len(made) == 6, "the oldest is forgotten"


async def test_unencodable_metadata_fails_each_time() -> None:
    bodies = MetadataBodies()
    bad = request([*topics(100), replace(topics(100)[0], topic="\ud800")])
    for _ in range(2):
        with pytest.raises(EncodeError):
            await bodies.body_of(bad)
    assert await bodies.body_of(request(topics(100)))


async def test_other_tasks_run_while_a_body_is_encoded() -> None:
    turns = itertools.count()
    is_made = False

    async def other() -> None:
        while not is_made:
            next(turns)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await MetadataBodies().body_of(request(topics(20_000)))
        is_made = True
    assert next(turns) >= 20_000 // PARTITIONS_A_TURN
