"""What a writer that keeps offsets rests on (``mirroring.md``): sequences that are taken once, and
markers that take one offset each."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.producer_ids import INIT_PRODUCER_ID, InitProducerIdRequest
from pyrklog.protocol.transactions import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    AddPartitionsTopic,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
from tests.acceptance.sites import Site
from tests.support.raw_client import RawClient
from tests.support.transactions import wait_until_ended
from tests.support.waiting import wait_until
from tests.support.wire import Connection, Produced, batch_headers, fetch, produce, record_batch

TRANSACTION = 1
CONTROL = 0x20
REFUSED = Produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
Id = tuple[int, int]
"""Producer id and epoch."""


def producer_id(broker: str, transactional_id: str | None = None) -> Id:
    with RawClient(broker) as raw:

        def ask() -> Id | None:
            asked = InitProducerIdRequest(transactional_id, 60_000)
            found = raw.ask(INIT_PRODUCER_ID, 1, asked)
            return None if found.error_code else (found.producer_id, found.producer_epoch)

        return wait_until(ask, "there is no producer id")


def coordinator(site: Site, transactional_id: str) -> str:
    with RawClient(site.bootstrap.split(",")[0]) as raw:

        def find() -> str | None:
            asked = FindCoordinatorRequest(transactional_id, TRANSACTION)
            found = raw.ask(FIND_COORDINATOR, 2, asked)
            return None if found.error_code else f"{found.host}:{found.port}"

        return wait_until(find, "the transaction has no coordinator")


def put(connection: Connection, topic: str, producer: Id, first: int, count: int) -> Produced:
    """Records whose sequences begin so."""
    values = [b"%d" % number for number in range(first, first + count)]
    return produce(connection, topic, record_batch(values, producer=(*producer, first)))


def test_a_sequence_is_taken_once_from_two_processes(site: Site, topic: str) -> None:
    """Of two processes with one producer id the one that does not know the log's end is told."""
    site.create(topic)
    leader = site.leader(topic)
    producer = producer_id(leader)
    with Connection(leader) as one, Connection(leader) as other:
        assert put(one, topic, producer, 0, 10) == Produced(0, 0)
        assert put(other, topic, producer, 10, 10) == Produced(0, 10)
        assert put(one, topic, producer, 10, 10) == Produced(0, 10), "it is there already"
        for first, count in ((10, 5), (5, 20), (19, 1), (30, 5)):
            assert put(one, topic, producer, first, count) == REFUSED
        assert put(one, topic, producer, 20, 5) == Produced(0, 20)
        headers = batch_headers(fetch(one, topic, 0).records)
    assert [(one.base_offset, one.record_count) for one in headers] == [(0, 10), (10, 10), (20, 5)]


def test_a_transaction_without_records_takes_one_offset(site: Site, topic: str) -> None:
    """And does not change what another producer's next sequence is."""
    site.create(topic)
    leader = site.leader(topic)
    ordinary = producer_id(leader)
    broker = coordinator(site, topic)
    transactional = producer_id(broker, topic)
    with Connection(leader) as connection, RawClient(broker) as raw:
        for number in range(3):
            at = Produced(0, 2 * number)
            assert put(connection, topic, ordinary, number, 1) == at
            added = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=topic,
                v3_and_below_producer_id=transactional[0],
                v3_and_below_producer_epoch=transactional[1],
                v3_and_below_topics=[AddPartitionsTopic(topic, [0])],
            )
            (told,) = raw.ask(ADD_PARTITIONS_TO_TXN, 3, added).results_by_topic_v3_and_below
            assert [one.partition_error_code for one in told.results_by_partition] == [0]
            ended = EndTxnRequest(topic, *transactional, committed=False)
            assert raw.ask(END_TXN, 2, ended).error_code == 0
            wait_until_ended(site.bootstrap, topic)
        headers = batch_headers(fetch(connection, topic, 0).records)
    found = [(one.base_offset, one.record_count, bool(one.attributes & CONTROL)) for one in headers]
    assert found == [(at, 1, at % 2 == 1) for at in range(6)]
