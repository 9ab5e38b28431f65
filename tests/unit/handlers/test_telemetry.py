"""GetTelemetrySubscriptions, PushTelemetry and ListClientMetricsResources (KIP-714)."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock as Clock

from pyrklog.base import logs
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.protocol.telemetry import (
    ClientMetricsResource,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    ListClientMetricsResourcesRequest,
    PushTelemetryRequest,
)
from pyrklog.telemetry import client_metrics, push_queue
from pyrklog.telemetry.client_metrics import EXPANSION_MAX, TELL_SECONDS, Client, Push
from pyrklog.telemetry.instances import INSTANCES_MAX, INSTANCES_OF_ADDRESS_MAX
from pyrklog.telemetry.otlp import Reading, read_metrics
from tests.unit.handlers.fake_service import TELEMETRY_MAX_BYTES, FakeService, FakeSession, ask
from tests.unit.telemetry.pushed_metrics import (
    COMPRESSED,
    DELTA,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    gauge,
    message,
    total,
)

GET, PUSH, LIST = 71, 72, 74
ID = bytes(range(1, 17))
INTERVAL_MS = 5_000
METRICS = message(gauge("a.b", 1.5), group_id="g")


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    """With a subscription to all metrics. What is pushed is read by :func:`push_and_read`."""
    monkeypatch.setattr(client_metrics, "REST", 0)
    fake = FakeService()
    fake.subscriptions.give("all", metrics="*", interval_ms=str(INTERVAL_MS))
    return fake


async def get(
    service: FakeService, instance_id: bytes = ID, session: FakeSession | None = None
) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(instance_id)
    found: GetTelemetrySubscriptionsResponse = await ask(service, GET, 0, request, session=session)
    return found


async def push(
    service: FakeService,
    subscription_id: int,
    metrics: bytes = METRICS,
    *,
    instance_id: bytes = ID,
    codec: int = 0,
    terminating: bool = False,
) -> ErrorCode:
    request = PushTelemetryRequest(instance_id, subscription_id, terminating, codec, metrics)
    return ErrorCode((await ask(service, PUSH, 0, request)).error_code)


async def push_and_read(
    service: FakeService, subscription_id: int, metrics: bytes = METRICS, **others: Any
) -> None:
    assert await push(service, subscription_id, metrics, **others) is ErrorCode.NONE
    await service.client_metrics.read_next()


def shown(service: FakeService) -> Mapping[str, float]:
    """Series of all clients, by name."""
    clients = service.client_metrics.exposed().clients
    return {key[0]: value.value for one in clients for key, value in one.series.items()}


async def test_a_client_is_told_what_to_push(service: FakeService) -> None:
    told = await get(service)
    assert told.error_code == 0
    assert told.client_instance_id == ID
    assert told.accepted_compression_types == [ZSTD, LZ4, GZIP, SNAPPY]
    assert told.push_interval_ms == INTERVAL_MS
    assert told.telemetry_max_bytes == TELEMETRY_MAX_BYTES
    assert not told.delta_temporality
    assert told.requested_metrics == ["*"]


async def test_without_a_subscription_nothing_is_asked_for(service: FakeService) -> None:
    service.subscriptions.give("all")
    told = await get(service)
    assert (told.requested_metrics, told.push_interval_ms) == ([], 300_000)


async def test_a_new_client_gets_an_id(service: FakeService) -> None:
    first, second = await get(service, bytes(16)), await get(service, bytes(16))
    ids = {first.client_instance_id, second.client_instance_id}
    assert len(ids) == 2
    assert bytes(16) not in ids
    assert first.subscription_id != second.subscription_id


async def test_a_subscription_is_chosen_by_what_is_known_of_the_client(
    service: FakeService,
) -> None:
    patterns = "client_id=c,client_software_name=s,client_software_version=1.2"
    places = "client_source_address=10.0.0.1,client_source_port=77"
    service.subscriptions.give("all", metrics="a.", match=f"{patterns},{places}")
    known = FakeSession(
        client_id="c", host="10.0.0.1", port=77, software_name="s", software_version="1.2"
    )
    assert (await get(service, bytes(16), known)).requested_metrics == ["a."]
    for other in ("client_id", "host", "software_name", "software_version"):
        changed = FakeSession(**{**vars(known), other: "10.0.0.9"})
        assert (await get(service, bytes(16), changed)).requested_metrics == [], other
    unknown = FakeSession(client_id="c", host="10.0.0.1", port=77)
    assert (await get(service, bytes(16), unknown)).requested_metrics == []


@pytest.mark.parametrize("codec", COMPRESSED)
async def test_pushed_metrics_are_exposed(service: FakeService, codec: int) -> None:
    told = await get(service)
    compressed = COMPRESSED[codec](METRICS)
    await push_and_read(service, told.subscription_id, compressed, codec=codec)
    exposed = service.client_metrics.exposed()
    (one,) = exposed.clients
    assert (one.instance_id, one.client_id) == ("AQIDBAUGBwgJCgsMDQ4PEA", "test")
    assert dict(one.info)["group_id"] == "g"
    assert shown(service) == {"a_b": 1.5}
    assert (exposed.instances, exposed.pushes, exposed.refused) == (1, 1, {})


async def test_an_address_has_the_form_that_kafka_matches(service: FakeService) -> None:
    """With all eight numbers of IPv6, without leading zeros."""
    pattern = "client_source_address=2001:db8:0:0:0:0:0:1"
    service.subscriptions.give("all", metrics="a.", match=pattern)
    same = FakeSession(host="2001:db8::1")
    assert (await get(service, bytes(16), same)).requested_metrics == ["a."]
    other = FakeSession(host="2001:db8::2")
    assert (await get(service, bytes(16), other)).requested_metrics == []


async def test_a_push_without_metrics_is_taken(service: FakeService) -> None:
    told = await get(service)
    assert await push(service, told.subscription_id, b"") is ErrorCode.NONE
    assert shown(service) == {}


async def test_a_client_cannot_say_that_it_is_another(service: FakeService) -> None:
    told = await get(service)
    claims = message(gauge("a", 1), client_id="x", client_instance_id="x", client_rack="r")
    await push_and_read(service, told.subscription_id, claims)
    ((_, client_id, info, _),) = service.client_metrics.exposed().clients
    assert client_id == "test"
    assert dict(info)["client_id"] == "test"
    assert dict(info)["client_rack"] == "r"
    assert "client_instance_id" not in dict(info)


async def test_differences_of_other_clients_are_summed_up(
    service: FakeService, mock_clock: Clock
) -> None:
    told = await get(service)
    for _ in range(3):
        await push_and_read(service, told.subscription_id, message(total("a", 2, DELTA)))
        mock_clock.jump(INTERVAL_MS / 1000)
    assert shown(service) == {"a": 6}


# --- when -----------------------------------------------------------------------------------------


async def test_a_client_asks_once_in_an_interval(service: FakeService, mock_clock: Clock) -> None:
    assert (await get(service)).error_code == 0
    mock_clock.jump(INTERVAL_MS / 1000 - 0.1)
    assert (await get(service)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    mock_clock.jump(0.1)
    assert (await get(service)).error_code == 0


async def test_a_client_pushes_once_in_an_interval(service: FakeService, mock_clock: Clock) -> None:
    told = await get(service)
    # Clients spread their first push over half to one and a half intervals.
    mock_clock.jump(INTERVAL_MS / 2000)
    assert await push(service, told.subscription_id) is ErrorCode.NONE
    mock_clock.jump(INTERVAL_MS / 1000 - 0.1)
    too_early = await push(service, told.subscription_id)
    assert too_early is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    mock_clock.jump(0.1)
    assert await push(service, told.subscription_id) is ErrorCode.NONE
    assert service.client_metrics.exposed().refused == {"THROTTLING_QUOTA_EXCEEDED": 1}


async def test_the_last_push_may_come_early_and_nothing_comes_after_it(
    service: FakeService,
) -> None:
    told = await get(service)
    await push_and_read(service, told.subscription_id)
    last = message(gauge("a.b", 9))
    await push_and_read(service, told.subscription_id, last, terminating=True)
    assert shown(service) == {"a_b": 9}
    again = await push(service, told.subscription_id, terminating=True)
    assert again is ErrorCode.INVALID_REQUEST


async def test_a_changed_subscription_counts_at_once(service: FakeService) -> None:
    old = await get(service)
    assert await push(service, old.subscription_id) is ErrorCode.NONE
    service.subscriptions.give("all", metrics="a.", interval_ms="1000")
    assert await push(service, old.subscription_id) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    new = await get(service)
    assert (new.error_code, new.requested_metrics, new.push_interval_ms) == (0, ["a."], 1000)
    assert await push(service, new.subscription_id) is ErrorCode.NONE


async def test_a_subscription_is_known_to_a_broker_that_granted_none(
    service: FakeService,
) -> None:
    """A client goes on pushing at another broker."""
    told = await get(service)
    other = FakeService()
    other.subscriptions.give("all", metrics="*", interval_ms=str(INTERVAL_MS))
    assert await push(other, told.subscription_id) is ErrorCode.NONE


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("reserved", [bytes(16), bytes(15) + b"\x01"])
async def test_a_push_needs_an_id(service: FakeService, reserved: bytes) -> None:
    assert await push(service, 0, instance_id=reserved) is ErrorCode.INVALID_REQUEST
    assert service.client_metrics.exposed().instances == 0


async def test_an_unknown_subscription_is_told_and_may_be_asked_for(service: FakeService) -> None:
    told = await get(service)
    wrong = await push(service, told.subscription_id ^ 1)
    assert wrong is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert (await get(service)).error_code == 0
    assert await push(service, told.subscription_id) is ErrorCode.NONE


@pytest.mark.parametrize("codec", [5, 127, -1])
async def test_an_unknown_codec_is_refused(service: FakeService, codec: int) -> None:
    told = await get(service)
    refused = await push(service, told.subscription_id, codec=codec)
    assert refused is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await get(service)).error_code == 0, "it may ask again at once"


async def test_a_push_has_a_bounded_size(service: FakeService, mock_clock: Clock) -> None:
    told = await get(service)
    most = bytes(TELEMETRY_MAX_BYTES)
    refused = await push(service, told.subscription_id, most + b"\0")
    assert refused is ErrorCode.TELEMETRY_TOO_LARGE
    mock_clock.jump(INTERVAL_MS / 1000)
    assert await push(service, told.subscription_id, most) is ErrorCode.NONE


async def push_unreadable(service: FakeService, metrics: bytes, codec: int) -> ErrorCode:
    """What the next push is answered with."""
    told = await get(service)
    await push_and_read(service, told.subscription_id, metrics, codec=codec)
    assert shown(service) == {}
    assert service.client_metrics.exposed().pushes == 0
    return await push(service, told.subscription_id, terminating=True)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
async def test_a_push_has_a_bounded_expansion(service: FakeService, codec: int) -> None:
    metrics = message(gauge("a", 1, b="x" * (EXPANSION_MAX * TELEMETRY_MAX_BYTES)))
    compressed = COMPRESSED[codec](metrics)
    assert len(compressed) < TELEMETRY_MAX_BYTES
    refused = await push_unreadable(service, compressed, codec)
    assert refused is ErrorCode.TELEMETRY_TOO_LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
async def test_what_cannot_be_read_is_refused(service: FakeService, codec: int) -> None:
    refused = await push_unreadable(service, b"\xff\xfe\xfd\xfc", codec)
    assert refused is ErrorCode.INVALID_RECORD
    assert service.client_metrics.exposed().refused == {"INVALID_RECORD": 2}


async def test_a_refusal_of_what_was_pushed_before_is_told_once(
    service: FakeService, mock_clock: Clock
) -> None:
    told = await get(service)
    await push_and_read(service, told.subscription_id, b"\xff")
    mock_clock.jump(INTERVAL_MS / 1000)
    assert await push(service, told.subscription_id) is ErrorCode.INVALID_RECORD
    mock_clock.jump(INTERVAL_MS / 1000)
    await push_and_read(service, told.subscription_id)
    assert shown(service) == {"a_b": 1.5}


async def test_another_subscription_forgets_what_could_not_be_read(service: FakeService) -> None:
    told = await get(service)
    await push_and_read(service, told.subscription_id, b"\xff")
    service.subscriptions.give("all", metrics="a.")
    await push_and_read(service, (await get(service)).subscription_id)
    assert shown(service) == {"a_b": 1.5}


# --- reading --------------------------------------------------------------------------------------


def push_now(service: FakeService, number: int, address: str, metrics: bytes = METRICS) -> None:
    """As a client of its own. Raises :class:`ApiError`."""
    client = Client("c", None, None, address, 1)
    granted = service.client_metrics.subscribe(bytes([number]) * 16, client)
    asked = Push(granted.instance_id, granted.subscription_id, False, 0, metrics)
    service.client_metrics.push(asked, client)


async def test_a_push_is_answered_before_it_is_read(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    is_read, may_end = threading.Event(), threading.Event()

    def read_later(data: bytes) -> Reading:
        is_read.set()
        may_end.wait(60)
        return read_metrics(data)

    monkeypatch.setattr(client_metrics, "read_metrics", read_later)
    nursery.start_soon(service.client_metrics.run)
    told = await get(service)
    assert await push(service, told.subscription_id) is ErrorCode.NONE
    await trio.to_thread.run_sync(is_read.wait, 60)
    assert await push(service, told.subscription_id, terminating=True) is ErrorCode.NONE
    assert shown(service) == {}
    # Neither the thread nor what waits holds up the end of the broker.
    nursery.cancel_scope.cancel()
    may_end.set()


async def test_a_full_queue_refuses_at_once(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One address, or network of IPv6, has a quarter of the places."""
    monkeypatch.setattr(push_queue, "PUSHES_MAX", 8)
    codes: list[ErrorCode] = []
    for number in range(1, 16):
        try:
            push_now(service, number, f"10.0.0.{number}" if number < 4 else f"2001:db8::{number}")
        except ApiError as error:
            codes.append(error.code)
    assert codes == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 10, "three have one, one has two"
    push_now(service, 16, "10.0.0.5")
    for _ in range(6):
        await service.client_metrics.read_next()
    assert service.client_metrics.exposed().pushes == 6
    push_now(service, 17, "2001:db8::1")


