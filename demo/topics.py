"""The broker side: topics, the producer of flights, the reader of results."""

from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.flights import Flight

_CONNECT_TIMEOUT_S = 10.0
_TIMEOUT_S = 60.0
_SHOWN_EACH = 1000


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
    """Sends flights as JSON keyed by carrier: a carrier's flights stay in order. ``show`` is called
    with numbers of records that were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, show: Callable[[int], None]) -> None:
        self._topic = topic
        self._show = show
        self._failed: list[str] = []
        self._delivered = 0
        self._shown = 0
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
        self._delivered = self._shown = 0
        sent = 0
        for key, value in records:
            while True:
                try:
                    self._producer.produce(self._topic, value, key, on_delivery=self._told)
                    break
                except BufferError:
                    self._producer.poll(0.1)  # the client's queue is full: let it drain
            sent += 1
            if self._delivered >= self._shown + _SHOWN_EACH:
                self._show_more()
        self._producer.flush(_TIMEOUT_S)
        self._show_more()
        if self._failed or self._delivered != sent:
            reason = self._failed[0] if self._failed else "no acknowledgement in time"
            raise DemoError(f"{sent - self._delivered} of {sent} records not stored: {reason}")
        return sent

    def _show_more(self) -> None:
        self._show(self._delivered - self._shown)
        self._shown = self._delivered

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._delivered += 1
        else:
            self._failed.append(str(error))


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    """The values of all committed records in the topic now. DemoError if they do not come."""
    from pyrklog import scan
    from pyrklog.scanning import ScanError

    try:
        with scan([topic], columns=["value"], bootstrap_servers=bootstrap) as records:
            return [value.as_py() for batch in records.reader() for value in batch.column("value")]
    except ScanError as error:
        raise DemoError(f"cannot read topic {topic}: {error}") from error
