"""Stock consumers that read a topic from its beginning to its end, again and again.

A pass begins at the beginning and ends at the end that the topic had then. A reader fails at an
error that reaches an application, at an offset that is out of range, and where a record is not the
next one.
"""

import threading
from pathlib import Path
from typing import Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.support import jvm
from tests.support.cluster_clients import end_offset
from tests.support.java_program import JavaProgram
from tests.support.waiting import PATIENCE_S, wait_until

_PROGRAM = Path(__file__).with_name("Rereader.java")
_UNTIL_ASKED_AGAIN_S = 0.2


class Rereader(Protocol):
    @property
    def passes(self) -> int:
        """Those that are done. AssertionError if it has failed."""
        ...

    def close(self) -> None: ...


def read_again(*readers: Rereader) -> None:
    """Until each has done a pass that begins now."""
    # The pass under way began before.
    wanted = [reader.passes + 2 for reader in readers]

    def are_done() -> bool:
        return all(reader.passes >= count for reader, count in zip(readers, wanted, strict=True))

    wait_until(
        are_done,
        lambda: f"{[reader.passes for reader in readers]} passes of {wanted}",
        2 * PATIENCE_S,
    )


class LibraryRereader:
    """librdkafka, with one consumer for all passes: it keeps the replica that it was sent to."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rack: str) -> None:
        self._passes = 0
        self._error: BaseException | None = None
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-again",
                "client.rack": rack,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
            }
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def passes(self) -> int:
        if self._error is not None:
            raise AssertionError("librdkafka's reader has failed") from self._error
        return self._passes

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self._read_all()
                self._passes += 1
        except BaseException as error:
            self._error = error

    def _read_all(self) -> None:
        ends = [end_offset(self._consumer, place) for place in self._places]
        found = [0] * len(ends)
        self._consumer.assign(
            [TopicPartition(one.topic, one.partition, OFFSET_BEGINNING) for one in self._places]
        )
        while not self._end.is_set() and any(map(int.__lt__, found, ends)):
            for message in self._consumer.consume(1_000, _UNTIL_ASKED_AGAIN_S):
                error = message.error()
                assert error is None or error.code() == KafkaError._PARTITION_EOF, error
                if error is None:
                    number = message.partition()
                    assert number is not None
                    assert message.offset() == found[number], f"partition {number}: {found}"
                    found[number] += 1


class JavaRereader:
    """Apache Kafka's own consumer."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, rack: str, folder: Path
    ) -> None:
        arguments = [bootstrap, topic, str(partitions), rack]
        self._program = JavaProgram(
            folder, f"again-{rack}", str(_PROGRAM), *arguments, jars=jvm.KAFKA_JARS
        )

    @property
    def passes(self) -> int:
        self._program.check()
        return len(self._program.lines("pass"))

    def close(self) -> None:
        self._program.kill()
