"""Readers, groups and administrators that survive their broker's death and compare what they find
with what they were told before."""

import random
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from pyrklog.protocol.records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyrklog.protocol.topics import DELETE_TOPICS, DeleteTopicsRequest
from tests.support import wire
from tests.support.killing import NOT_YET, PATIENCE_S
from tests.support.ledger import Ledger, Place, value
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

COORDINATOR_NOT_YET = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
PAUSE_S = 0.02


def _reading(bootstrap: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 60,
        "retry.backoff.ms": 20,
        "log_level": 0,
    }


def is_fault(error: Any) -> bool:
    """Whether a consumer's error says more than that the broker is away."""
    away = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._PARTITION_EOF)
    return error is not None and error.code() not in (*away, *map(int, NOT_YET))


class Reader:
    """Reads every partition at its end into the ledger. After a kill, an offset that was shown
    before must still exist."""

    def __init__(self, bootstrap: str, places: Sequence[Place], ledger: Ledger) -> None:
        self._ledger = ledger
        self._consumer = Consumer(
            _reading(bootstrap, "kills-reader") | {"auto.offset.reset": "error"}
        )
        self._consumer.assign([TopicPartition(*place, 0) for place in places])

    def step(self) -> None:
        for message in self._consumer.consume(2_000, 0.05):
            if message.error() is None:
                place = (message.topic(), message.partition())
                self._ledger.see(place, message.offset(), message.value())
            elif is_fault(message.error()):
                self._ledger.note(f"reader: {message.error()}")

    def close(self) -> None:
        self._consumer.close()


class Commits:
    """Sent and acknowledged offsets of one group; after a kill the stored one is
    between the two."""

    def __init__(self, group: str, topic: str, partitions: int, ledger: Ledger) -> None:
        self.group = group
        self.topic = topic
        self.acknowledged = [-1] * partitions
        self.sent = [-1] * partitions
        self._ledger = ledger

    def check(self, raw: RawClient) -> bool:
        """Compares with the broker's answer; False if it has none yet."""
        acknowledged = list(self.acknowledged)
        wanted = [OffsetFetchRequestTopic(self.topic, list(range(len(self.sent))))]
        answer = raw.ask(OFFSET_FETCH, 5, OffsetFetchRequest(group_id=self.group, topics=wanted))
        if answer.error_code in COORDINATOR_NOT_YET:
            return False
        assert answer.error_code == ErrorCode.NONE
        for found in answer.topics[0].partitions:
            least, most = acknowledged[found.partition_index], self.sent[found.partition_index]
            if not least <= found.committed_offset <= max(most, least):
                self._ledger.note(
                    f"{self.group} {found.partition_index}: {found.committed_offset} is committed, "
                    f"acknowledged {least}, sent {most}"
                )
        return True


class Committer:
    """Commits rising offsets by hand, and checks them after every new connection."""

    def __init__(self, bootstrap: str, commits: Commits) -> None:
        self._bootstrap = bootstrap
        self._commits = commits

    def step(self) -> None:
        with RawClient(self._bootstrap, PATIENCE_S) as raw:
            wait_until(lambda: self._commits.check(raw), "nobody knows the offsets", PATIENCE_S)
            for _ in range(50):
                partition = random.randrange(len(self._commits.sent))
                self._commit(raw, partition)
                # Leaves time for the other workers.
                time.sleep(PAUSE_S)

    def _commit(self, raw: RawClient, partition: int) -> None:
        commits = self._commits
        offset = commits.sent[partition] + random.randrange(1, 9)
        commits.sent[partition] = offset
        one = OffsetCommitRequestPartition(partition, offset, committed_metadata="kills")
        request = OffsetCommitRequest(
            group_id=commits.group, topics=[OffsetCommitRequestTopic(commits.topic, [one])]
        )
        code = raw.ask(OFFSET_COMMIT, 6, request).topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            commits.acknowledged[partition] = offset
        else:
            assert code in COORDINATOR_NOT_YET, ErrorCode(code).name


