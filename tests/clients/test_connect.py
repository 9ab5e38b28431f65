"""Kafka Connect, unmodified: lines from a file to a topic to a file, while its worker is killed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.clients.test_streams import option
from tests.support.cluster_clients import end_offset
from tests.support.compacting import EAGER_BROKER, record_count
from tests.support.connect import Worker, working
from tests.support.faults.machine import wait_until_written
from tests.support.transactions import read
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(300)]

OPTIONS = {
    **EAGER_BROKER,
    "group.min.session.timeout.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
}
EACH = 300
"""Lines between two kills."""
CONNECTOR = "org.apache.kafka.connect.file.FileStream"


class Sink:
    """A file that a connector writes; a line may come again after a kill."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        """Those that came whole, in the order in which they came first."""
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_text().rpartition("\n")
        return list(dict.fromkeys(whole.splitlines()))

    def wait_for(self, count: int, worker: Worker) -> None:
        """Until so many lines have come."""

        def are_there() -> bool:
            worker.program.check()
            return len(self.lines()) >= count

        wait_until(are_there, lambda: f"{self.lines()[-3:]}: {worker.program.told()}")

    def wait_for_more(self, worker: Worker) -> None:
        self.wait_for(len(self.lines()) + EACH, worker)


def ends(bootstrap: str, topic: str) -> int:
    """The high watermark of its only partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    end = end_offset(consumer, TopicPartition(topic, 0))
    consumer.close()
    return end


def connect(worker: Worker, topic: str, source: Path, sink: Path) -> None:
    """Each line of the source exactly once, which the worker refuses if it cannot."""
    worker.configure(
        "source",
        {
            "connector.class": f"{CONNECTOR}SourceConnector",
            "file": str(source),
            "topic": topic,
            "exactly.once.support": "required",
        },
    )
    worker.configure(
        "sink",
        {"connector.class": f"{CONNECTOR}SinkConnector", "file": str(sink), "topics": topic},
    )


def test_lines_flow_through_a_worker_that_is_killed(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    """What it did and has to do comes from its three topics. One of them is compacted meanwhile."""
    broker = new_broker(options=OPTIONS).start()
    worker = Worker(broker.bootstrap, topic, tmp_path)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    sink = Sink(tmp_path / "out.txt")
    with working(worker, tmp_path / "in.txt") as source:
        connect(worker, topic, source.path, sink.path)
        sink.wait_for_more(worker)
        worker.kill()
        worker.start()
        sink.wait_for_more(worker)
        worker.pause("sink")
        worker.kill()
        broker.restart()
        read_before, sunk_before = ends(broker.bootstrap, topic), sink.lines()
        worker.start()
        wait_until(lambda: worker.connectors() == {"source", "sink"}, "it has lost connectors")
        wait_until(
            lambda: ends(broker.bootstrap, topic) > read_before, lambda: worker.program.told()
        )
        worker.wait_for_state("sink", "PAUSED")
        assert sink.lines() == sunk_before
        worker.resume("sink")
        sink.wait_for_more(worker)
        source.stop()
        sink.wait_for(len(source.lines), worker)
        size = source.path.stat().st_size
        wait_until(lambda: worker.position("source") == size, "an old offset")
    assert read(broker.bootstrap, topic) == [line.encode() for line in source.lines]
    assert sink.lines() == source.lines
    for made in (worker.configs, worker.offsets, worker.status):
        assert option(admin, made, "cleanup.policy") == "compact"
    offsets = broker.data / "logs" / f"{worker.offsets}-0"
    written = ends(broker.bootstrap, worker.offsets)
    wait_until_written(offsets, written)
    wait_until(lambda: record_count(offsets) < written / 2, lambda: f"all {written} stay")
