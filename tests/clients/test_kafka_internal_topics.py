"""`__consumer_offsets` and `__transaction_state` that one broker wrote, and another goes on with.

They are pyrklog and Apache Kafka, one after the other on one port. Producers live on, and
notice nothing but a broker that was away for a while.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.protocol.transaction_admin import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TransactionState,
)
from pyrklog.testing import TestBroker
from tests.clients.test_compaction import dump
from tests.clients.test_kafka_round_trip import export
from tests.clients.test_streams import option
from tests.support.cluster_clients import end_offset
from tests.support.compacting import EAGER_BROKER, record_count
from tests.support.faults.machine import wait_until_written
from tests.support.kafka_broker import KafkaBroker
from tests.support.raw_client import RawClient
from tests.support.transactions import producer_of, read_committed_when
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

INTERNAL = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "20000",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
KAFKA = {
    **INTERNAL,
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "log.initial.task.delay.ms": "100",
}
OURS = {**INTERNAL, **EAGER_BROKER}
OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
COMMITS = 600
GROUPS = ("plain", "deleted", "by-transaction", "by-open-transaction")
IDS = ("ended", "known", "open")
PENDING = 77

Facts = dict[str, Any]


class Known(NamedTuple):
    """A transactional id, as its coordinator tells it."""

    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: list[str]

    @classmethod
    def of(cls, told: TransactionState) -> Self:
        assert told.error_code == 0
        return cls(
            told.producer_id,
            told.producer_epoch,
            told.transaction_state,
            told.transaction_timeout_ms,
            told.transaction_start_time_ms,
            sorted(f"{one.topic}-{index}" for one in told.topics for index in one.partitions),
        )


class Work:
    """What groups and transactional producers leave at one broker, and do at the next one."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic

    def consumer(self, group: str) -> Any:
        """Sees no offsets that wait for the end of a transaction, and does not wait for it."""
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
            }
        )

    def commit(self, group: str, *offsets: int) -> None:
        """One after the other, each with a note and a leader epoch."""
        consumer = self.consumer(group)
        for offset in offsets:
            place = TopicPartition(self.topic, 0, offset, f"note {offset}", 0)
            consumer.commit(offsets=[place], asynchronous=False)
        consumer.close()

    def commit_until_compacted(self, folder: Path, first: int) -> None:
        """Commits of one group, most of which the broker then removes."""
        before = record_count(folder)
        self.commit("plain", *range(first, first + COMMITS))
        consumer = self.consumer("nobody")
        wait_until_written(folder, end_offset(consumer, TopicPartition(OFFSETS, 0)))
        consumer.close()
        most = before + COMMITS / 2
        wait_until(lambda: record_count(folder) < most, lambda: f"{record_count(folder)} stay")

    def add(self, producer: Any, group: str, offset: int, partition: int, value: bytes) -> None:
        """A record and an offset in a transaction."""
        producer.begin_transaction()
        producer.produce(self.topic, value, partition=partition)
        consumer = self.consumer(group)
        producer.send_offsets_to_transaction(
            [TopicPartition(self.topic, 0, offset)], consumer.consumer_group_metadata(), PATIENCE_S
        )
        consumer.close()
        assert producer.flush(PATIENCE_S) == 0

    def commit_in_transaction(self, producer: Any, offset: int, value: bytes) -> None:
        self.add(producer, "by-transaction", offset, 0, value)
        producer.commit_transaction(PATIENCE_S)

    def leave(self, folder: Path) -> None:
        """Offsets, transactional ids and an open transaction for the next broker."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result(PATIENCE_S)
        self.commit("deleted", 5)
        self.commit_until_compacted(folder, 0)
        admin.delete_consumer_groups(["deleted"])["deleted"].result(PATIENCE_S)
        ended = producer_of(self.bootstrap, "ended")
        self.commit_in_transaction(ended, 41, b"committed")
        self.add(ended, "by-transaction", 42, 0, b"aborted")
        ended.abort_transaction(PATIENCE_S)
        producer_of(self.bootstrap, "known")
        self.old = producer_of(self.bootstrap, "known")
        self.commit_in_transaction(self.old, 43, b"by the old producer")
        self.open = producer_of(self.bootstrap, "open", **{"transaction.timeout.ms": 600_000})
        self.add(self.open, "by-open-transaction", PENDING, 1, b"begun there, ended here")
        read_committed_when(self.bootstrap, self.topic, [b"committed", b"by the old producer"])

    def committed(self, group: str) -> tuple[int, str | None, int | None]:
        """Offset, note and leader epoch."""
        consumer = self.consumer(group)
        found: list[TopicPartition] = []

        def is_told() -> bool:
            try:
                found[:] = consumer.committed([TopicPartition(self.topic, 0)], timeout=PATIENCE_S)
            except KafkaException:  # the coordinator is still loading, in either broker
                return False
            return True

        wait_until(is_told, "no coordinator")
        consumer.close()
        return found[0].offset, found[0].metadata, found[0].leader_epoch

    def facts(self) -> Facts:
        """What a client is told of all groups and ids."""
        with RawClient(self.bootstrap) as client:
            wait_until(lambda: self.settled(client) == set(IDS), "other ids, or none yet")
            request = DescribeTransactionsRequest(list(IDS))
            states = client.ask(DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        told: Facts = {state.transactional_id: Known.of(state) for state in states}
        return told | {group: self.committed(group) for group in GROUPS}

    def settled(self, client: RawClient) -> set[str]:
        """The transactional ids that are loaded and wait for no marker."""
        answer = client.ask(LIST_TRANSACTIONS, 1, ListTransactionsRequest())
        return {
            one.transactional_id
            for one in answer.transaction_states
            if not one.transaction_state.startswith("Prepare")
        }

    def go_on(self, facts: Facts, folder: Path) -> None:
        """With what the broker before has left, as ``facts`` told it."""
        assert self.facts() == facts
        self.open.commit_transaction(PATIENCE_S)
        read_committed_when(self.bootstrap, self.topic, [b"begun there, ended here"], partition=1)
        wait_until(
            lambda: self.committed("by-open-transaction")[0] == PENDING, "its offset is lost"
        )
        new = producer_of(self.bootstrap, "known")
        with pytest.raises(KafkaException) as fenced:
            self.commit_in_transaction(self.old, 44, b"of a zombie")
        assert fenced.value.args[0].fatal()
        self.commit_in_transaction(new, 45, b"by the new producer")
        wait_until(lambda: self.committed("by-transaction")[0] == 45, "an old offset")
        self.commit_until_compacted(folder, COMMITS)
        values = [b"committed", b"by the old producer", b"by the new producer"]
        read_committed_when(self.bootstrap, self.topic, values)
        after = self.facts()
        known = facts["known"]
        assert after["known"][:2] == (known.producer_id, known.epoch + 1)
        assert after["plain"] == (2 * COMMITS - 1, f"note {2 * COMMITS - 1}", 0)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        assert option(admin, OFFSETS, "cleanup.policy") == "compact"
        assert option(admin, STATE, "cleanup.policy") == "compact"


def check_facts(facts: Facts) -> None:
    """That they are what was left, not only alike."""
    assert facts["plain"] == (COMMITS - 1, f"note {COMMITS - 1}", 0)
    assert [facts[group][0] for group in GROUPS[1:]] == [-1001, 43, -1001]
    epochs_and_states = {name: (facts[name].epoch, facts[name].state) for name in IDS}
    assert epochs_and_states == {
        "ended": (0, "CompleteAbort"),
        "known": (1, "CompleteCommit"),
        "open": (0, "Ongoing"),
    }
    assert len(facts["open"].partitions) == 2


def decoded(folder: Path, decoder: str) -> list[tuple[str, str]]:
    """Keys and payloads of all records, by Kafka's own tool."""
    output = dump(folder, "log", decoder)
    return re.findall(r"^\| offset: .* key: (.*) payload: (.*)$", output, re.MULTILINE)


