"""Topics through ``ClusterService``, over a whole broker with a fake plane."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from pyrklog.admin.service import Administration
from pyrklog.cluster.requests import NO_TOPIC_ID
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import DeleteRecordsTarget, PartitionsSpec, TopicRef, TopicSpec
from pyrklog.metastore import znodes
from tests.unit.broker.harness import Running, running_broker


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with running_broker(tmp_path) as broker:
        yield broker


async def test_a_created_topic_is_served_when_the_answer_comes(running: Running) -> None:
    result = await running.created("t", 3, segment_bytes="1000")
    assert (result.partition_count, result.replication_factor) == (3, 1)
    assert result.topic_id == running.plane.topics["t"].id != NO_TOPIC_ID
    assert {entry.name: entry.value for entry in result.configs}["segment.bytes"] == "1000"
    assert {("t", p) for p in range(3)} == set(running.plane.led)
    info = running.service.topic("t")
    assert info is not None
    assert (info.partition_count, info.internal) == (3, False)
    assert running.service.topics() == [info]
    assert running.service.topic("none") is None


async def test_create_topics_refuses_bad_topics_and_creates_the_others(running: Running) -> None:
    results = await running.create(
        TopicSpec("good"), TopicSpec("bad/name"), TopicSpec("twice"), TopicSpec("twice")
    )
    assert [result.error for result in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [info.name for info in running.service.topics()] == ["good"]


async def test_names_collide_within_one_request_too(running: Running) -> None:
    results = await running.create(TopicSpec("a.b"), TopicSpec("a_b"))
    assert [result.error for result in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


async def test_an_existing_topic(running: Running) -> None:
    await running.created("t")
    (result,) = await running.create(TopicSpec("t"))
    assert result.error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert result.message == "Topic 't' already exists."


async def test_validation_creates_nothing(running: Running) -> None:
    (result,) = await running.service.create_topics(
        [TopicSpec("t", 2)], validate_only=True, timeout_ms=1000
    )
    assert (result.error, result.partition_count) == (ErrorCode.NONE, 2)
    assert result.topic_id == NO_TOPIC_ID
    assert running.service.topics() == []


async def test_a_slow_plane_times_out_but_creates(running: Running) -> None:
    running.plane.hold_tickets()
    (result,) = await running.create(TopicSpec("t"), timeout_ms=50)
    assert result.error is ErrorCode.REQUEST_TIMED_OUT
    (result,) = await running.create(TopicSpec("u"), timeout_ms=0)
    assert result.error is ErrorCode.REQUEST_TIMED_OUT
    running.plane.release_tickets()
    await running.plane.wait_until(lambda: len(running.plane.led) == 2)


async def test_deletion_by_name_and_by_id(running: Running) -> None:
    first, second = await running.created("first"), await running.created("second")
    results = await running.service.delete_topics(
        [
            TopicRef("first"),
            TopicRef(None, second.topic_id),
            TopicRef("none"),
            TopicRef(None, b"?" * 16),
        ],
        timeout_ms=10_000,
    )
    assert [(r.name, r.topic_id, r.error) for r in results] == [
        ("first", first.topic_id, ErrorCode.NONE),
        ("second", second.topic_id, ErrorCode.NONE),
        ("none", NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert running.plane.topics == {}
    assert sorted(running.plane.stopped) == [("first", 0, True), ("second", 0, True)]


async def test_a_topic_given_by_name_and_by_id_stays(running: Running) -> None:
    first, second = await running.created("first"), await running.created("second")
    refs = [TopicRef("first"), TopicRef(None, first.topic_id), TopicRef(None, second.topic_id)]
    results = await running.service.delete_topics(refs, timeout_ms=10_000)
    assert [(r.name, r.topic_id, r.error) for r in results] == [
        ("first", first.topic_id, ErrorCode.INVALID_REQUEST),
        ("second", second.topic_id, ErrorCode.NONE),
    ]
    assert set(running.plane.topics) == {"first"}


async def test_a_deletion_that_takes_long(running: Running) -> None:
    await running.created("t")
    running.plane.hold_tickets()
    (result,) = await running.service.delete_topics([TopicRef("t")], timeout_ms=50)
    assert result.error is ErrorCode.NONE, "clients see it no more"
    # The name is taken until the folders are gone.
    (again,) = await running.create(TopicSpec("t"), timeout_ms=50)
    (checked,) = await running.service.create_topics(
        [TopicSpec("t")], validate_only=True, timeout_ms=1000
    )
    for refused in (again, checked):
        assert refused.error is ErrorCode.TOPIC_ALREADY_EXISTS
        assert refused.message == "Topic 't' is marked for deletion."
    running.plane.release_tickets()


async def test_deletion_may_be_turned_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "delete.topic.enable=false") as running:
        await running.created("t")
        (result,) = await running.service.delete_topics([TopicRef("t")], timeout_ms=1000)
        assert result.error is ErrorCode.TOPIC_DELETION_DISABLED


async def test_partitions_are_added(running: Running) -> None:
    await running.created("t", 2)
    results = await running.service.create_partitions(
        [
            PartitionsSpec("t", 5),
            PartitionsSpec("none", 2),
            PartitionsSpec("u", 2),
            PartitionsSpec("u", 3),
            *(PartitionsSpec(name, 2) for name in ("", ".", "a//b", "\0")),
        ],
        validate_only=False,
        timeout_ms=10_000,
    )
    assert [result.error for result in results] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        *([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 4),
    ]
    assert set(running.plane.led) == {("t", p) for p in range(5)}
    (fewer,) = await running.service.create_partitions(
        [PartitionsSpec("t", 4)], validate_only=False, timeout_ms=1000
    )
    assert fewer.error is ErrorCode.INVALID_PARTITIONS
    (tried,) = await running.service.create_partitions(
        [PartitionsSpec("t", 9)], validate_only=True, timeout_ms=1000
    )
    assert tried.error is ErrorCode.NONE
    assert len(running.plane.topics["t"].partitions) == 5


@pytest.mark.parametrize("validate_only", [False, True])
async def test_internal_topics_keep_their_partitions(running: Running, validate_only: bool) -> None:
    """A group's partition follows from its name and their number."""
    assert isinstance(running.service, Administration)
    for name in ("__consumer_offsets", "__transaction_state"):
        made = await running.service.create_own_topic(TopicSpec(name, 3), timeout_ms=10_000)
        assert made.error is ErrorCode.NONE
        (fewer, more) = [
            (
                await running.service.create_partitions(
                    [PartitionsSpec(name, total)], validate_only=validate_only, timeout_ms=1000
                )
            )[0]
            for total in (2, 7)
        ]
        assert fewer.error is ErrorCode.INVALID_PARTITIONS
        assert more.error is ErrorCode.INVALID_REQUEST
        assert len(running.plane.topics[name].partitions) == 3


