"""How long requests of a real broker took: each is counted once, and waiting is told from work."""

from collections.abc import Iterator

import pytest

from pyrklog.observability.latency_table import PHASES
from pyrklog.testing import TestBroker
from tests.support.broker_http import ANY_PORT, Found, scrape
from tests.support.waiting import wait_until
from tests.support.wire import (
    Connection,
    array,
    create_topic,
    fetch,
    header,
    produce,
    produce_body,
    record_batch,
    string,
)

PRODUCES, FETCHES, COMMITS = 20, 12, 5
WAIT_MS = 1500
FIND_COORDINATOR = 10
COUNT = "pyrklog_request_phase_seconds_count"
SUM = "pyrklog_request_phase_seconds_sum"
PATH = "/metrics/latencies"


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker(options=ANY_PORT) as started:
        yield started


def grown(broker: TestBroker, before: Found, group: str, more: int) -> Found:
    """Histograms once that many more requests are there: a client has its answer before they are
    counted."""

    def found() -> Found | None:
        now = scrape(broker, PATH)
        key = (COUNT, "total", group)
        return now if now[key] - before[key] >= more else None

    return wait_until(found, lambda: f"{group}: {scrape(broker, PATH)}")


def test_each_request_is_counted_once(broker: TestBroker) -> None:
    with Connection(broker.bootstrap) as connection:
        create_topic(connection, "t")
        before = scrape(broker, PATH)
        for number in range(PRODUCES):
            acks = -1 if number % 2 else 1
            assert produce(connection, "t", record_batch([b"x" * 100]), acks=acks).error == 0
        for offset in range(FETCHES):
            assert fetch(connection, "t", offset).error == 0
        for _ in range(COMMITS):
            connection.request(FIND_COORDINATOR, 0, string("g"))
        # In one piece, and one without an answer among them.
        body = produce_body("t", record_batch([b"y"]))
        silent = produce_body("t", record_batch([b"y"]), acks=0)
        frames = [header(0, 7, 900, client_id="p") + one for one in (body, silent, body)]
        connection.socket.sendall(b"".join(len(one).to_bytes(4) + one for one in frames))
        connection.read_frame()
        connection.read_frame()
        after = grown(broker, before, "Produce", PRODUCES + 3)

    def more(group: str, phase: str = "total") -> float:
        return after[COUNT, phase, group] - before[COUNT, phase, group]

    assert more("Produce") == more("Produce", "served") == PRODUCES + 3
    assert more("Produce", "queue") == more("Produce", "local") == PRODUCES + 3
    assert more("FetchConsumer") == FETCHES
    assert more("FetchFollower") == 0
    assert more("Control") == COMMITS
    shown = scrape(broker)
    requests = "kafka_network_requestmetrics_requests_total"
    for group, api in (("Produce", "Produce"), ("FetchConsumer", "Fetch")):
        assert shown["pyrklog_request_seconds_count", group] == shown[requests, api]
        assert shown["pyrklog_request_seconds_bucket", "+Inf", group] == shown[requests, api]
    assert shown["pyrklog_log_dir_writes_total", str(broker.data / "logs")] > 0


def test_waiting_for_records_is_no_work_of_the_broker(broker: TestBroker) -> None:
    with Connection(broker.bootstrap) as connection:
        create_topic(connection, "t")
        before = scrape(broker, PATH)
        assert fetch(connection, "t", 0, max_wait_ms=WAIT_MS).records == b""
        after = grown(broker, before, "FetchConsumer", 1)

    def spent(phase: str) -> float:
        key = (SUM, phase, "FetchConsumer")
        return after[key] - before[key]

    assert after[COUNT, "remote", "FetchConsumer"] - before[COUNT, "remote", "FetchConsumer"] == 1
    assert spent("remote") >= WAIT_MS / 1000
    assert spent("total") == pytest.approx(sum(map(spent, PHASES)), abs=1e-6)
    assert spent("served") == pytest.approx(spent("total") - spent("remote"), abs=1e-6)


def test_a_topic_in_detail_has_what_list_offsets_answers(broker: TestBroker) -> None:
    with Connection(broker.bootstrap) as connection:
        create_topic(connection, "t", 2)
        for _ in range(5):
            assert produce(connection, "t", record_batch([b"x" * 100] * 2)).error == 0
        delete = array([string("t") + array([(0).to_bytes(4) + (4).to_bytes(8)])])
        connection.request(21, 1, delete + (10_000).to_bytes(4))
        found = scrape(broker, "/metrics/detail?topic=t")
    assert found["kafka_topic_partition_current_offset", "0", "t"] == 10
    assert found["kafka_topic_partition_oldest_offset", "0", "t"] == 4
    assert found["kafka_topic_partition_current_offset", "1", "t"] == 0
    assert found["pyrklog_partition_bytes", "0", "t"] > 5 * 200
    assert found["pyrklog_partition_bytes", "1", "t"] == 0
