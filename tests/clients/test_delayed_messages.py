"""Messages of one transaction that arrive in the next one.

Kafka's first transaction protocol takes them for messages of the next one, as Jepsen showed of it
(Bufstream 0.1.0, 2024). Version 2 has a new epoch for each transaction (KIP-890) and refuses them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.protocol.api import Api
from pyrklog.protocol.coordinators import FIND_COORDINATOR, KEY_TRANSACTION, FindCoordinatorRequest
from pyrklog.protocol.producer_ids import INIT_PRODUCER_ID, InitProducerIdRequest
from pyrklog.protocol.transactions import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    AddPartitionsTopic,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from pyrklog.testing import TestBroker
from tests.support.kafka_broker import KafkaBroker
from tests.support.raw_client import RawClient
from tests.support.transactions import read, read_committed_when
from tests.support.waiting import wait_until
from tests.support.wire import Connection, Reader, create_topic, record_batch

TRANSACTIONAL = 0x10
RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
REFUSED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class Versions(NamedTuple):
    produce: int
    end: int

    @property
    def enrols(self) -> bool:
        return self.end >= 5


VERSION_1 = Versions(produce=11, end=4)
VERSION_2 = Versions(produce=12, end=5)


class _Produce(NamedTuple):
    """What :meth:`.RawClient.exchange` needs to know of an API that Python has no codec for."""

    key: int = 0
    flexible_since: int = 9


PRODUCE: Any = _Produce()


class Request(NamedTuple):
    """May be sent late."""

    api: Api[Any, Any]
    version: int
    body: bytes


def _compact(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    length, prefix = len(data) + 1, bytearray()
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(prefix) + bytes([length]) + data


class TransactionalClient:
    """A client that says when each of its requests is sent. Its producer id, epoch and sequences
    are as a client library's. The topic has two partitions."""

    def __init__(self, bootstrap: str, topic: str, versions: Versions) -> None:
        self.bootstrap = bootstrap
        self.versions = versions
        self._topic = topic
        self._now = RawClient(bootstrap)
        self._late = RawClient(bootstrap)
        self.id, self.epoch = -1, -1
        self._sequences = [0, 0]
        find = FindCoordinatorRequest(topic, KEY_TRANSACTION)
        _ask_until_served(lambda: int(self._now.ask(FIND_COORDINATOR, 3, find).error_code))
        _ask_until_served(self._init)

    def _init(self) -> int:
        request = InitProducerIdRequest(self._topic, 60_000)
        told = self._now.ask(INIT_PRODUCER_ID, 4, request)
        self.id, self.epoch = told.producer_id, told.producer_epoch
        return int(told.error_code)

    def close(self) -> None:
        self._now.close()
        self._late.close()

    # --- requests --------------------------------------------------------------------------------

    def add(self, partition: int) -> Request:
        message = AddPartitionsToTxnRequest(
            [], self._topic, self.id, self.epoch, [AddPartitionsTopic(self._topic, [partition])]
        )
        return Request(ADD_PARTITIONS_TO_TXN, 3, ADD_PARTITIONS_TO_TXN.encode_request(message, 3))

    def produce(self, partition: int, value: bytes) -> Request:
        sequence = self._sequences[partition]
        self._sequences[partition] += 1
        batch = record_batch(
            [value], attributes=TRANSACTIONAL, producer=(self.id, self.epoch, sequence)
        )
        partitions = b"\2" + struct.pack(">i", partition) + _compact(batch) + b"\0"
        topics = b"\2" + _compact(self._topic) + partitions + b"\0"
        terms = struct.pack(">hi", -1, 30_000)
        body = _compact(self._topic) + terms + topics + b"\0"
        return Request(PRODUCE, self.versions.produce, body)

    def end(self, *, is_commit: bool) -> Request:
        version = self.versions.end
        message = EndTxnRequest(self._topic, self.id, self.epoch, is_commit)
        return Request(END_TXN, version, END_TXN.encode_request(message, version))

    # --- sending ---------------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Now, and again until the broker serves it; it must succeed."""
        _ask_until_served(lambda: self._exchange(self._now, request))

    def send_late(self, request: Request) -> ErrorCode:
        """On the connection whose messages were delayed."""
        return ErrorCode(self._exchange(self._late, request))

    def _exchange(self, client: RawClient, request: Request) -> int:
        body = client.exchange(request.api, request.version, request.body)
        if request.api is PRODUCE:
            reader = Reader(body)
            # Topics, the name of one, its partitions, the index of one.
            reader.take(1 + len(_compact(self._topic)) + 1 + 4)
            return reader.number("h")
        answer = request.api.decode_response(body, request.version)
        if request.api is ADD_PARTITIONS_TO_TXN:
            [result] = answer.results_by_topic_v3_and_below[0].results_by_partition
            return int(result.partition_error_code)
        if self.versions.enrols and not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences = [0, 0]
        return int(answer.error_code)

    def begin(self, value: bytes) -> None:
        """The first record of a transaction, in partition 0. Version 2 adds no partition before."""
        if not self.versions.enrols:
            self.send(self.add(0))
        self.send(self.produce(0, value))


