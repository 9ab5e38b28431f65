"""HTTP of a real broker, read by prometheus-client's parser: what clients did is counted."""

import http.client
import json
import socket
from collections import deque
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from pyrklog.observability.http_places import SERVED_MAX, WAITING_MAX
from pyrklog.observability.samples import SERIES_MAX
from pyrklog.testing import BrokerExited, TestBroker
from pyrklog.testing.broker import free_port
from tests.support.broker_http import ANY_PORT, Found, ask, http_port, scrape
from tests.support.waiting import wait_until

RECORDS = 100


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def produced(broker: TestBroker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"x" * 100, str(number).encode(), partition=0)
    assert producer.flush(60) == 0


def consumed(broker: TestBroker, topic: str, group: str) -> Consumer:
    """Has read and committed everything, and is still a member."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.subscribe([topic])
    found: list[Any] = []

    def has_all() -> bool:
        found.extend(consumer.consume(RECORDS, 1))
        return len(found) == RECORDS

    wait_until(has_all, lambda: f"{len(found)} of {RECORDS} records")
    consumer.commit(asynchronous=False)
    return consumer


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker(options=ANY_PORT) as started:
        yield started


def counted(broker: TestBroker) -> Found | None:
    """All metrics, once those of the clients' work are there: a client may have its answer before
    it is counted."""
    found = scrape(broker)
    requests = "kafka_network_requestmetrics_requests_total"
    paths = ("cached", "copy", "inline", "sendfile", "window")
    fetched = sum(found["pyrklog_fetched_bytes_total", path] for path in paths)
    are_there = (
        found["kafka_server_brokertopicmetrics_bytesin_total",] >= RECORDS * 100,
        found.get((requests, "Produce"), 0) >= 1,
        found.get((requests, "OffsetCommit"), 0) >= 1,
        fetched >= RECORDS * 100,
    )
    return found if all(are_there) else None


def test_what_clients_did_is_counted(broker: TestBroker) -> None:
    produced(broker, "orders")
    consumer = consumed(broker, "orders", "billing")
    found = wait_until(lambda: counted(broker), lambda: f"not counted: {scrape(broker)}")
    assert len(found) <= SERIES_MAX
    assert found["kafka_coordinator_group_groupmetadatamanager_numgroups",] == 1
    assert found["pyrklog_connections",] >= 2
    assert found["process_resident_memory_bytes",] > 2**20
    assert found["pyrklog_log_dir_read_only", str(broker.data / "logs")] == 0
    assert found["pyrklog_metrics_left_out_series",] == 0
    told = scrape(broker, "/metrics/detail?topic=orders&group=billing")
    assert told["pyrklog_partition_log_end_offset", "0", "orders"] == RECORDS
    assert told["kafka_consumergroup_current_offset", "billing", "0", "orders"] == RECORDS
    assert told["kafka_consumergroup_members", "billing"] == 1
    assert told["kafka_topic_partition_leader", "0", "orders"] >= 0
    consumer.close()


def test_counters_only_grow(broker: TestBroker) -> None:
    before = scrape(broker)
    produced(broker, "more")
    after = wait_until(
        lambda: (
            found
            if (found := scrape(broker))["kafka_server_brokertopicmetrics_bytesin_total",]
            > before["kafka_server_brokertopicmetrics_bytesin_total",]
            else None
        ),
        "the produced bytes are not counted",
    )
    shrunk = [key for key in before if key[0].endswith("_total") and after[key] < before[key]]
    assert shrunk == []


def test_health_of_a_broker_with_a_topic(broker: TestBroker) -> None:
    produced(broker, "healthy")
    assert ask(broker, "/health/ready")[0] == 200
    assert ask(broker, "/health/cluster")[0] == 200
    status, text = ask(broker, "/health/restart-safe")
    assert status == 503
    assert [one["kind"] for one in json.loads(text)["reasons"]] == ["alone"]


def test_slow_readers_and_half_requests_do_not_delay_the_end() -> None:
    with TestBroker(options=ANY_PORT) as broker:
        assert ask(broker, "/health/live")[0] == 200
        address = ("127.0.0.1", http_port(broker))
        held = []
        for sent in (b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 50):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(address)
            one.sendall(sent)
            held.append(one)
        assert ask(broker, "/metrics")[0] == 200
        assert broker.stop() == 0
        for one in held:
            one.close()


def test_a_flood_of_connections_keeps_kafka_and_the_next_scrape_served() -> None:
    with TestBroker(options=ANY_PORT) as broker:
        assert ask(broker, "/health/live")[0] == 200
        address = ("127.0.0.1", http_port(broker))
        held = [socket.create_connection(address) for _ in range(40)]
        produced(broker, "flooded")
        found = scrape(broker)
        assert found["pyrklog_http_connections",] <= SERVED_MAX
        for one in held:
            one.close()


class Flood:
    """Opens connections from one address, without a pause, until it is left. Each thread holds some
    and closes its oldest; every other one sends half a request, the rest ask for metrics."""

    THREADS = 4
    HELD = 100

    def __init__(self, address: tuple[str, int], source: str) -> None:
        self._address = address
        self._source = source
        self._is_over = Event()
        self._ended = [0] * self.THREADS
        """Connections that the server has ended, by thread."""
        self._threads = [Thread(target=self._run, args=[n]) for n in range(self.THREADS)]

    def fill(self) -> None:
        """Waits until it has had all places, and more."""
        enough = sum(self._ended) + 3 * (SERVED_MAX + WAITING_MAX)
        wait_until(lambda: sum(self._ended) > enough, "the server does not end connections")

    def __enter__(self) -> "Flood":
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for one in self._threads:
            one.join()

    def _run(self, thread: int) -> None:
        held: deque[socket.socket] = deque()
        while not self._is_over.is_set():
            try:
                one = socket.create_connection(self._address, 5, (self._source, 0))
            except OSError:
                continue  # the queue of the port is full
            held.append(one)
            whole = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
            self._send(one, whole if len(held) % 2 else whole[:9])
            if len(held) > self.HELD:
                oldest = held.popleft()
                self._ended[thread] += self._has_ended(oldest)
                oldest.close()
        for one in held:
            one.close()

    @staticmethod
    def _send(one: socket.socket, request: bytes) -> None:
        try:
            one.sendall(request)
        except OSError:
            return  # it was ended already, which is counted later

    @staticmethod
    def _has_ended(one: socket.socket) -> bool:
        one.setblocking(False)
        try:
            while piece := one.recv(1 << 16):
                assert piece
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


def status_of(kept: http.client.HTTPConnection, path: str) -> int:
    """Of a request on this connection, which is not opened again."""
    kept.request("GET", path)
    answer = kept.getresponse()
    answer.read()
    return answer.status


def test_probes_are_answered_while_another_address_floods() -> None:
    """A connection that is kept stays, and new ones are served."""
    with TestBroker(options=ANY_PORT) as broker:
        assert ask(broker, "/health/live")[0] == 200
        kept = http.client.HTTPConnection("127.0.0.1", http_port(broker), timeout=60)
        kept.connect()
        kept.auto_open = 0
        assert status_of(kept, "/health/live") == 200
        with Flood(("127.0.0.1", http_port(broker)), "127.0.0.2") as flood:
            for path in ("/health/live", "/health/ready", "/health/live", "/health/ready"):
                flood.fill()
                assert status_of(kept, path) == 200
                assert ask(broker, path)[0] == 200
            produced(broker, "flooded")
            assert scrape(broker)["pyrklog_http_connections",] <= SERVED_MAX
        kept.close()


def test_an_address_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = TestBroker(options={"pyrklog.http.listener": f"127.0.0.1:{port}"})
        with pytest.raises(BrokerExited, match=rf"exit code 75[\s\S]*127\.0\.0\.1:{port} is taken"):
            given.start()
        given.close()


def test_where_kafkas_port_is_taken_too_there_is_one_message() -> None:
    port = next(port for port in (free_port() for _ in range(100)) if is_free(port + 100))
    with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 100)):
        given = TestBroker(port=port, options={"pyrklog.http.listener": ""})
        with pytest.raises(BrokerExited, match=f"127.0.0.1:{port} is taken") as caught:
            given.start()
        assert "http_unavailable" not in str(caught.value)
        assert str(port + 100) not in str(caught.value)
        given.close()


def test_the_default_port_is_above_kafkas_and_may_be_taken() -> None:
    port = next(port for port in (free_port() for _ in range(100)) if is_free(port + 100))
    with TestBroker(port=port, options={"pyrklog.http.listener": ""}) as broker:
        assert http_port(broker) == broker.port + 100
        assert ask(broker, "/health/live")[0] == 200
        broker.stop()
        with socket.create_server(("127.0.0.1", broker.port + 100)):
            broker.start()
            assert any('"event": "http_unavailable"' in line for line in broker.log)
            produced(broker, "served")
