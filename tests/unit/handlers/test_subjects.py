"""DeleteRecords, DescribeLogDirs, DescribeCluster, InitProducerId, DescribeTopicPartitions."""

import pytest

from pyrklog.cluster.topic_pages import PagedTopic, TopicPage
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import (
    ClusterBroker,
    ClusterDescription,
    DeletedRecords,
    DeleteRecordsTarget,
)
from pyrklog.plane.seam import LogDirUsage
from pyrklog.plane.values import PartitionImage
from pyrklog.protocol.cluster import DescribeClusterRequest
from pyrklog.protocol.coordinators import FindCoordinatorRequest
from pyrklog.protocol.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from pyrklog.protocol.producer_ids import InitProducerIdRequest
from pyrklog.protocol.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyrklog.protocol.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tests.unit.handlers.fake_service import FakeService, ask

COORDINATOR, RECORDS, PRODUCER_ID, CLUSTER, PARTITIONS = 10, 21, 22, 60, 75
ALTER_LOG_DIRS, LOG_DIRS = 34, 35


async def test_records_are_deleted_and_results_grouped_by_topic() -> None:
    done = [
        DeletedRecords("a", 0, ErrorCode.NONE, 5),
        DeletedRecords("a", 1, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        DeletedRecords("b", 0, ErrorCode.NONE, 9),
    ]
    fake = FakeService(delete_records=done)
    topics = [
        DeleteRecordsTopic("a", [DeleteRecordsPartition(0, 2), DeleteRecordsPartition(1, 7)]),
        DeleteRecordsTopic("b", [DeleteRecordsPartition(0, -1)]),
        DeleteRecordsTopic("a", [DeleteRecordsPartition(0, 5)]),
    ]
    response = await ask(fake, RECORDS, 2, DeleteRecordsRequest(topics, 33))
    assert fake.asked("delete_records") == [
        DeleteRecordsTarget("a", 0, 5),
        DeleteRecordsTarget("a", 1, 7),
        DeleteRecordsTarget("b", 0, -1),
    ]
    shown = {
        topic.name: [(p.partition_index, p.low_watermark, p.error_code) for p in topic.partitions]
        for topic in response.topics
    }
    assert shown == {"a": [(0, 5, 0), (1, -1, 1)], "b": [(0, 9, 0)]}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_replicas_move_between_log_directories(version: int) -> None:
    """The last directory of a partition counts."""
    request = AlterReplicaLogDirsRequest(
        [
            AlterReplicaLogDir("/d1", [AlterReplicaLogDirTopic("a", [0, 1])]),
            AlterReplicaLogDir("/d2", [AlterReplicaLogDirTopic("b", [0])]),
            AlterReplicaLogDir("/d3", [AlterReplicaLogDirTopic("a", [0])]),
        ]
    )
    fake = FakeService(alter_log_dirs=[0, 57, 9])
    response = await ask(fake, ALTER_LOG_DIRS, version, request)
    assert fake.asked("alter_log_dirs") == [("a", 0, "/d3"), ("a", 1, "/d1"), ("b", 0, "/d2")]
    shown = {
        topic.topic_name: [(p.partition_index, p.error_code) for p in topic.partitions]
        for topic in response.results
    }
    assert shown == {"a": [(0, 0), (1, 57)], "b": [(0, 9)]}


@pytest.mark.parametrize(
    ("topics", "wanted"),
    [(None, None), ([], []), ([DescribableLogDirTopic("a", [0, 1])], [("a", [0, 1])])],
)
async def test_log_directories_are_described(
    topics: list[DescribableLogDirTopic] | None, wanted: object
) -> None:
    partitions = [
        ("a", 0, 10, 0, False),
        ("b", 0, 5, 0, False),
        ("a", 1, 20, 1, True),
    ]
    infos = [
        LogDirUsage("/d1", ErrorCode.NONE, 100, 40, partitions),
        LogDirUsage("/d2", ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, []),
    ]
    fake = FakeService(describe_log_dirs=infos)
    response = await ask(fake, LOG_DIRS, 4, DescribeLogDirsRequest(topics))
    assert fake.asked("describe_log_dirs") == wanted
    first, second = response.results
    shown = {
        topic.name: [
            (p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
            for p in topic.partitions
        ]
        for topic in first.topics
    }
    assert shown == {"a": [(0, 10, 0, False), (1, 20, 1, True)], "b": [(0, 5, 0, False)]}
    assert (first.log_dir, first.error_code, first.total_bytes, first.usable_bytes) == (
        "/d1",
        0,
        100,
        40,
    )
    assert (second.log_dir, second.error_code, second.topics) == ("/d2", 56, [])


async def test_the_cluster_is_described_for_the_listener_that_was_asked() -> None:
    brokers = [ClusterBroker(1, "a", 9092, "r1"), ClusterBroker(2, "b", 9093, None)]
    fake = FakeService(describe_cluster=ClusterDescription("id", 2, brokers))
    response = await ask(fake, CLUSTER, 1, DescribeClusterRequest(True))
    assert fake.asked("describe_cluster") == "PLAINTEXT"
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, "id", 2)
    shown = [(b.broker_id, b.host, b.port, b.rack) for b in response.brokers]
    assert shown == [(1, "a", 9092, "r1"), (2, "b", 9093, None)]
    # KIP-430: CREATE 5, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9, both CONFIGS 10, 11, IDEMPOTENT 12.
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000


async def test_operations_are_left_out_unless_asked_for() -> None:
    response = await ask(FakeService(), CLUSTER, 0, DescribeClusterRequest())
    assert response.cluster_authorized_operations == -(2**31)


async def test_dead_controller_is_not_named() -> None:
    brokers = [ClusterBroker(1, "a", 9092, None)]
    fake = FakeService(describe_cluster=ClusterDescription("id", 7, brokers))
    response = await ask(fake, CLUSTER, 1, DescribeClusterRequest())
    assert response.controller_id == -1


@pytest.mark.parametrize(("endpoint", "code"), [(2, 114), (0, 115), (9, 115)])
async def test_controller_endpoints_are_elsewhere(endpoint: int, code: int) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint)
    response = await ask(FakeService(), CLUSTER, 1, request)
    assert (response.error_code, response.brokers) == (code, [])


