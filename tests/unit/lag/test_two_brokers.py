"""A coordinator and a leader that are two brokers, with clocks an hour apart."""

from typing import Any

import pytest

from pyrklog.coordinators.calls import PeerUnreachableError
from pyrklog.lag.service import LagService
from pyrklog.protocol.lag import GroupLag, GroupLagRequest
from tests.unit.lag.rig import Broker


class Wire:
    """Requests go to the other broker's service as bytes."""

    def __init__(self) -> None:
        self.service: LagService | None = None
        """None: it cannot be reached."""

    async def call(self, broker: int, api: Any, version: int, message: Any) -> Any:
        if self.service is None:
            raise PeerUnreachableError("refused")
        request = api.decode_request(api.encode_request(message, version), version)
        answer = await self.service.partition_offsets(request, "10.0.0.1")
        return api.decode_response(api.encode_response(answer, version), version)


def serving(broker: Broker, wire: Wire | None) -> LagService:
    one: Any = broker
    service = LagService(one.metadata, one.plane, one.manager, wire, folder=None, clock=one.clock)
    broker.sampler = service._sampler
    return service


async def lag_of(service: LagService, group: str) -> GroupLag:
    [found] = (await service.group_lag(GroupLagRequest([group]), "10.0.0.2")).groups
    return found


async def test_a_leader_elsewhere_tells_the_age() -> None:
    wire = Wire()
    coordinator, leader = Broker(1), Broker(2)
    leader.now_ms += 3_600_000
    service, wire.service = serving(coordinator, wire), serving(leader, None)
    leader.lead("t", {0: 0})
    coordinator.image.put("t", {0: 2})
    coordinator.lead("own", {0: 0})
    for _ in range(100):
        await leader.second(t=10)
        await coordinator.second(own=10)
    leader.plane.starts["t", 0] = 600
    coordinator.manager.put("g", {("own", 0): 900, ("t", 0): 500})
    told = await lag_of(service, "g")
    assert [(one.topic, one.lag, one.lost) for one in told.partitions] == [
        ("own", 100, 0),
        ("t", 500, 100),
    ]
    ages = [one.lag_ms / 1000 for one in told.partitions]
    assert ages == pytest.approx([10, 50], abs=1.3)
    assert (told.lag, told.lost) == (600, 100)
    assert told.lag_ms == told.partitions[1].lag_ms


async def test_a_leader_that_cannot_be_reached_leaves_its_part_unknown() -> None:
    coordinator = Broker(1)
    service = serving(coordinator, Wire())
    coordinator.image.put("t", {0: 2})
    coordinator.lead("own", {0: 7})
    await coordinator.second()
    coordinator.manager.put("g", {("own", 0): 7, ("t", 0): 500})
    coordinator.manager.put("h", {("t", 0): 500})
    told = await lag_of(service, "g")
    assert (told.lag, told.lag_ms) == (0, 0)
    assert [one.lag for one in told.partitions] == [0, -1]
    told = await lag_of(service, "h")
    assert (told.lag, told.lag_ms, told.lost) == (-1, -1, -1)
