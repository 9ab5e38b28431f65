"""What a scan sees of transactions and of compacted logs."""

from __future__ import annotations

from collections.abc import Callable

import pyrklog
from pyrklog.testing import TestBroker
from tests.support.compacting import (
    EAGER_BROKER,
    Found,
    create_compacted,
    fill,
    last_values,
    put,
    read_all,
    rounds,
)
from tests.support.groups import create_topic
from tests.support.scanning import iterated, values
from tests.support.transactions import producer_of, wait_until_ended
from tests.support.waiting import wait_until


def write(bootstrap: str, topic: str, name: str, value: bytes, commit: bool | None) -> None:
    """A transaction of three records; None leaves it open."""
    producer = producer_of(bootstrap, name)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic, value + b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    if commit is None:
        _open.append(producer)
        return
    (producer.commit_transaction if commit else producer.abort_transaction)(30)
    wait_until_ended(bootstrap, name)


_open: list[object] = []
"""Producers whose transactions stay open: one that is dropped aborts."""


def test_transactions_are_read_once_they_are_committed(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, 1)
    write(bootstrap, topic, f"{topic}-a", b"aborted", False)
    write(bootstrap, topic, f"{topic}-b", b"committed", True)
    write(bootstrap, topic, f"{topic}-a", b"again", True)
    write(bootstrap, topic, f"{topic}-c", b"open", None)
    committed = [b"committed0", b"committed1", b"committed2", b"again0", b"again1", b"again2"]
    wait_until(lambda: values(bootstrap, topic) == committed, lambda: f"{values(bootstrap, topic)}")
    everything = values(bootstrap, topic, isolation="read_uncommitted")
    aborted = [b"aborted0", b"aborted1", b"aborted2"]
    assert everything == [*aborted, *committed, b"open0", b"open1", b"open2"]
    # From the middle of a transaction, and to the middle of another.
    assert values(bootstrap, topic, start=1, end=6) == committed[:2]
    scan = pyrklog.scan(topic, columns=[], bootstrap_servers=bootstrap)
    assert sum(1 for _ in scan) == 1
    [progress] = scan.progress()
    # Three transactions with their markers.
    assert (progress.position, progress.end, progress.records) == (12, 12, 6)


def test_gaps_of_a_compacted_log_are_passed(
    new_broker: Callable[..., TestBroker], topic: str
) -> None:
    broker = new_broker(options=EAGER_BROKER).start()
    create_compacted(broker.bootstrap, topic)
    pairs = rounds(20)
    for codec in ("none", "zstd"):
        put(broker.bootstrap, topic, pairs, codec)
    fill(broker.bootstrap, topic)
    before = len(pairs) * 2

    def count() -> int:
        return len(read_all(broker.bootstrap, topic))

    wait_until(lambda: count() < before, lambda: f"{count()} records")
    scan = pyrklog.scan(
        topic, columns=["offset", "key", "value"], bootstrap_servers=broker.bootstrap
    )
    found = [Found(row["offset"], row["key"], row["value"]) for row in iterated(scan)]
    # Compaction goes on meanwhile; the last values are the same.
    assert last_values(found) == last_values(read_all(broker.bootstrap, topic))
    written = [Found(number, key, value) for number, (key, value) in enumerate(pairs)]
    assert last_values(found) == last_values(written)
    offsets = [one.offset for one in found]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < offsets[-1]
    [progress] = scan.progress()
    assert progress.position == progress.end