@pytest.mark.parametrize("version", range(6))
async def test_an_idempotent_producer_gets_a_new_id_and_epoch_0(version: int) -> None:
    request = InitProducerIdRequest(None, 2**31 - 1, producer_id=17, producer_epoch=3)
    response = await ask(FakeService(next_producer_id=4711), PRODUCER_ID, version, request)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 4711, 0)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest(""), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(producer_id=4), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(producer_epoch=4), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_other_producers_are_refused_for_good(
    request_: InitProducerIdRequest, code: ErrorCode
) -> None:
    fake = FakeService()
    response = await ask(fake, PRODUCER_ID, 5, request_)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)
    assert not code.retriable
    assert fake.calls == []


async def test_producer_gets_a_retriable_error_when_the_store_is_away() -> None:
    fake = FakeService(next_producer_id=ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    response = await ask(fake, PRODUCER_ID, 4, InitProducerIdRequest())
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_without_a_coordinator_each_key_gets_the_code() -> None:
    key_type, code = 2, ErrorCode.INVALID_REQUEST
    one = FindCoordinatorRequest("g", key_type)
    old = await ask(FakeService(), COORDINATOR, 3, one)
    assert (old.error_code, old.node_id, old.host, old.port) == (code, -1, "", -1)
    assert old.error_message
    several = FindCoordinatorRequest("", key_type, ["g", "h"])
    new = await ask(FakeService(), COORDINATOR, 6, several)
    assert [(c.key, c.node_id, c.error_code) for c in new.coordinators] == [
        ("g", -1, code),
        ("h", -1, code),
    ]


async def test_a_page_of_topics_and_where_the_next_one_begins() -> None:
    partition = PartitionImage(4, 2, 9, (2, 1), (2,), (1,))
    topics = [
        PagedTopic("__consumer_offsets", ErrorCode.NONE, b"i" * 16, [partition]),
        PagedTopic("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    fake = FakeService(topic_page=TopicPage(topics, ("t", 5)))
    request = DescribeTopicPartitionsRequest([], 7, Cursor("__consumer_offsets", 4))
    response = await ask(fake, PARTITIONS, 0, request)
    ((_, arguments, _),) = fake.calls
    assert arguments == (None, ("__consumer_offsets", 4), 7, "PLAINTEXT")
    known, unknown = response.topics
    assert (known.error_code, known.name, known.topic_id, known.is_internal) == (
        0,
        "__consumer_offsets",
        b"i" * 16,
        True,
    )
    (shown,) = known.partitions
    assert (shown.error_code, shown.partition_index, shown.leader_id, shown.leader_epoch) == (
        0,
        4,
        2,
        9,
    )
    assert (shown.replica_nodes, shown.isr_nodes, shown.offline_replicas) == ([2, 1], [2], [1])
    assert (shown.eligible_leader_replicas, shown.last_known_elr) == ([], [])
    assert (unknown.error_code, unknown.topic_id, unknown.partitions) == (3, bytes(16), [])
    # KIP-430: READ 3 to DESCRIBE 8, and both CONFIGS, 10 and 11.
    assert known.topic_authorized_operations == 0b1101_1111_1000
    assert response.next_cursor == Cursor("t", 5)


@pytest.mark.parametrize("cursor", [Cursor("a", -1), Cursor("c", 0)])
async def test_a_wrong_cursor_is_refused_for_each_topic(cursor: Cursor) -> None:
    topics = [TopicRequest("a"), TopicRequest("b")]
    request = DescribeTopicPartitionsRequest(topics, cursor=cursor)
    response = await ask(FakeService(), PARTITIONS, 0, request)
    refused = [(topic.name, topic.error_code) for topic in response.topics]
    assert refused == [("a", ErrorCode.INVALID_REQUEST), ("b", ErrorCode.INVALID_REQUEST)]
    assert response.next_cursor is None
