"""A producer that continues through all faults, and a check of its records."""

import threading

from confluent_kafka import Producer

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume
from tests.support.waiting import wait_until


class Writer:
    """An idempotent producer with acks=all that runs until it is stopped."""

    def __init__(self, cluster: BrokerCluster, topic: str, partitions: int) -> None:
        self.acknowledged: list[set[int]] = [set() for _ in range(partitions)]
        self.failed: list[object] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
            }
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def _run(self) -> None:
        number = 0
        while not self._end.is_set():
            for partition in range(len(self.acknowledged)):
                self._produce(partition, number)
                number += 1
            self._producer.poll(0.002)

    def _produce(self, partition: int, number: int) -> None:
        while not self._end.is_set():
            try:
                self._producer.produce(
                    self._topic,
                    str(number).encode(),
                    partition=partition,
                    on_delivery=self._delivered,
                )
            except BufferError:  # its queue is full while brokers are away
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[message.partition()].add(int(message.value()))  # type: ignore[attr-defined]

    def go_on(self, count: int = 500) -> None:
        """Returns when ``count`` more records are acknowledged."""
        wanted = self.count + count
        wait_until(lambda: self.count >= wanted, f"stands still at {self.count}")

    def abandon(self) -> None:
        """Ends it without waiting for acknowledgements: the test has failed."""
        self._end.set()
        self._thread.join()
        self._producer.purge()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.failed


def check(cluster: BrokerCluster, topic: str, writer: Writer) -> None:
    """Each acknowledged record is there once, in order."""
    found = [int(value) for value in consume(cluster, topic, writer.count, "checker")]
    assert len(found) == len(set(found)), "some are there twice"
    assert set(found) >= set().union(*writer.acknowledged)
    for partition in range(len(writer.acknowledged)):
        own = [number for number in found if number % len(writer.acknowledged) == partition]
        assert own == sorted(own)
