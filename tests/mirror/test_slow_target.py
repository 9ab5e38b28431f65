"""A target that takes bytes slowly: transactions become smaller until their time is enough."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from pyrklog.mirror import transaction_size
from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.support.groups import create_topic
from tests.support.mirroring import Pair, values
from tests.support.waiting import PATIENCE_S
from tests.support.watching_proxy import Passing, WatchingProxy

pytestmark = pytest.mark.timeout(240)

PRODUCE = 0
BYTES_A_SECOND = 1 << 20
RECORD_BYTES = 10_000
RECORDS = 1_200
TIMEOUT_MS = 8_000


def slowly(passing: Passing) -> None:
    if passing.is_request and passing.api_key == PRODUCE:
        # The line itself: nothing is waited for.
        time.sleep(len(passing.payload) / BYTES_A_SECOND)


@pytest.fixture
def pair(new_broker: Callable[..., TestBroker], topic: str) -> Iterator[Pair]:
    """The target is behind a slow line."""
    source, port = new_broker().start(), free_port()
    line = f"127.0.0.1:{port}"
    options = {
        "advertised.listeners": f"PLAINTEXT://{line}",
        # Ten seconds by default: a transaction may be open for longer than its time-out by as much.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    target = new_broker(options=options).start()
    with WatchingProxy(target.bootstrap, port, slowly, early=True):
        yield Pair(source.bootstrap, line, topic)


def test_a_slow_target_gets_all_the_same(
    pair: Pair, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 MB take 12 s, and the first transaction has all of it, but 8 s of time."""
    monkeypatch.setattr(transaction_size, "TIMEOUT_MS", TIMEOUT_MS)
    create_topic(pair.source, topic, 3)
    producer = Producer({"bootstrap.servers": pair.source})
    wanted: Counter[bytes] = Counter()
    for number in range(RECORDS):
        value = b"%d" % number + bytes(RECORD_BYTES)
        producer.produce(topic, value, partition=number % 3)
        wanted[value] += 1
    assert producer.flush(PATIENCE_S) == 0
    # However long the mirror takes to read it: nothing is committed before.
    said = pair.once("--topics", topic, "--commit", "30")
    assert "a transaction at west took too long" in said
    assert "going on with at most" in said
    assert values(pair.target, f"east.{topic}") == wanted
    pair.verified()
