"""A topic whose rows are hard to find by time: times out of order, transactions, tombstones, and
gaps of compaction."""

from __future__ import annotations

import random

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.compacting import EAGER_TOPIC
from tests.support.transactions import producer_of, wait_until_ended
from tests.support.waiting import PATIENCE_S

PARTITIONS = 3
START_MS = 1_767_355_200_000
SPAN_MS = 100_000
"""Times are within so many milliseconds of ``START_MS``."""

_ROUNDS = 30
_KEYS = 40


def make_awkward(bootstrap: str, topic: str, chance: random.Random) -> int:
    """Makes and fills it; gives the number of records that were committed, of which compaction
    removes most."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, PARTITIONS, 1, config=EAGER_TOPIC | {"segment.bytes": "8000"})
    admin.create_topics([new])[topic].result(PATIENCE_S)
    plain = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 7})
    transactional = producer_of(bootstrap, topic)
    committed = 0
    for _ in range(_ROUNDS):
        kind = chance.choice(("plain", "commit", "abort"))
        if kind == "plain":
            committed += _write(plain, topic, chance)
            continue
        transactional.begin_transaction()
        written = _write(transactional, topic, chance)
        if kind == "commit":
            committed += written
            transactional.commit_transaction(PATIENCE_S)
        else:
            transactional.abort_transaction(PATIENCE_S)
        wait_until_ended(bootstrap, topic)
    return committed


def _write(producer: Producer, topic: str, chance: random.Random) -> int:
    """Each time somewhere else in the span, so that segments differ in their latest times."""
    count = chance.randrange(20, 80)
    middle = chance.randrange(SPAN_MS)
    for _ in range(count):
        at_ms = START_MS + min(max(middle + chance.randrange(-5000, 5000), 0), SPAN_MS)
        producer.produce(
            topic,
            key=b"%d" % chance.randrange(_KEYS),
            value=None if chance.random() < 0.2 else chance.randbytes(100),
            partition=chance.randrange(PARTITIONS),
            timestamp=at_ms,
        )
    assert producer.flush(PATIENCE_S) == 0
    return count
