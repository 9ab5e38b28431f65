"""What BrokerHealth answers, and that it is bounded."""

from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog.base.client_places import NoPlaceError
from pyrklog.base.clock_reading import now_ms
from pyrklog.handlers.client_table import ClientTable
from pyrklog.observability.health_answer import TEXT_MAX, answer
from pyrklog.observability.health_rules import BrokerState, ClusterState, Reason
from pyrklog.observability.observer import Examined
from pyrklog.observability.restart_rules import Restart
from pyrklog.protocol.errors import ApiError, ErrorCode
from pyrklog.protocol.health import (
    BROKER_HEALTH,
    CLIENTS_MAX,
    PARTITIONS_MAX,
    REASONS_MAX,
    AwayBroker,
    BrokerHealthRequest,
    BrokerHealthResponse,
    HealthReason,
)

STATE = ClusterState("c", [BrokerState(1, "h", 1), BrokerState(2, "h", 2)], 2, [])
STUCK = Reason("reads_stuck", "degraded", "stuck", 1, fix="look")
MISSING = Reason("missing", "error", "missing", 3, ["t-0", "t-1"])


class FakeObserver:
    def __init__(self, own: list[Reason], cluster: list[Reason]) -> None:
        self._own, self._cluster = own, cluster
        self.asked: list[int | None] = []
        self.is_full = False
        self.away: dict[int, float] = {}

    def own(self) -> list[Reason]:
        return self._own

    def brokers_away(self) -> dict[int, float]:
        return self.away

    async def examined(self, restarted: int | None, address: str) -> Examined:
        if self.is_full:
            raise NoPlaceError
        assert address == "10.0.0.1"
        self.asked.append(restarted)
        restart = None if restarted is None else Restart(restarted, [], [MISSING])
        return Examined(self._cluster, restart, STATE)


async def ask(
    observer: Any,
    *,
    includes_cluster: bool = False,
    restarted: int = -1,
    clients: ClientTable | None = None,
) -> BrokerHealthResponse:
    image = SimpleNamespace(controller_id=2)
    sources: Any = SimpleNamespace(
        cluster_id="c",
        metadata=SimpleNamespace(node_id=1, image=image),
        stage=lambda: "serving",
        clients=clients,
    )
    request = BrokerHealthRequest(includes_cluster, restarted, clients is not None)
    return await answer(observer, sources, request, "10.0.0.1")


async def test_a_broker_tells_of_itself_without_looking_at_the_cluster() -> None:
    observer = FakeObserver([STUCK], [MISSING])
    before = now_ms()
    found = await ask(observer)
    assert before <= found.clock_ms <= now_ms()
    assert (found.broker, found.controller_id, found.stage) == (1, 2, "serving")
    assert found.reasons == [HealthReason("reads_stuck", "degraded", "stuck", 1, "look", 0, [])]
    assert (found.cluster_reasons, found.restart_reasons, found.left_out) == ([], [], 0)
    assert observer.asked == []


async def test_the_cluster_and_a_restart_are_told_where_asked_for() -> None:
    observer = FakeObserver([], [MISSING])
    found = await ask(observer, includes_cluster=True, restarted=2)
    assert observer.asked == [2]
    assert found.cluster_reasons == [
        HealthReason("missing", "error", "missing", 3, None, 2, ["t-0", "t-1"])
    ]
    assert (found.brokers, found.restart_level) == ([1, 2], "not_safe")
    assert [one.kind for one in found.restart_reasons] == ["missing"]


async def test_the_restart_of_a_broker_that_is_not_there() -> None:
    found = await ask(FakeObserver([], []), restarted=9)
    assert found.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert (found.error_message, found.restart_level) == ("no broker 9 is alive", "")


async def test_an_answer_is_bounded_whatever_there_is_to_tell() -> None:
    names = [f"{'t' * 249}-{number}" for number in range(50_000)]
    many = [Reason("missing", "error", "x" * 100_000, 3, names)] * 1000
    found = await ask(FakeObserver(many, many), includes_cluster=True, restarted=1)
    for reasons in (found.reasons, found.cluster_reasons):
        assert len(reasons) == REASONS_MAX
        assert len(reasons[0].what) == TEXT_MAX
        assert reasons[0].partitions == names[:PARTITIONS_MAX]
        assert reasons[1].partitions == []
        assert reasons[1].partition_count == 50_000
        assert reasons[0].partition_count == 50_000
    assert found.left_out == 2 * (1000 - REASONS_MAX)
    assert len(BROKER_HEALTH.encode_response(found, 0)) < 2**20


async def test_clients_are_told_where_asked_for_and_bounded() -> None:
    assert (await ask(FakeObserver([], []))).clients is None
    table = ClientTable(lambda: {key: "A" * 40 + str(key) for key in range(100)})
    assert (await ask(FakeObserver([], []), clients=table)).clients == []
    for number in range(1500):
        session: Any = SimpleNamespace(client_id=f"{number}-{'€' * 1000}", host="2001:db8::1")
        for key in range(8, 27):
            table.note_request(session, key, 1)
        fields = {"reason": f"API key {number} is unknown", "peer": "2001:db8::1"}
        table.note_notice("connection_refused", fields)
    found = await ask(FakeObserver([], []), clients=table)
    assert found.clients is not None
    assert len(found.clients) == CLIENTS_MAX
    assert found.clients_left_out == 1501 - CLIENTS_MAX
    assert {one.client_id.partition("-")[0] for one in found.clients[:2]} == {"", "1499"}
    encoded = BROKER_HEALTH.encode_response(found, 0)
    assert len(encoded) < 2**20
    assert BROKER_HEALTH.decode_response(encoded, 0) == found


async def test_too_many_requests_about_the_cluster_are_to_come_again() -> None:
    observer = FakeObserver([STUCK], [MISSING])
    observer.is_full = True
    for asked in ({"includes_cluster": True}, {"restarted": 2}):
        with pytest.raises(ApiError) as refused:
            await ask(observer, **asked)
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (await ask(observer)).reasons[0].kind == "reads_stuck"


async def test_it_is_told_how_long_brokers_have_been_away() -> None:
    observer = FakeObserver([], [])
    assert (await ask(observer)).away is None
    observer.away = {3: 61.5}
    assert (await ask(observer)).away == [AwayBroker(3, 61_500)]
