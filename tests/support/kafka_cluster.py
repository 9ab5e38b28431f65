"""Three Apache Kafka 3.9 nodes of one cluster, each a broker and a controller."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from pyrklog.testing.broker import free_port
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import PATIENCE_S, wait_until

NODES = (1, 2, 3)
_SESSION_MS = 6000
"""After so long a node that was killed leads no partition any more. A node on a busy machine is not
to lose its own."""


class KafkaCluster:
    """Nodes by number; each can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        controllers = {number: free_port() for number in NODES}
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in controllers.items())
        self.brokers: dict[int, KafkaBroker] = {}
        for number, controller in controllers.items():
            port = free_port()
            options = {
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
                "broker.session.timeout.ms": str(_SESSION_MS),
                "broker.heartbeat.interval.ms": "500",
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "offsets.topic.replication.factor": "3",
                "offsets.topic.num.partitions": "5",
                "transaction.state.log.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
            }
            self.brokers[number] = KafkaBroker(folder / f"node{number}", options=options, port=port)

    @property
    def bootstrap(self) -> str:
        return ",".join(one.bootstrap for one in self.brokers.values())

    def start(self, number: int) -> None:
        """Returns when all nodes are known."""
        self.brokers[number].start()
        self._wait_for_all()

    def kill(self, number: int) -> None:
        self.brokers[number].kill()

    def _wait_for_all(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wait_until(
            lambda: len(admin.list_topics(timeout=PATIENCE_S).brokers) == len(NODES),
            "a node is missing",
        )

    @classmethod
    @contextmanager
    def running(cls, folder: Path) -> Iterator[KafkaCluster]:
        """Started side by side, since each waits for a quorum."""
        cluster = cls(folder)
        nodes = list(cluster.brokers.values())
        with ThreadPoolExecutor(len(NODES)) as threads:
            starting = [threads.submit(one.start) for one in nodes]
        try:
            for future in starting:
                future.result()
            cluster._wait_for_all()
            yield cluster
        finally:
            for one, future in zip(nodes, starting, strict=True):
                # One that did not start has ended itself.
                if future.exception() is None:
                    one.__exit__()