def check_decoded_offsets(folder: Path) -> None:
    """The last record of each group, among those that are left."""
    records = decoded(folder, "--offsets-decoder")
    keys = [json.loads(key)["data"]["group"] for key, _ in records]
    assert keys.count("plain") < COMMITS
    last = dict(zip(keys, (payload for _, payload in records), strict=True))
    assert last.pop("deleted") == "<DELETE>"
    offsets = {group: json.loads(payload)["data"]["offset"] for group, payload in last.items()}
    assert offsets == {"plain": COMMITS - 1, "by-transaction": 43, "by-open-transaction": PENDING}


def check_decoded_state(folder: Path, facts: Facts) -> None:
    """The last record of each transactional id."""
    last = dict(decoded(folder, "--transaction-log-decoder"))
    for name in IDS:
        told = last.pop(f"transaction_metadata::transactionalId={name}")
        known = facts[name]
        begin = f"producerId:{known.producer_id},producerEpoch:{known.epoch},state={known.state},"
        assert told.startswith(begin)
        [listed] = re.findall(r"partitions=\[(.*?)\]", told)
        assert sorted(listed.split(",") if listed else []) == known.partitions
    assert last == {}


def test_kafka_goes_on_with_our_groups_and_transactions(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    ours = new_broker(options=OURS).start()
    work = Work(ours.bootstrap, topic)
    work.leave(ours.data / "logs" / f"{OFFSETS}-0")
    facts = work.facts()
    check_facts(facts)
    assert ours.stop() == 0
    copy = tmp_path / "copy"
    shutil.copytree(ours.data, copy)
    check_decoded_offsets(copy / "logs" / f"{OFFSETS}-0")
    check_decoded_state(copy / "logs" / f"{STATE}-0", facts)
    assert export(copy).returncode == 0
    with KafkaBroker(tmp_path / "kafka", copy / "logs", KAFKA, port=ours.port):
        work.go_on(facts, copy / "logs" / f"{OFFSETS}-0")


def test_we_go_on_with_kafkas_groups_and_transactions(
    new_broker: Callable[..., TestBroker], topic: str, tmp_path: Path
) -> None:
    with KafkaBroker(tmp_path / "kafka", options=KAFKA) as kafka:
        work = Work(kafka.bootstrap, topic)
        work.leave(kafka.data / f"{OFFSETS}-0")
        facts = work.facts()
        check_facts(facts)
    copy = tmp_path / "copy"
    shutil.copytree(kafka.data, copy)
    new_broker(copy, options=OURS, port=kafka.port).start()
    work.go_on(facts, copy / f"{OFFSETS}-0")
