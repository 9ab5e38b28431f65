"""What a fixture's broker is given: something for each kind of file and znode that brokers write.

Everything goes through clients, so that a later version can make its own fixture in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from pyrklog.protocol.producer_ids import INIT_PRODUCER_ID, InitProducerIdRequest
from tests.support import wire
from tests.support.clients import CODECS, TIMEOUT_S
from tests.support.commands import runner
from tests.support.raw_client import RawClient
from tests.support.transactions import produce_by_turns, producer_of, wait_until_ended
from tests.support.waiting import wait_until

SMALL = {"segment.bytes": "1500", "index.interval.bytes": "256"}
"""Several segments with indexes from few records."""
COMPACTED = {
    **SMALL,
    "segment.bytes": "4000",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}
BROKER_OPTIONS: dict[str, str | int | bool] = {
    "log.cleaner.backoff.ms": 200,
    "log.retention.check.interval.ms": 1_000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "pyrklog.cache.max.bytes": 32 << 20,
}
TIMED = 1_700_000_000_000
"""The timestamp of the first record of ``timed``."""
OPEN_FOR_MS = 900_000
IDEMPOTENT_BATCHES = 3
PLAIN_RECORDS = 60
READ = PLAIN_RECORDS // 3
"""What ``readers`` have read of each partition of ``plain``: the first half."""
KEYS = 10
ROUNDS = 30


def write(bootstrap: str, replicas: int = 1) -> None:
    """The first half: what is there before the broker starts again."""
    _Writer(bootstrap, replicas).all()


class _Writer:
    def __init__(self, bootstrap: str, replicas: int) -> None:
        self._bootstrap = bootstrap
        self._replicas = replicas
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._run = runner(bootstrap)

    def all(self) -> None:
        self._plain()
        self._codecs()
        self._compacted()
        self._transactional()
        self._trimmed()
        self._timed()
        self._enlarged()
        self._options()
        self._groups()

    def _create(
        self, name: str, partitions: int = 1, options: Mapping[str, str] | None = None
    ) -> None:
        new = NewTopic(name, partitions, self._replicas, config=dict(options or {}))
        self._admin.create_topics([new])[name].result(TIMEOUT_S)
        for one in self._bootstrap.split(","):
            self._wait_until_led(one, name, partitions)

    def _wait_until_led(self, place: str, name: str, partitions: int) -> None:
        def is_led() -> bool:
            found = AdminClient({"bootstrap.servers": place}).list_topics(name, TIMEOUT_S)
            told = found.topics[name].partitions.values()
            return len(told) == partitions and all(one.leader >= 0 for one in told)

        wait_until(is_led, f"{name} has no leaders")

    def _producer(self, **options: object) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "acks": "all", **options})

    def _plain(self) -> None:
        """Segments, indexes, keys, headers, nulls, and values that are no text."""
        self._create("plain", 3, SMALL)
        producer = self._producer()
        for number in range(PLAIN_RECORDS):
            key = None if number % 7 == 0 else b"key %d" % number
            value: bytes | None = b"value %d " % number * 10
            if number % 11 == 10:
                value = None
            elif number % 11 == 9:
                value = bytes(range(256))
            headers: list[tuple[str, Any]] = [("number", b"%d" % number), ("null", None)]
            producer.produce("plain", value, key, number % 3, headers=headers[: number % 3])
            if number % 4 == 3:
                producer.flush(TIMEOUT_S)
        assert producer.flush(TIMEOUT_S) == 0

    def _codecs(self) -> None:
        """A partition for each codec."""
        self._create("codecs", len(CODECS))
        for partition, codec in enumerate(CODECS):
            producer = self._producer(**{"compression.type": codec, "linger.ms": 100})
            for number in range(20):
                value = b"%s %d " % (codec.encode(), number) * 8
                producer.produce("codecs", value, b"k", partition)
            assert producer.flush(TIMEOUT_S) == 0

    def _compacted(self) -> None:
        """With tombstones, and compacted by now."""
        self._create("compacted", options=COMPACTED)
        for number in range(ROUNDS):
            pairs = [(b"%d" % key, b"%d of %d " % (number, key) * 8) for key in range(KEYS)]
            self._put("compacted", pairs)
        self._put("compacted", [(b"%d" % key, None) for key in range(KEYS // 2)])
        self._put("compacted", [(b"filler", b"%d " % number * 200) for number in range(10)])
        consumer = self._reader()
        few = ROUNDS * KEYS // 2
        wait_until(lambda: self._count(consumer, "compacted") < few, "nothing is compacted")
        consumer.close()
        # From now on it stays as it is.
        self._alter("topic", "compacted", **{"min.cleanable.dirty.ratio": "0.99"})

    def _put(self, topic: str, pairs: Sequence[tuple[bytes, bytes | None]]) -> None:
        producer = self._producer()
        for key, value in pairs:
            producer.produce(topic, value, key, 0)
        assert producer.flush(TIMEOUT_S) == 0

    def _reader(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )

    def _count(self, consumer: Consumer, topic: str) -> int:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = 0
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{topic} cannot be read"
            if message.error() is not None:
                return found
            found += 1

    def _transactional(self) -> None:
        """Committed and aborted ones, offsets committed in one, and one that stays open."""
        self._create("transactional", options=SMALL)
        produce_by_turns(self._bootstrap, "transactional", 7)
        self._create("opened")
        name = "with-offsets"
        producer = producer_of(self._bootstrap, name)
        producer.begin_transaction()
        producer.produce("opened", b"with offsets")
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "transacted"})
        place = TopicPartition("plain", 1, 5)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata())
        producer.commit_transaction()
        consumer.close()
        for ended in ("transactional", name):
            wait_until_ended(self._bootstrap, ended)

    def _trimmed(self) -> None:
        """A log that begins within a segment."""
        self._create("trimmed")
        self._put("trimmed", [(b"k", b"%d" % number) for number in range(12)])
        place = TopicPartition("trimmed", 0, 5)
        self._admin.delete_records([place])[place].result(TIMEOUT_S)

    def _timed(self) -> None:
        """Timestamps out of order, and the broker's own."""
        self._create("timed", options={"retention.ms": "-1"})
        producer = self._producer()
        for number in (0, 3, 1, 2, 5, 4):
            producer.produce("timed", b"%d" % number, timestamp=TIMED + 1_000 * number)
        self._create("appended", options={"message.timestamp.type": "LogAppendTime"})
        producer.produce("appended", b"when?", timestamp=TIMED)
        assert producer.flush(TIMEOUT_S) == 0

    def _enlarged(self) -> None:
        """More of them than at first, and a topic that is gone."""
        self._create("enlarged")
        self._admin.create_partitions([NewPartitions("enlarged", 3)])["enlarged"].result(TIMEOUT_S)
        self._wait_until_led(self._bootstrap.split(",")[0], "enlarged", 3)
        producer = self._producer()
        for partition in range(3):
            producer.produce("enlarged", b"%d" % partition, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        self._create("deleted")
        self._put("deleted", [(b"k", b"gone")])
        self._admin.delete_topics(["deleted"])["deleted"].result(TIMEOUT_S)

    def _options(self) -> None:
        self._alter("topic", "plain", **{"retention.ms": "86400000000"})
        self._alter("broker", "default", **{"log.retention.ms": "604800001"})
        self._alter("broker", "1", **{"message.max.bytes": "2000000"})
        pushed = {"metrics": "org.apache.kafka.producer.", "interval.ms": "60000"}
        self._alter("client-metrics", "of-producers", **pushed)

    def _alter(self, kind: str, name: str, **options: str) -> None:
        given = [word for item in options.items() for word in ("--set", "=".join(item))]
        self._run("config", "alter", kind, name, *given)

    def _groups(self) -> None:
        """One with a generation and notes, one with offsets alone, and one that is gone."""
        settings = {"bootstrap.servers": self._bootstrap, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "group.id": "readers", "enable.auto.commit": False})
        consumer.subscribe(["plain"])
        wait_until(lambda: consumer.poll(0.1), "nothing to read")
        places = [TopicPartition("plain", at, READ, f"note {at}") for at in range(3)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
        for group in ("offsets-only", "forgotten"):
            alone = Consumer({**settings, "group.id": group})
            alone.commit(offsets=[TopicPartition("codecs", 1, 7)], asynchronous=False)
            alone.close()
        self._admin.delete_consumer_groups(["forgotten"])["forgotten"].result(TIMEOUT_S)


def write_on(bootstrap: str, *, idempotent: bool) -> None:
    """The second half, in another leader epoch; the last that is written."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(9):
        producer.produce("plain", b"on %d" % number, b"on", number % 3)
    assert producer.flush(TIMEOUT_S) == 0
    if idempotent:
        _write_idempotently(bootstrap)
    left = producer_of(bootstrap, "left-open", **{"transaction.timeout.ms": OPEN_FOR_MS})
    left.begin_transaction()
    left.produce("opened", b"never committed")
    left.flush(TIMEOUT_S)


def _write_idempotently(bootstrap: str) -> None:
    """By hand, so that the next broker can be sent the last batch once more."""
    with RawClient(bootstrap) as raw:
        given = raw.ask(INIT_PRODUCER_ID, 1, InitProducerIdRequest(None, 60_000))
    with wire.Connection(bootstrap) as connection:
        assert wire.create_topic(connection, "idempotent") == 0
        for number in range(IDEMPOTENT_BATCHES):
            sent = idempotent_batch(given.producer_id, given.producer_epoch, number)
            assert wire.produce(connection, "idempotent", sent) == wire.Produced(0, number)


def idempotent_batch(producer_id: int, epoch: int, number: int) -> bytes:
    return wire.record_batch([b"%d" % number], producer=(producer_id, epoch, number))