async def test_enlargements_at_the_same_time(running: Running) -> None:
    """Each request sees what the others left: it enlarges the topic, or comes too late."""
    await running.created("t", 1)
    errors: list[ErrorCode] = []

    async def enlarge(total: int) -> None:
        (result,) = await running.service.create_partitions(
            [PartitionsSpec("t", total)], validate_only=False, timeout_ms=10_000
        )
        errors.append(result.error)

    async with trio.open_nursery() as nursery:
        for total in range(2, 10):
            nursery.start_soon(enlarge, total)
    assert set(errors) <= {ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS}
    assert len(running.plane.topics["t"].partitions) == 9


async def test_records_are_deleted_where_that_is_allowed(running: Running) -> None:
    await running.created("t")
    await running.created("u")
    await running.created("compacted", cleanup_policy="compact")
    targets = [
        DeleteRecordsTarget("t", 0, 5),
        DeleteRecordsTarget("t", 1, 5),
        DeleteRecordsTarget("u", 0, -2),
        DeleteRecordsTarget("compacted", 0, 5),
        DeleteRecordsTarget("none", 0, 5),
    ]
    results = await running.service.delete_records(targets, timeout_ms=1000, host="h")
    assert [(r.error, r.low_watermark) for r in results] == [
        (ErrorCode.NONE, 5),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (ErrorCode.POLICY_VIOLATION, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert running.plane.deleted_records == [("t", 0, 5)]


async def test_log_directories(running: Running) -> None:
    await running.created("t", 2)
    (everything,) = await running.service.describe_log_dirs(None)
    assert [p[:2] for p in everything.partitions] == [("t", 0), ("t", 1)]
    (some,) = await running.service.describe_log_dirs([("t", [1]), ("none", [0])])
    assert [p[:2] for p in some.partitions] == [("t", 1)]
    (nothing,) = await running.service.describe_log_dirs([])
    assert (nothing.partitions, nothing.total_bytes) == ([], 1000)


async def test_a_thousand_topics_at_once(running: Running) -> None:
    results = await running.create(*(TopicSpec(f"t{i}", 2) for i in range(1000)), timeout_ms=60_000)
    assert {result.error for result in results} == {ErrorCode.NONE}
    assert len(running.plane.led) == 2000


async def test_a_replica_that_cannot_be_deleted_is_not_waited_for(running: Running) -> None:
    for name in ("stuck", "fast"):
        await running.created(name)
    running.plane.failing["stuck", 0] = ErrorCode.KAFKA_STORAGE_ERROR
    began = trio.current_time()
    results = await running.service.delete_topics(
        [TopicRef("stuck"), TopicRef("fast")], timeout_ms=600_000
    )
    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.NONE]
    assert trio.current_time() - began < 300
    assert running.plane.topics == {}
    (again,) = await running.create(TopicSpec("stuck"))
    assert again.error is ErrorCode.TOPIC_ALREADY_EXISTS
    (enlarged,) = await running.service.create_partitions(
        [PartitionsSpec("stuck", 5)], validate_only=False, timeout_ms=1000
    )
    assert enlarged.error is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_internal_and_illegal_names_are_not_auto_created(running: Running) -> None:
    names = ["__cluster_metadata", "__consumer_offsets", "a b", "new"]
    errors = await running.service.auto_create_topics(names)
    assert errors == {
        "__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert set(running.plane.topics) == {"new"}


async def test_a_partition_that_never_had_a_leader_is_shown_with_its_replicas(
    running: Running,
) -> None:
    assert isinstance(running.service, Administration)
    store = running.service._topics._store
    replicas = {0: (9, 8), 1: (1,)}
    topic = znodes.TopicAssignment(b"t" * 16, replicas, {}, {})
    await store.create(znodes.topic_path("t"), znodes.encode_topic(topic))
    with trio.fail_after(10):
        await running.plane.wait_until(lambda: "t" in running.plane.topics)
    first, second = running.plane.topics["t"].partitions
    assert (first.leader, first.replicas, first.isr, first.offline) == (-1, (9, 8), (), (9, 8))
    assert (second.leader, second.replicas) == (1, (1,))


async def test_topic_changes_of_a_former_controller_fail_with_not_controller(
    running: Running,
) -> None:
    """The request was under way when another broker was elected."""
    await running.created("t")
    assert isinstance(running.service, Administration)
    store = running.service._metadata._store
    await store.set(znodes.CONTROLLER_EPOCH, b"99")
    (created,) = await running.create(TopicSpec("u"))
    (enlarged,) = await running.service.create_partitions(
        [PartitionsSpec("t", 2)], validate_only=False, timeout_ms=1000
    )
    (deleted,) = await running.service.delete_topics([TopicRef("t")], timeout_ms=1000)
    assert [created.error, enlarged.error, deleted.error] == [ErrorCode.NOT_CONTROLLER] * 3
    assert await store.exists(znodes.topic_path("u")) is None
    assert await store.exists(znodes.delete_topic_path("t")) is None
