"""Client metrics (KIP-714): librdkafka asks, pushes, and is seen at /metrics/clients."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from pyrklog.protocol.telemetry import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from pyrklog.testing import TestBroker
from tests.support.broker_http import ANY_PORT, Found, scrape
from tests.support.commands import runner
from tests.support.waiting import wait_until
from tests.support.wire import Connection
from tests.unit.telemetry.pushed_metrics import COMPRESSED, gauge, message

THROTTLED, TOO_LARGE = 89, 118
CREATED = "org_apache_kafka_{}_connection_creation_total"


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker(options=ANY_PORT) as started:
        yield started


def subscribe(broker: TestBroker, name: str, *options: str) -> None:
    given = [word for one in options for word in ("--set", one)]
    runner(broker.bootstrap)("config", "alter", "client-metrics", name, *given)


def unsubscribe(broker: TestBroker, name: str) -> None:
    options = [word for one in ("metrics", "interval.ms", "match") for word in ("--unset", one)]
    runner(broker.bootstrap)("config", "alter", "client-metrics", name, *options)


def of_client(broker: TestBroker, client_id: str) -> Found:
    return {key: one for key, one in scrape(broker, "/metrics/clients").items() if client_id in key}


def wait_for_push(
    broker: TestBroker, client_id: str, metric: str, work: Callable[[], None]
) -> None:
    def is_there() -> bool:
        work()
        return any(key[0] == metric for key in of_client(broker, client_id))

    wait_until(is_there, lambda: f"no {metric} in {of_client(broker, client_id)}")


def test_clients_push_what_they_are_asked_for(broker: TestBroker) -> None:
    subscribe(broker, "all", "metrics=*", "interval.ms=500", "match=client_id=(shop|reader)")
    settings = {"bootstrap.servers": broker.bootstrap, "enable.metrics.push": True}
    producer = Producer({**settings, "client.id": "shop"})
    reading = {"client.id": "reader", "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **reading})
    consumer.subscribe(["sold"])

    def produce() -> None:
        producer.produce("sold", b"x")
        producer.poll(0.1)

    def consume() -> None:
        consumer.poll(0.1)

    wait_for_push(broker, "shop", CREATED.format("producer"), produce)
    wait_for_push(broker, "reader", CREATED.format("consumer"), consume)

    def has_group() -> bool:
        """A client that says nothing for a while is forgotten, and comes again."""
        consume()
        found = of_client(broker, "reader")
        return any(key[0] == "pyrklog_client_info" and "readers" in key for key in found)

    wait_until(has_group, lambda: f"no group in {of_client(broker, 'reader')}")
    consumer.close()
    assert producer.flush(60) == 0


def test_clients_without_a_subscription_push_nothing(broker: TestBroker) -> None:
    subscribe(broker, "others", "metrics=*", "interval.ms=500", "match=client_id=asked")
    settings = {"bootstrap.servers": broker.bootstrap, "enable.metrics.push": True}
    silent = Producer({**settings, "client.id": "silent"})
    asked = Producer({**settings, "client.id": "asked"})

    def produce() -> None:
        for one in (silent, asked):
            one.produce("sold", b"x")
            one.poll(0.1)

    wait_for_push(broker, "asked", CREATED.format("producer"), produce)
    assert of_client(broker, "silent") == {}
    assert (silent.flush(60), asked.flush(60)) == (0, 0)
    unsubscribe(broker, "others")
    listed = runner(broker.bootstrap)("config", "describe", "client-metrics")
    assert "client-metrics all" in listed
    assert "others" not in listed


def get(connection: Connection, instance_id: bytes) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(instance_id)
    body = GET_TELEMETRY_SUBSCRIPTIONS.encode_request(request, 0)
    reply = connection.request(71, 0, body, flexible=True)
    return GET_TELEMETRY_SUBSCRIPTIONS.decode_response(reply, 0)


def push(
    connection: Connection, told: GetTelemetrySubscriptionsResponse, codec: int, metrics: bytes
) -> int:
    """The error code."""
    subscription, compressed = told.subscription_id, COMPRESSED[codec](metrics)
    request = PushTelemetryRequest(told.client_instance_id, subscription, False, codec, compressed)
    body = PUSH_TELEMETRY.encode_request(request, 0)
    reply = connection.request(72, 0, body, flexible=True)
    return PUSH_TELEMETRY.decode_response(reply, 0).error_code


def unread(broker: TestBroker) -> float:
    """Pushes that could not be read."""
    name = "pyrklog_client_metrics_refused_total"
    return scrape(broker, "/metrics/clients").get((name, "TELEMETRY_TOO_LARGE"), 0)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_each_codec_is_expanded_within_its_bound(broker: TestBroker, codec: int) -> None:
    """A push that expands to too much is answered at the next one."""
    subscribe(broker, "fast", "metrics=of.", "interval.ms=100")
    small, large = gauge(f"of.{codec}", 1), gauge(f"of.{codec}", 1, x="y" * (2 * 1048576))
    with Connection(broker.bootstrap) as connection:
        told = get(connection, bytes([codec + 1]) + b"\1" * 15)
        assert push(connection, told, codec, message(small)) == 0
        wait_until(
            lambda: any(key[0] == f"of_{codec}" for key in scrape(broker, "/metrics/clients")),
            "what was pushed is not shown",
        )
        before, told = unread(broker), get(connection, bytes([codec + 1]) + b"\2" * 15)
        codes = [push(connection, told, codec, message(large))]
        if codec:
            wait_until(lambda: unread(broker) > before, "the large push was not read")

            def is_told() -> bool:
                codes.append(push(connection, told, codec, message(small)))
                return codes[-1] != THROTTLED

            wait_until(is_told, lambda: str(codes))
    unsubscribe(broker, "fast")
    assert [one for one in codes if one != THROTTLED] == ([0, TOO_LARGE] if codec else [TOO_LARGE])


def test_subscriptions_choose_by_software_and_port(broker: TestBroker) -> None:
    subscribe(broker, "python", "metrics=of.python.", "match=client_software_name=kafka-python.*")
    patterns = "client_software_name=confluent-kafka-python,client_source_port=[0-9]+"
    subscribe(broker, "confluent", "metrics=*", "interval.ms=500", f"match={patterns}")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "c", "enable.metrics.push": True}
    )

    def poll() -> None:
        producer.poll(0.1)

    wait_for_push(broker, "c", CREATED.format("producer"), poll)
    for name in ("python", "confluent"):
        unsubscribe(broker, name)


def test_subscriptions_outlive_a_restart(tmp_path: Path) -> None:
    with TestBroker(tmp_path) as first:
        subscribe(first, "kept", "metrics=a.", "interval.ms=700")
    with TestBroker(tmp_path) as second:
        told = runner(second.bootstrap)("config", "describe", "client-metrics", "kept")
    assert "700" in told