async def test_a_failure_ends_neither_the_broker_nor_the_reading(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    read_second = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def read(data: bytes) -> Reading:
        if data == b"1":
            raise RuntimeError("a bug")
        token.run_sync_soon(read_second.set)
        return read_metrics(data)

    monkeypatch.setattr(client_metrics, "read_metrics", read)
    push_now(service, 1, "10.0.0.1", b"1")
    push_now(service, 2, "10.0.0.1")
    nursery.start_soon(service.client_metrics.run)
    with trio.fail_after(60):
        await read_second.wait()
    assert service.client_metrics.exposed().refused == {"UNKNOWN_SERVER_ERROR": 1}
    nursery.cancel_scope.cancel()


async def test_the_log_names_a_reason_once_in_a_while(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, mock_clock: Clock
) -> None:
    lines: list[tuple[str, Any]] = []

    def keep(_logger: object, _level: str, event: str, fields: Mapping[str, Any]) -> None:
        lines.append((event, fields["error"]))

    monkeypatch.setattr(logs.Logger, "log", keep)
    for number in range(1, 4):
        push_now(service, number, "10.0.0.1", b"\xff")
        await service.client_metrics.read_next()
    assert lines == [("client_metrics_unread", "INVALID_RECORD")]
    mock_clock.jump(TELL_SECONDS)
    push_now(service, 4, "10.0.0.1", b"\xff")
    await service.client_metrics.read_next()
    assert len(lines) == 2


# --- bounds ---------------------------------------------------------------------------------------


async def test_a_silent_client_is_forgotten(service: FakeService, mock_clock: Clock) -> None:
    told = await get(service)
    await push_and_read(service, told.subscription_id)
    mock_clock.jump(59.9)
    assert shown(service) == {"a_b": 1.5}
    mock_clock.jump(0.1)
    exposed = service.client_metrics.exposed()
    assert (exposed.clients, exposed.instances) == ([], 0)
    assert service.client_metrics._table.total == 0


# --- what is not pushed any more ------------------------------------------------------------------


def make_other(service: FakeService) -> None:
    """A subscription that asks for nothing: with it the APIs stay advertised."""
    service.subscriptions.give("other", interval_ms=str(INTERVAL_MS))


@pytest.mark.parametrize(
    "options", [{}, {"metrics": "*", "match": "client_id=somebody-else"}], ids=["none", "no match"]
)
async def test_series_end_with_the_subscription(
    service: FakeService, options: dict[str, str]
) -> None:
    """The client goes on asking, so it is not forgotten itself."""
    make_other(service)
    told = await get(service)
    await push_and_read(service, told.subscription_id)
    service.subscriptions.give("all", **options)
    assert (await get(service)).requested_metrics == []
    exposed = service.client_metrics.exposed()
    assert (exposed.clients, exposed.instances) == ([], 1)
    assert service.client_metrics._table.total == 0


async def test_a_push_that_waits_ends_with_the_subscription(service: FakeService) -> None:
    make_other(service)
    told = await get(service)
    assert await push(service, told.subscription_id) is ErrorCode.NONE
    service.subscriptions.give("all")
    await service.client_metrics.read_next()
    assert shown(service) == {}


async def test_a_push_that_waits_is_read_when_others_subscriptions_change(
    service: FakeService,
) -> None:
    told = await get(service)
    assert await push(service, told.subscription_id) is ErrorCode.NONE
    service.subscriptions.give("x", metrics="*", match="client_id=somebody-else")
    await service.client_metrics.read_next()
    assert shown(service) == {"a_b": 1.5}


async def test_nothing_is_told_of_an_unreadable_push_of_other_terms(service: FakeService) -> None:
    told = await get(service)
    assert await push(service, told.subscription_id, b"\xff") is ErrorCode.NONE
    service.subscriptions.give("all", metrics="a.")
    new = await get(service)
    await service.client_metrics.read_next()
    await push_and_read(service, new.subscription_id)
    assert shown(service) == {"a_b": 1.5}


async def test_an_empty_push_clears(service: FakeService) -> None:
    told = await get(service)
    await push_and_read(service, told.subscription_id)
    assert await push(service, told.subscription_id, b"", terminating=True) is ErrorCode.NONE
    assert shown(service) == {}
    assert service.client_metrics._table.total == 0


async def test_an_empty_push_clears_what_waits(service: FakeService) -> None:
    told = await get(service)
    assert await push(service, told.subscription_id) is ErrorCode.NONE
    assert await push(service, told.subscription_id, b"", terminating=True) is ErrorCode.NONE
    await service.client_metrics.read_next()
    assert shown(service) == {}
    assert service.client_metrics.exposed().pushes == 2


async def test_series_of_a_client_that_only_asks_end(
    service: FakeService, mock_clock: Clock
) -> None:
    told = await get(service)
    await push_and_read(service, told.subscription_id)
    for _ in range(11):
        mock_clock.jump(INTERVAL_MS / 1000)
        assert (await get(service)).error_code == 0
    assert shown(service) == {"a_b": 1.5}
    for _ in range(2):
        mock_clock.jump(INTERVAL_MS / 1000)
        assert (await get(service)).error_code == 0
    # Their room is free for others, also when nobody scrapes.
    assert service.client_metrics._table.total == 0
    assert service.client_metrics.exposed().instances == 1
    await push_and_read(service, told.subscription_id)
    assert shown(service) == {"a_b": 1.5}


async def test_a_client_with_a_long_interval_is_remembered_for_three(
    service: FakeService, mock_clock: Clock
) -> None:
    service.subscriptions.give("all", metrics="*")
    await get(service)
    mock_clock.jump(899)
    assert service.client_metrics.exposed().instances == 1
    mock_clock.jump(1)
    assert service.client_metrics.exposed().instances == 0


async def test_a_hundred_thousand_instances_are_bounded(service: FakeService) -> None:
    """The client that was heard of last stays."""
    told = await get(service)
    await push_and_read(service, told.subscription_id)
    metrics = service.client_metrics
    clients = [Client("x", None, None, f"10.0.0.{n}", 1) for n in range(1, 4)]
    for number in range(100_000):
        if number == INSTANCES_MAX // 2:
            await push_and_read(service, told.subscription_id, terminating=True)
        if number == INSTANCES_MAX:
            assert metrics.exposed().instances == INSTANCES_MAX
            assert shown(service) == {"a_b": 1.5}
        metrics.subscribe((number + 2).to_bytes(16, "big"), clients[number % len(clients)])
    exposed = metrics.exposed()
    assert (exposed.instances, exposed.clients) == (INSTANCES_MAX, [])
    assert metrics._table.total == 0


async def test_one_address_cannot_make_the_broker_forget_others(service: FakeService) -> None:
    """Addresses of one network of IPv6 count as one."""
    told = await get(service)
    await push_and_read(service, told.subscription_id)
    metrics = service.client_metrics
    for number in range(INSTANCES_MAX):
        client = Client("x", None, None, f"2001:db8::{number % 100:x}", 1)
        metrics.subscribe((number + 2).to_bytes(16, "big"), client)
    assert metrics.exposed().instances == INSTANCES_OF_ADDRESS_MAX + 1
    assert shown(service) == {"a_b": 1.5}


async def test_subscriptions_are_listed(service: FakeService) -> None:
    service.subscriptions.give("a b", metrics="x")
    told = await ask(service, LIST, 0, ListClientMetricsResourcesRequest())
    assert told.error_code == 0
    names = [ClientMetricsResource("a b"), ClientMetricsResource("all")]
    assert told.client_metrics_resources == names


async def test_the_reading_thread_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "REST", 1e9)
    service = FakeService()
    told = await get(service)
    await push_and_read(service, told.subscription_id)
    assert await push(service, told.subscription_id, terminating=True) is ErrorCode.NONE
    with trio.move_on_after(0.05) as waiting:
        await service.client_metrics.read_next()
    assert waiting.cancelled_caught
    assert service.client_metrics.exposed().pushes == 1
