"""The broker side: topics, the producer of flights, the reader of results. All librdkafka."""

from collections.abc import Iterable, Iterator

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from demo.flights import Flight

_CONNECT_TIMEOUT_S = 10.0
_TIMEOUT_S = 60.0


class DemoError(Exception):
    """The demo cannot continue; the message is for the user."""


def create(bootstrap: str, partitions: dict[str, int]) -> None:
    """Creates topics with the given numbers of partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        admin.list_topics(timeout=_CONNECT_TIMEOUT_S)
    except KafkaException as error:
        raise DemoError(f"no broker answers at {bootstrap}: {error.args[0].str()}") from error
    topics = [NewTopic(name, count, 1) for name, count in partitions.items()]
    for name, future in admin.create_topics(topics).items():
        try:
            future.result(timeout=_TIMEOUT_S)
        except Exception as error:
            raise DemoError(f"cannot create topic {name} on {bootstrap}: {error}") from error


class FlightProducer:
    """Sends flights as JSON keyed by carrier: a carrier's flights stay in order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._failed: list[str] = []
        self._delivered = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,  # acks=all, in order, no duplicates
                "compression.type": "lz4",
                "linger.ms": 20,
                "log_level": 0,
            }
        )

    def send(self, flights: Iterable[Flight]) -> int:
        """Returns how many were sent, when all are acknowledged. DemoError if one is not."""
        return self._send((flight.carrier.encode(), flight.to_json()) for flight in flights)

    def send_marker(self, value: bytes) -> None:
        """A record without a key."""
        self._send([(None, value)])

    def _send(self, records: Iterable[tuple[bytes | None, bytes]]) -> int:
        self._delivered = 0
        sent = 0
        for key, value in records:
            while True:
                try:
                    self._producer.produce(self._topic, value, key, on_delivery=self._told)
                    break
                except BufferError:
                    self._producer.poll(0.1)  # the client's queue is full: let it drain
            sent += 1
        self._producer.flush(_TIMEOUT_S)
        if self._failed or self._delivered != sent:
            reason = self._failed[0] if self._failed else "no acknowledgement in time"
            raise DemoError(f"{sent - self._delivered} of {sent} records not stored: {reason}")
        return sent

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._delivered += 1
        else:
            self._failed.append(str(error))


def read_all(bootstrap: str, topic: str) -> Iterator[bytes]:
    """The values of all records in the topic now. DemoError if they do not come."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",  # librdkafka requires a name; partitions are assigned by hand
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "log_level": 0,
        }
    )
    try:
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        ends: dict[int, int] = {}
        for partition in metadata.partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=_TIMEOUT_S
            )
            if high > low:
                ends[partition] = high
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        while ends:
            message = consumer.poll(_TIMEOUT_S)
            if message is None or message.error():
                why = message.error() if message else f"nothing for {_TIMEOUT_S:.0f} s"
                raise DemoError(f"cannot read topic {topic}: {why}")
            yield message.value()
            if message.offset() + 1 >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)
    finally:
        consumer.close()