class Member:
    """The only member of a group; librdkafka joins again after each kill."""

    def __init__(self, bootstrap: str, commits: Commits, ledger: Ledger) -> None:
        self._commits = commits
        self._ledger = ledger
        self._consumer = Consumer(
            _reading(bootstrap, commits.group)
            | {
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        )
        self._consumer.subscribe([commits.topic])

    def step(self) -> None:
        ends: dict[int, int] = {}
        for message in self._consumer.consume(500, 0.1):
            if message.error() is None:
                ends[message.partition()] = message.offset() + 1
            elif is_fault(message.error()):
                self._ledger.note(f"member: {message.error()}")
        for partition, end in ends.items():
            self._commits.sent[partition] = max(end, self._commits.sent[partition])
        places = [TopicPartition(self._commits.topic, *item) for item in ends.items()]
        if not places:
            return
        try:
            done = self._consumer.commit(offsets=places, asynchronous=False)
        except Exception as error:  # the broker is away, or the group begins anew
            del error
            return
        for place in done:
            if place.error is None:
                self._commits.acknowledged[place.partition] = place.offset

    def close(self) -> None:
        self._consumer.close()


class PassingTopics:
    """Topics that are created, written to once, deleted and created again under the same name."""

    def __init__(self, bootstrap: str, names: Sequence[str], ledger: Ledger) -> None:
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._states: dict[str, str] = dict.fromkeys(names, "absent")
        self._marks: dict[str, bytes] = {}
        self._lives = 0
        self.changes = 0

    def step(self) -> None:
        """Over one connection: compares the list with what was acknowledged, then changes it."""
        with (
            wire.Connection(self._bootstrap, PATIENCE_S) as connection,
            RawClient(self._bootstrap, PATIENCE_S) as raw,
        ):
            self._compare(_listed(connection))
            for _ in range(10):
                name = random.choice(list(self._states))
                if self._states[name] == "unknown":
                    continue  # until the next look at the list
                if self._states[name] in ("absent", "unlisted"):
                    self._create(connection, name)
                else:
                    self._delete(connection, raw, name)
                self.changes += 1
                # The topics must live for a while, also when the broker is killed.
                time.sleep(5 * PAUSE_S)

    def _compare(self, listed: set[str]) -> None:
        for name, state in self._states.items():
            if state in ("unknown", "unlisted"):
                self._states[name] = "doubtful" if name in listed else "unlisted"
            elif (state == "absent") == (name in listed):
                self._ledger.note(f"topic {name} is {state}, and yet it is not so")

    def _create(self, connection: wire.Connection, name: str) -> None:
        before, self._states[name] = self._states[name], "unknown"
        code = wire.create_topic(connection, name)
        # An unacknowledged creation or deletion may still be under way.
        if before == "unlisted" and code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return
        assert code == ErrorCode.NONE, f"{name}: {ErrorCode(code).name}"
        self._lives += 1
        mark = value(99, self._lives, random.randrange(200))
        # Unknown until its record is acknowledged.
        self._states[name] = "doubtful"
        done = wire.produce(connection, name, wire.record_batch([mark]))
        assert done.error == 0, f"{name}, new: {ErrorCode(done.error).name}"
        if done.base_offset != 0:
            self._ledger.note(f"{name} was new, and its first record is {done.base_offset}")
        self._states[name] = "present"
        self._marks[name] = mark

    def _delete(self, connection: wire.Connection, raw: RawClient, name: str) -> None:
        if self._states[name] == "present":
            wire.wait_until_led(connection, name)
            records = wire.fetch(connection, name, 0).records
            if self._marks[name] not in records:
                self._ledger.note(f"{name} has lost its record")
        before, self._states[name] = self._states[name], "unknown"
        answer = raw.ask(DELETE_TOPICS, 3, DeleteTopicsRequest(topic_names=[name]))
        code = answer.responses[0].error_code
        if before == "doubtful" and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        assert code == ErrorCode.NONE, f"{name}, {before}: {ErrorCode(code).name}"
        self._states[name] = "absent"


def _listed(connection: wire.Connection) -> set[str]:
    """The names of all topics: Metadata version 1."""
    reply = wire.Reader(connection.request(wire.METADATA, 1, b"\xff" * 4))
    for _ in reply.array():
        reply.take(4)
        reply.string()
        reply.take(4)
        reply.string()
    reply.take(4)
    names = set()
    for _ in reply.array():
        reply.take(2)
        names.add(reply.string() or "")
        reply.take(1)
        for _ in reply.array():
            reply.take(10)
            for _ in range(2):
                reply.take(4 * reply.number("i"))
    return names


class Deleter:
    """DeleteRecords up to what a reader has seen; the log start must not pass that."""

    def __init__(self, bootstrap: str, place: Place, ledger: Ledger) -> None:
        self._bootstrap = bootstrap
        self._place = place
        self._ledger = ledger
        self.requested = 0

    def step(self) -> None:
        """Two deletions over one connection."""
        with RawClient(self._bootstrap, PATIENCE_S) as raw:
            for _ in range(2):
                # Leaves time for readers and writers.
                time.sleep(0.3)
                seen = self._ledger.seen_up_to(self._place)
                self._delete(raw, random.randrange(self.requested, max(seen, self.requested) + 1))

    def _delete(self, raw: RawClient, offset: int) -> None:
        self.requested = offset
        topic = DeleteRecordsTopic(self._place[0], [DeleteRecordsPartition(self._place[1], offset)])
        found = raw.ask(DELETE_RECORDS, 1, DeleteRecordsRequest([topic])).topics[0].partitions[0]
        if found.error_code in NOT_YET:
            return
        assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code).name
        if found.low_watermark != offset:
            self._ledger.note(f"{self._place}: {offset} wanted, begins at {found.low_watermark}")
