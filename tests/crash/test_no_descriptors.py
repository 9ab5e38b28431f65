"""A broker that gets no file descriptor any more: that is no fault of its disk. The log directory
stays online and takes records, none is lost, and what waited is written once there are descriptors.
"""

from __future__ import annotations

import http.client
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from pyrklog.testing import TestBroker
from tests.support.broker_http import ANY_PORT, http_port
from tests.support.waiting import wait_until
from tests.support.wire import (
    Connection,
    batch_headers,
    create_topic,
    fetch,
    produce,
    record_batch,
    wait_until_led,
)

Make = Callable[..., TestBroker]

REQUEST_TIMED_OUT = 7
SEGMENT_BYTES = 3_000
"""One record each: nearly every write needs new files."""
RECORD = bytes(2_000)
RECORDS = 5
OF_STANDARD_STREAMS = 3


@contextmanager
def without_descriptors(pid: int) -> Iterator[None]:
    """What is open stays so, and nothing more can be opened."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (OF_STANDARD_STREAMS, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def readable(connection: Connection, topic: str) -> int:
    """The number of readable records."""
    wait_until_led(connection, topic)
    count = 0
    while (answer := fetch(connection, topic, count)).high_watermark > count:
        assert answer.error == 0
        for header in batch_headers(answer.records):
            assert header.base_offset == count
            count += header.record_count
    return count


def told(broker: TestBroker, event: str) -> list[str]:
    return [line for line in list(broker.log) if f'"event": "{event}"' in line]


def read_only(web: http.client.HTTPConnection, log_dir: str) -> float:
    """By a connection that is there: a new one is not accepted."""
    web.request("GET", "/metrics")
    page = web.getresponse().read().decode()
    (line,) = [one for one in page.splitlines() if one.startswith("pyrklog_log_dir_read_only{")]
    assert log_dir in line
    return float(line.rpartition(" ")[2])


def test_a_broker_without_descriptors_takes_records_and_loses_none(
    new_broker: Make, topic: str
) -> None:
    broker = new_broker(options=ANY_PORT).start()
    log_dir = str(broker.data / "logs")
    record = record_batch([RECORD])
    with (
        Connection(broker.bootstrap) as connection,
        closing(http.client.HTTPConnection("127.0.0.1", http_port(broker), timeout=60)) as web,
    ):
        assert create_topic(connection, topic, options={"segment.bytes": str(SEGMENT_BYTES)}) == 0
        assert produce(connection, topic, record).error == 0
        assert read_only(web, log_dir) == 0
        acknowledged = 1
        with without_descriptors(broker.pid):
            for _ in range(RECORDS):
                error = produce(connection, topic, record).error
                # Without shared memory for a block cache records wait for the file.
                assert error in (0, REQUEST_TIMED_OUT)
                acknowledged += error == 0
            wait_until(lambda: told(broker, "log_dir_waits"), "no write failed")
            assert read_only(web, log_dir) == 0
            error = produce(connection, topic, record).error
            assert error in (0, REQUEST_TIMED_OUT)
            acknowledged += error == 0
        wait_until(lambda: told(broker, "log_dir_goes_on"), "it does not go on")
        assert produce(connection, topic, record).error == 0
        acknowledged += 1
        assert acknowledged <= readable(connection, topic) <= RECORDS + 3
    (line,) = told(broker, "log_dir_waits")
    assert '"level": "warning"' in line
    assert "open files" in line
    for event in ("log_dir_full", "log_dir_failed", "partition_offline"):
        assert not told(broker, event)
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        assert readable(connection, topic) >= acknowledged
