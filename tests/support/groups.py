"""Members of consumer groups, by three stock clients, behind one small interface."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

from tests.support.clients import TIMEOUT_S
from tests.support.waiting import wait_until

STEP_S = 0.1
# The leader of an offsets partition moves; the client asks again by itself.
_PASSING = (
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
_COORDINATOR_MOVES = (*_PASSING, confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE)


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Creates a topic and waits for its leaders."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)


def fill(bootstrap: str, topic: str, partitions: int, each: int, first: int = 0) -> None:
    """``each`` records into every partition; the values are ``partition:number``, from ``first``
    on."""
    # Leaders may change meanwhile; retries must not write twice.
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True}
    producer = confluent_kafka.Producer(settings)
    for partition in range(partitions):
        for number in range(first, first + each):
            producer.produce(topic, f"{partition}:{number}", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def ask_committed(consumer: Any, places: Sequence[Any]) -> Sequence[Any]:
    """The places with the group's offsets. librdkafka leaves a coordinator that has just moved or
    started to its user."""

    def ask() -> Any:
        try:
            return consumer.committed(places, TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() in _COORDINATOR_MOVES:
                return None
            raise

    found: Sequence[Any] = wait_until(ask, "no coordinator tells the offsets")
    return found


class Member(Protocol):
    """A group member without automatic commits."""

    def poll(self) -> list[str]:
        """Values that arrived shortly; also keeps the membership alive."""

    def assigned(self) -> list[int]:
        """The partitions that it owns."""

    def commit(self, offsets: Mapping[int, int], note: str) -> None:
        """Commits next offsets by partition, with a note each."""

    def committed(self, partition: int) -> tuple[int, str] | None:
        """The group's offset and note."""

    def close(self) -> None:
        """Leaves the group (a static member does not)."""


class ConfluentMember:
    def __init__(self, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        self.events: list[tuple[str, tuple[int, ...]]] = []
        self._topic = topic
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 200,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        self._consumer.subscribe(
            [topic], on_assign=self._note("assigned"), on_revoke=self._note("revoked")
        )

    def _note(self, what: str) -> Callable[[Any, Sequence[Any]], None]:
        def note(_consumer: Any, places: Sequence[Any]) -> None:
            self.events.append((what, tuple(sorted(place.partition for place in places))))

        return note

    def poll(self) -> list[str]:
        values = []
        for message in self._consumer.consume(500, STEP_S):
            error = message.error()
            if error is not None:
                if error.code() in _PASSING:
                    continue
                raise confluent_kafka.KafkaException(error)
            values.append(message.value().decode())
        return values

    def assigned(self) -> list[int]:
        return sorted(place.partition for place in self._consumer.assignment())

    def commit(self, offsets: Mapping[int, int], note: str) -> None:
        places = [
            confluent_kafka.TopicPartition(self._topic, partition, offset, note)
            for partition, offset in offsets.items()
        ]
        done = self._consumer.commit(offsets=places, asynchronous=False)
        assert [place.error for place in done] == [None] * len(places)

    def committed(self, partition: int) -> tuple[int, str] | None:
        place = confluent_kafka.TopicPartition(self._topic, partition)

        (found,) = ask_committed(self._consumer, [place])
        assert found.error is None
        return None if found.offset < 0 else (found.offset, found.metadata)

    def close(self) -> None:
        self._consumer.close()


def finish_join(consumer: kafka.KafkaConsumer) -> None:
    """Makes kafka-python's next poll resume a join that the last poll did not wait for.

    3.0.12 forgets a join that new metadata caused: after its assignment the leader sees no reason
    to join, and if the SyncGroup outlasts the poll the leader has no partitions and sends no
    heartbeats.
    """
    coordinator = consumer._coordinator
    if coordinator._join_task is not None:
        coordinator.request_rejoin()


class KafkaPythonMember:
    def __init__(self, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        self._topic = topic
        self._consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            **options,
        )

    def poll(self) -> list[str]:
        finish_join(self._consumer)
        polled = self._consumer.poll(timeout_ms=int(STEP_S * 1000))
        return [record.value.decode() for records in polled.values() for record in records]

    def assigned(self) -> list[int]:
        return sorted(place.partition for place in self._consumer.assignment())

    def commit(self, offsets: Mapping[int, int], note: str) -> None:
        self._consumer.commit(
            {
                kafka.TopicPartition(self._topic, partition): OffsetAndMetadata(offset, note, -1)
                for partition, offset in offsets.items()
            }
        )

    def committed(self, partition: int) -> tuple[int, str] | None:
        place = kafka.TopicPartition(self._topic, partition)
        found = self._consumer.committed(place, metadata=True)
        return None if found is None else (found.offset, found.metadata)

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class AioKafkaMember:
    """aiokafka, in an event loop that runs only during calls.

    Its start ends with an assignment, for which the other members must be polled, so ``poll``
    continues it.
    """

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._topic = topic
        self._loop = asyncio.new_event_loop()
        self._consumer = self._run(self._make(bootstrap, group))
        self._starting = self._loop.create_task(self._consumer.start())

    async def _make(self, bootstrap: str, group: str) -> Any:
        """The consumer must be made within the loop."""
        return aiokafka.AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )

    def _run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(coroutine, TIMEOUT_S))

    def _has_started(self) -> bool:
        if not self._starting.done():
            self._run(asyncio.wait([self._starting], timeout=STEP_S))
        if not self._starting.done():
            return False
        self._starting.result()
        return True

    def poll(self) -> list[str]:
        if not self._has_started():
            return []
        polled = self._run(self._consumer.getmany(timeout_ms=int(STEP_S * 1000)))
        return [record.value.decode() for records in polled.values() for record in records]

    def assigned(self) -> list[int]:
        if not self._has_started():
            return []
        return sorted(place.partition for place in self._consumer.assignment())

    def commit(self, offsets: Mapping[int, int], note: str) -> None:
        places = {
            aiokafka.TopicPartition(self._topic, partition): (offset, note)
            for partition, offset in offsets.items()
        }
        self._run(self._consumer.commit(places))

    def committed(self, partition: int) -> tuple[int, str] | None:
        place = aiokafka.TopicPartition(self._topic, partition)
        # The public method omits the note.
        found = self._run(self._consumer._coordinator.fetch_committed_offsets([place]))
        return (found[place].offset, found[place].metadata) if place in found else None

    def close(self) -> None:
        self._starting.cancel()
        self._run(asyncio.wait([self._starting]))
        self._run(self._consumer.stop())
        self._loop.close()


MEMBERS: Mapping[str, Callable[[str, str, str], Member]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}


class Crew:
    """Members polled in turn, with each value noted. The context manager closes them."""

    def __init__(self, *members: Member) -> None:
        self.members = list(members)
        self.seen: list[str] = []

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        """Polls all members until a condition holds; AssertionError after ``TIMEOUT_S``."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            shares = [member.assigned() for member in self.members]
            assert time.monotonic() < deadline, f"{what}: {len(self.seen)} seen, {shares}"
            for member in self.members:
                self.seen += member.poll()

    def owns_all(self, partitions: int, *, each: bool = True) -> bool:
        """Whether every partition has one owner and, with ``each``, every member owns some."""
        shares = [member.assigned() for member in self.members]
        owned = sorted(partition for share in shares for partition in share)
        return owned == list(range(partitions)) and (all(shares) or not each)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.close()
