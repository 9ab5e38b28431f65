"""A word count by Kafka Streams: who writes the lines, who counts, who reads the counts."""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import jvm
from tests.support.java_program import JavaProgram
from tests.support.waiting import PATIENCE_S, wait_until

PARTITIONS = 2
"""Of the input and of the output."""
CHANGELOG = "counts-changelog"
REPARTITION = "words-repartition"
_PROGRAM = Path(__file__).parents[1] / "clients" / "WordCount.java"
_WORDS = [f"word{number}" for number in range(25)]
_PAUSE_S = 0.005
END_S = 2 * PATIENCE_S


class Lines:
    """A thread that writes lines of three words until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.counts: Counter[str] = Counter()
        self._topic = topic
        self._random = random.Random(topic)
        self._failed: list[Any] = []
        self._stopped = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(_PAUSE_S):
            words = self._random.choices(_WORDS, k=3)
            self.counts.update(words)
            self._producer.produce(
                self._topic,
                " ".join(words),
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: self._failed.append(error) if error else None,
            )
            self._producer.poll(0)
            number += 1

    def stop(self) -> None:
        """All lines are written then."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(END_S) == 0
        assert self._failed == []


class Counts:
    """Reads committed counts. No count may come twice, and none may be missing."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.last: Counter[str] = Counter()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(topic, part, 0) for part in range(PARTITIONS)])

    def total(self) -> int:
        """All counts that were read."""
        for message in self._consumer.consume(1000, 0.2):
            if message.error() is None:
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                self.last[key.decode()] += 1
                assert int(value) == self.last[key.decode()], f"{key!r} after {self.last}"
        return self.last.total()

    def close(self) -> None:
        self._consumer.close()


class WordCount:
    """Counts the words of ``NAME-in`` into ``NAME-out``, both of which exist."""

    def __init__(self, bootstrap: str, name: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.name = name
        self.input, self.output = inputs = f"{name}-in", f"{name}-out"
        self.changelog, self.repartition = f"{name}-{CHANGELOG}", f"{name}-{REPARTITION}"
        self._state = folder / "state"
        self._arguments = [bootstrap, name, *inputs, str(self._state)]
        self._folder = folder
        self._starts = 0
        self._program: JavaProgram | None = None

    def start(self) -> None:
        self._starts += 1
        self._program = JavaProgram(
            self._folder,
            f"streams{self._starts}",
            str(_PROGRAM),
            *self._arguments,
            jars=jvm.STREAMS_JARS,
        )

    @property
    def program(self) -> JavaProgram:
        assert self._program is not None
        return self._program

    def wait_until_restored(self) -> None:
        """Until this start has restored state from the changelog."""

        def is_restored() -> bool:
            self.program.check()
            return any(int(count) > 0 for _, count in self.program.lines("restored"))

        wait_until(is_restored, lambda: f"nothing is restored: {self.program.told()}", END_S)

    def kill(self) -> None:
        """As kill -9; its state on the disk is lost."""
        assert self.program.lines("died") == []
        self.program.kill()
        shutil.rmtree(self._state)

    def wait_for_more(self, counts: Counts, count: int) -> None:
        """Until so many more counts are committed."""
        wanted = counts.total() + count

        def are_there() -> bool:
            self.program.check()
            return counts.total() >= wanted

        wait_until(are_there, lambda: f"{counts.last}: {self.program.told()}", END_S)

    def finish(self, lines: Lines, counts: Counts) -> None:
        """Until all lines are counted: each word exactly as often as it was written."""
        lines.stop()

        def is_all() -> bool:
            self.program.check()
            return counts.total() >= lines.counts.total()

        wait_until(is_all, lambda: f"{counts.last}: {self.program.told()}", END_S)
        assert counts.last == lines.counts
        assert self.program.lines("died") == []


@contextmanager
def counting(app: WordCount) -> Iterator[tuple[Lines, Counts]]:
    """The application, its input and its output, until the block ends."""
    lines, counts = Lines(app.bootstrap, app.input), Counts(app.bootstrap, app.output)
    app.start()
    try:
        yield lines, counts
    finally:
        app.program.kill()
        counts.close()
        lines.stop()
