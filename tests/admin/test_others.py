"""DeleteRecords, DescribeCluster, DescribeLogDirs, InitProducerId, ListPartitionReassignments.

The expected codes are those of Apache Kafka 3.9.1; ``--against HOST:PORT`` runs the tests there.
"""

import pytest

from pyrklog.protocol.cluster import DescribeClusterRequest
from pyrklog.protocol.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pyrklog.protocol.producer_ids import InitProducerIdRequest
from pyrklog.protocol.reassignments import ListPartitionReassignmentsRequest
from pyrklog.protocol.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyrklog.protocol.topics import CreatableTopic, CreateTopicsRequest
from tests.admin.conftest import Ask
from tests.support.clients import CLIENTS, Record

CREATE, RECORDS, PRODUCER_ID, LOG_DIRS, REASSIGNMENTS, CLUSTER = 19, 21, 22, 35, 46, 60
OK, OUT_OF_RANGE, UNKNOWN, INVALID = 0, 1, 3, 42
RECORD_COUNT = 10
LOADING = 14


@pytest.fixture
def written(ask: Ask, bootstrap: str, topic: str) -> str:
    """A topic of two partitions, ten records in the first."""
    response = ask(CREATE, 7, CreateTopicsRequest([CreatableTopic(topic, 2, 1)]))
    assert response.topics[0].error_code == OK
    CLIENTS[0].produce(bootstrap, topic, [Record(None, b"x" * 100)] * RECORD_COUNT)
    return topic


def delete(
    ask: Ask, version: int, topic: str, *offsets: tuple[int, int], timeout_ms: int = 60_000
) -> list[tuple[int, ...]]:
    """Deletes records; (partition, low watermark, error code) of each partition."""
    partitions = [DeleteRecordsPartition(*one) for one in offsets]
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, partitions)], timeout_ms)
    return sorted(
        (one.partition_index, one.low_watermark, one.error_code)
        for result in ask(RECORDS, version, request).topics
        for one in result.partitions
    )


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(ask: Ask, written: str, version: int) -> None:
    found = delete(ask, version, written, (0, 3), (1, 0), (7, 0))
    assert found == [(0, 3, OK), (1, 0, OK), (7, -1, UNKNOWN)]
    assert delete(ask, version, written, (0, 1)) == [(0, 3, OK)]
    assert delete(ask, version, written, (0, RECORD_COUNT + 1)) == [(0, -1, OUT_OF_RANGE)]
    assert delete(ask, version, written, (0, -2)) == [(0, -1, OUT_OF_RANGE)]
    assert delete(ask, version, written, (0, 4), (0, 5)) == [(0, 5, OK)]
    assert delete(ask, version, written, (0, -1)) == [(0, RECORD_COUNT, OK)]
    assert delete(ask, version, written, (1, -1)) == [(1, 0, OK)]
    assert delete(ask, version, written + "-nope", (0, 1)) == [(0, -1, UNKNOWN)]


@pytest.mark.parametrize("timeout_ms", [0, 1, -1])
def test_records_are_deleted_however_short_the_time_out(
    ask: Ask, written: str, timeout_ms: int
) -> None:
    """It limits the wait for followers, and there are none."""
    for offset in (1, 2, RECORD_COUNT):
        assert delete(ask, 2, written, (0, offset), timeout_ms=timeout_ms) == [(0, offset, OK)]
    beyond = delete(ask, 2, written, (0, RECORD_COUNT + 1), timeout_ms=timeout_ms)
    assert beyond == [(0, -1, OUT_OF_RANGE)]


@pytest.mark.parametrize("version", range(2))
def test_the_cluster(ask: Ask, bootstrap: str, version: int) -> None:
    response = ask(CLUSTER, version, DescribeClusterRequest(True))
    assert response.error_code == OK
    assert len(response.cluster_id) == 22
    (broker,) = response.brokers
    assert f"{broker.host}:{broker.port}" == bootstrap
    assert response.controller_id == broker.broker_id
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000
    plain = ask(CLUSTER, version, DescribeClusterRequest())
    assert plain.cluster_authorized_operations == -(2**31)


@pytest.mark.parametrize(("endpoint", "code"), [(2, 114), (0, 115), (9, 115)])
def test_endpoints_of_other_kinds_are_not_here(ask: Ask, endpoint: int, code: int) -> None:
    response = ask(CLUSTER, 1, DescribeClusterRequest(endpoint_type=endpoint))
    assert (response.error_code, response.brokers) == (code, [])


@pytest.mark.parametrize("version", range(5))
def test_log_directories(ask: Ask, written: str, version: int) -> None:
    topics = [DescribableLogDirTopic(written, [0, 1, 9]), DescribableLogDirTopic("nope", [0])]
    (directory,) = ask(LOG_DIRS, version, DescribeLogDirsRequest(topics)).results
    assert directory.error_code == OK
    assert directory.log_dir.startswith("/")
    (found,) = directory.topics
    sizes = {one.partition_index: one.partition_size for one in found.partitions}
    assert found.name == written
    assert sizes[0] > 100 * RECORD_COUNT
    assert sizes[1] == 0
    assert all((one.offset_lag, one.is_future_key) == (0, False) for one in found.partitions)
    if version >= 4:
        assert directory.total_bytes > directory.usable_bytes > 0
    (everything,) = ask(LOG_DIRS, version, DescribeLogDirsRequest()).results
    assert written in {one.name for one in everything.topics}
    (nothing,) = ask(LOG_DIRS, version, DescribeLogDirsRequest([])).results
    assert (nothing.log_dir, nothing.topics) == (directory.log_dir, [])


@pytest.mark.parametrize("version", range(6))
def test_every_producer_gets_an_id_of_its_own(ask: Ask, version: int) -> None:
    request = InitProducerIdRequest(None, 60_000)
    # Kafka fetches its block of ids at the first request, and has the client retry.
    answers = iter(lambda: ask(PRODUCER_ID, version, request), None)
    found = [answer for answer, _ in zip(answers, range(20), strict=False)]
    ids = [one.producer_id for one in found if one.error_code == OK]
    assert {one.error_code for one in found} <= {OK, LOADING}
    assert len(set(ids)) == len(ids) > 1
    assert {one.producer_epoch for one in found if one.error_code == OK} == {0}


def test_producers_that_contradict_themselves(ask: Ask) -> None:
    for request in (
        InitProducerIdRequest(""),
        InitProducerIdRequest(producer_id=5),
        InitProducerIdRequest(producer_epoch=5),
    ):
        response = ask(PRODUCER_ID, 5, request)
        assert (response.error_code, response.producer_id) == (INVALID, -1)


def test_no_reassignment_is_listed(ask: Ask) -> None:
    response = ask(REASSIGNMENTS, 0, ListPartitionReassignmentsRequest())
    assert (response.error_code, response.topics) == (OK, [])