def _ask_until_served(ask: Callable[[], int]) -> None:
    told = ErrorCode.NONE

    def is_served() -> bool:
        nonlocal told
        told = ErrorCode(ask())
        return told not in RETRIED

    wait_until(is_served, lambda: told.name)
    assert told is ErrorCode.NONE


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache Kafka 3.9, which has version 1 only."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "kafka") as running:
        yield running.bootstrap


@pytest.fixture(
    params=[
        ("broker", VERSION_1),
        ("broker", VERSION_2),
        pytest.param(("kafka", VERSION_1), marks=pytest.mark.jvm),
    ],
    ids=["version-1", "version-2", "kafka-version-1"],
)
def client(request: pytest.FixtureRequest, topic: str) -> Iterator[TransactionalClient]:
    name, versions = request.param
    running = request.getfixturevalue(name)
    bootstrap = running.bootstrap if isinstance(running, TestBroker) else running
    with Connection(bootstrap) as connection:
        assert create_topic(connection, topic, 2) == 0
    found = TransactionalClient(bootstrap, topic, versions)
    yield found
    found.close()


def test_a_late_record_of_an_aborted_transaction(client: TransactionalClient, topic: str) -> None:
    client.begin(b"aborted")
    late = client.produce(0, b"late")
    client.send(client.end(is_commit=False))
    if client.versions.enrols:
        client.begin(b"committed")
        assert client.send_late(late) in REFUSED
        client.send(client.end(is_commit=True))
        read_committed_when(client.bootstrap, topic, [b"committed"])
        return
    client.send(client.add(0))
    assert client.send_late(late) is ErrorCode.NONE
    client.begin(b"committed")
    client.send(client.end(is_commit=True))
    read_committed_when(client.bootstrap, topic, [b"late", b"committed"])


def test_a_late_partition_of_an_aborted_transaction(
    client: TransactionalClient, topic: str
) -> None:
    """With its record: neither was there when the transaction was aborted."""
    client.begin(b"aborted")
    late = [client.add(1), client.produce(1, b"late")]
    client.send(client.end(is_commit=False))
    client.begin(b"committed")
    codes = [client.send_late(one) for one in late]
    client.send(client.end(is_commit=True))
    read_committed_when(client.bootstrap, topic, [b"committed"])
    if client.versions.enrols:
        assert set(codes) <= REFUSED
        assert read(client.bootstrap, topic, partition=1, isolation="read_uncommitted") == []
    else:
        assert codes == [ErrorCode.NONE, ErrorCode.NONE]
        read_committed_when(client.bootstrap, topic, [b"late"], partition=1)


def test_a_late_end_of_the_transaction_before(client: TransactionalClient, topic: str) -> None:
    """The client sent the commit again, since its first copy was late."""
    client.begin(b"first")
    late = client.end(is_commit=True)
    client.send(client.end(is_commit=True))
    client.begin(b"half of the second")
    code = client.send_late(late)
    if client.versions.enrols:
        assert code in REFUSED
        client.send(client.end(is_commit=False))
        read_committed_when(client.bootstrap, topic, [b"first"])
    else:
        assert code is ErrorCode.NONE
        read_committed_when(client.bootstrap, topic, [b"first", b"half of the second"])
