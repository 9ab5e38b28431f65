"""Records that the target refuses: the error names the source's topic, partition and offset."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from pyrklog.testing import TestBroker
from tests.support.groups import create_topic
from tests.support.mirroring import Pair, set_option, values
from tests.support.transactions import producer_of
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.timeout(240)
HOUR_MS = 3_600_000
LARGEST = 50_000
"""Bytes of a batch at the target."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The target takes less than the source."""
    folder = tmp_path_factory.mktemp("brokers")
    less = {
        "message.max.bytes": str(LARGEST),
        "log.message.timestamp.after.max.ms": str(HOUR_MS),
        "log.message.timestamp.before.max.ms": str(24 * HOUR_MS),
    }
    with (
        TestBroker(folder / "east") as east,
        TestBroker(folder / "west", options=less) as west,
    ):
        yield east.bootstrap, west.bootstrap


class Source:
    """Writes to partition 1 of a topic; knows the offset of each value that is to be copied."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "batch.size": 100_000})
        self._topic = topic
        self.wanted: Counter[bytes] = Counter()

    def write(self, value: bytes, key: bytes | None = b"k", timestamp_ms: int = 0) -> int:
        offsets: list[int] = []
        self._producer.produce(
            self._topic,
            value,
            key,
            partition=1,
            on_delivery=lambda _error, message: offsets.append(message.offset()),
            timestamp=timestamp_ms,
        )
        assert self._producer.flush(PATIENCE_S) == 0
        self.wanted[value] += 1
        (offset,) = offsets
        return offset

    def write_some(self, name: str, count: int = 20) -> None:
        for number in range(count):
            self.write(b"%s-%d" % (name.encode(), number))


def noise(size: int) -> bytes:
    """That no codec makes smaller."""
    return random.Random(size).randbytes(size)


def prepared(pair: Pair, topic: str) -> Source:
    """A source whose first records are copied, with gaps: offsets are others at the target."""
    create_topic(pair.source, topic, 2)
    producer = producer_of(pair.source, topic)
    for number in range(9):
        producer.begin_transaction()
        producer.produce(topic, b"first-%d" % number, partition=1)
        producer.flush()
        if number % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    pair.once("--topics", topic)
    source = Source(pair.source, topic)
    source.wanted += values(pair.source, topic)
    return source


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_record_that_is_too_large(pair: Pair, topic: str, codec: str) -> None:
    """Compressed, the batch with it is divided more often, and its size is not the record's."""
    source = prepared(pair, topic)
    source.write_some("before")
    source.write(noise(LARGEST - 1000))
    offset = source.write(noise(LARGEST + 1000))
    source.write(noise(LARGEST + 2000))
    source.write_some("after")
    said = pair.once("--topics", topic, "-z", codec, code=1)
    assert f"offset {offset} of partition 1 of topic {topic} at east is not copied" in said
    there = f"topic east.{topic} at west"
    assert f"{there} takes at most {LARGEST} (max.message.bytes)" in said
    assert f"\n  fix: raise max.message.bytes of {there} to 5" in said
    assert "copied 0 records" in said
    set_option(pair.target, f"east.{topic}", "max.message.bytes", str(2 * LARGEST))
    pair.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == source.wanted


@pytest.mark.parametrize(
    ("days", "said_of_it"), [(1, "future than"), (-2, "past than")], ids=["future", "past"]
)
def test_a_timestamp_that_the_target_does_not_take(
    pair: Pair, topic: str, days: int, said_of_it: str
) -> None:
    """Its batch has others before and behind it."""
    source = prepared(pair, topic)
    source.write_some("before")
    offset = source.write(b"x", timestamp_ms=int(time.time() * 1000) + days * 24 * HOUR_MS)
    source.write_some("after")
    said = pair.once("--topics", topic, code=1)
    assert f"offset {offset} of partition 1 of topic {topic} at east is not copied" in said
    which = "after" if days > 0 else "before"
    assert f"is further in the {said_of_it} topic east.{topic} at west takes" in said
    assert f"(message.timestamp.{which}.max.ms=" in said
    assert f"\n  fix: raise message.timestamp.{which}.max.ms of topic east.{topic} at west" in said
    far = str(10 * 24 * HOUR_MS)
    set_option(pair.target, f"east.{topic}", f"message.timestamp.{which}.max.ms", far)
    pair.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == source.wanted


def test_a_record_without_a_key_for_a_compacted_topic(pair: Pair, topic: str) -> None:
    source = prepared(pair, topic)
    set_option(pair.target, f"east.{topic}", "cleanup.policy", "compact")
    source.write_some("before")
    offset = source.write(b"x", key=None)
    source.write(b"y", key=None)
    said = pair.once("--topics", topic, code=1)
    assert f"offset {offset} of partition 1 of topic {topic} at east is not copied" in said
    assert f"has no key, which topic east.{topic} at west needs" in said
    set_option(pair.target, f"east.{topic}", "cleanup.policy", "delete")
    pair.once("--topics", topic)
    assert values(pair.target, f"east.{topic}") == source.wanted
