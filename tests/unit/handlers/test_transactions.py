"""Requests of transactions through their bytes; codes by version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio.testing

from pyrklog.errors import ErrorCode
from pyrklog.groups.messages import FetchedOffset
from pyrklog.groups.options import GroupOptions, GroupSettings
from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from pyrklog.groups.requests import GroupCoordinator
from pyrklog.handlers.service import TopicInfo
from pyrklog.plane.internal_log import ActiveProducer
from pyrklog.protocol.coordinators import FindCoordinatorRequest
from pyrklog.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pyrklog.protocol.producer_ids import InitProducerIdRequest
from pyrklog.protocol.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from pyrklog.protocol.transaction_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pyrklog.protocol.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsTopic,
    AddPartitionsToTxnRequest,
    AddPartitionsTransaction,
    EndTxnRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pyrklog.testing.fake_offsets import FakeTopic
from pyrklog.testing.fake_plane import FakePlane
from tests.unit.handlers.fake_service import FakeService, ask
from tests.unit.transactions.rig import FIRST_PRODUCER_ID as PID
from tests.unit.transactions.rig import Rig, lead, running, wall_ms

FIND, INIT, ADD, OFFSETS, END, MARKERS, COMMIT = 10, 22, 24, 25, 26, 27, 28
FETCH, PRODUCERS, DESCRIBE, LIST = 9, 61, 65, 66
NONE = ErrorCode.NONE
Clock = trio.testing.MockClock


class Side:
    """Handlers over both coordinators and one plane."""

    def __init__(self, rig: Rig, groups: GroupCoordinator, topic: FakeTopic) -> None:
        """``topic`` is the groups'."""
        self.rig = rig
        self.groups = groups
        self.topic = topic
        topics = [TopicInfo("t", b"t" * 16, 2, False), TopicInfo(OFFSETS_TOPIC, b"o" * 16, 1, True)]
        self.service = FakeService(topics=topics)

    async def ask(self, key: int, version: int, message: Any) -> Any:
        return await ask(
            self.service, key, version, message, self.groups, transactions=self.rig.parts
        )

    async def begin(self, name: str = "x") -> int:
        """Returns the epoch."""
        while True:
            answer = await self.ask(INIT, 4, InitProducerIdRequest(name))
            if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                assert answer.error_code == NONE
                return int(answer.producer_epoch)
            await trio.sleep(0.01)

    async def add(self, version: int, epoch: int, *partitions: int, pid: int = PID) -> list[int]:
        topics = [AddPartitionsTopic("t", list(partitions))]
        if version >= 4:
            one = AddPartitionsTransaction("x", pid, epoch, topics=topics)
            answer = await self.ask(ADD, version, AddPartitionsToTxnRequest([one]))
            [found] = answer.results_by_transaction
            [topic] = found.topic_results
        else:
            request = AddPartitionsToTxnRequest([], "x", pid, epoch, topics)
            answer = await self.ask(ADD, version, request)
            [topic] = answer.results_by_topic_v3_and_below
        return [one.partition_error_code for one in topic.results_by_partition]

    async def commit_offset(self, version: int, epoch: int, offset: int = 5, **more: Any) -> int:
        partition = TxnOffsetCommitRequestPartition(0, offset)
        topics = [TxnOffsetCommitRequestTopic("t", [partition])]
        request = TxnOffsetCommitRequest("x", "g", PID, epoch, topics=topics, **more)
        answer = await self.ask(COMMIT, version, request)
        return int(answer.topics[0].partitions[0].error_code)

    async def fetched(self, *, require_stable: bool) -> FetchedOffset:
        topics = [OffsetFetchRequestTopic("t", [0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup("g", topics=topics)], require_stable=require_stable
        )
        answer = await self.ask(FETCH, 8, request)
        [one] = answer.groups[0].topics[0].partitions
        return FetchedOffset(ErrorCode(one.error_code), one.committed_offset)


@asynccontextmanager
async def serving() -> AsyncIterator[Side]:
    plane = FakePlane()
    lead(plane, OFFSETS_TOPIC, 1)
    topic = FakeTopic(1, {0: 0})
    groups = GroupCoordinator(
        GroupSettings(), GroupOptions(), plane, topic, wall_ms=wall_ms, fresh_id=lambda: "id"
    )
    async with running(plane) as rig, trio.open_nursery() as nursery:
        rig.parts.writer.on_offsets_ended = groups.transaction_completed
        await nursery.start(groups.run)
        await groups.changes.wait_until(lambda: bool(groups.manager.partitions()))
        await groups.changes.wait_until(lambda: not groups.manager.is_loading)
        yield Side(rig, groups, topic)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [0, 3, 4, 6])
async def test_the_coordinator_of_a_transactional_id_is_found(
    autojump_clock: Clock, version: int
) -> None:
    async with serving() as side:
        keys = ["x", "y"] if version >= 4 else []
        request = FindCoordinatorRequest("x" if version < 4 else "", 1, keys)
        if version == 0:
            request = FindCoordinatorRequest("x")  # of a group: version 0 has no type
        answer = await side.ask(FIND, version, request)
        found = answer.coordinators if version >= 4 else [answer]
        assert [one.error_code for one in found] == [NONE] * len(found)
        assert {one.node_id for one in found} == {1}


async def test_a_missing_topic_is_created_first(autojump_clock: Clock) -> None:
    async with serving() as side:
        topic = side.rig.topic
        topic.resign(0)
        topic.count = None
        answer = await side.ask(FIND, 3, FindCoordinatorRequest("x", 1))
        assert answer.error_code == NONE
        assert topic.created == 1


async def test_an_unknown_kind_of_coordinator_is_refused() -> None:
    answer = await ask(FakeService(), FIND, 3, FindCoordinatorRequest("x", 2))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (InitProducerIdRequest(""), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("x", producer_id=5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("x", 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("x", 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
async def test_bad_initializations(
    autojump_clock: Clock, request_: InitProducerIdRequest, error: ErrorCode
) -> None:
    async with serving() as side:
        assert (await side.ask(INIT, 4, request_)).error_code == error


@pytest.mark.parametrize(
    ("version", "error"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)],
)
async def test_a_fenced_producer_hears_it_in_its_versions_words(
    autojump_clock: Clock, version: int, error: ErrorCode
) -> None:
    async with serving() as side:
        await side.begin()
        await side.begin()
        request = InitProducerIdRequest("x", producer_id=PID, producer_epoch=0)
        # The epoch before is that of another producer.
        assert (await side.ask(INIT, version, request)).error_code == error


@pytest.mark.parametrize("version", range(6))
async def test_add_partitions_and_end(autojump_clock: Clock, version: int) -> None:
    async with serving() as side:
        epoch = await side.begin()
        assert await side.add(version, epoch, 0, 1) == [NONE, NONE]
        stale = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
        assert await side.add(version, epoch + 1, 0) == [stale]
        answer = await side.ask(END, version, EndTxnRequest("x", PID, epoch, True))
        assert answer.error_code == NONE
        if version >= 5:
            assert (answer.producer_id, answer.producer_epoch) == (PID, epoch + 1)
        await side.rig.reaches("CompleteCommit")
        late = await side.ask(END, version, EndTxnRequest("x", PID, epoch - 1, True))
        assert late.error_code == stale
        other = await side.ask(END, version, EndTxnRequest("x", PID + 9, epoch, True))
        assert other.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [3, 5])
async def test_nothing_is_added_with_an_unknown_partition(
    autojump_clock: Clock, version: int
) -> None:
    async with serving() as side:
        epoch = await side.begin()
        assert await side.add(version, epoch, 0, 2) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert side.rig.state() == "Empty"


async def test_clients_add_no_partition_of_an_internal_topic(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        topics = [AddPartitionsTopic(OFFSETS_TOPIC, [0, 7]), AddPartitionsTopic("t", [0, 9])]
        request = AddPartitionsToTxnRequest([], "x", PID, epoch, topics)
        answer = await side.ask(ADD, 3, request)
        internal, other = answer.results_by_topic_v3_and_below
        codes = [one.partition_error_code for one in internal.results_by_partition]
        assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
        codes = [one.partition_error_code for one in other.results_by_partition]
        assert codes == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert side.rig.state() == "Empty"
        # Brokers add the partition of a group's offsets.
        one = AddPartitionsTransaction("x", PID, epoch, topics=topics[:1])
        one.topics[0].partitions.remove(7)
        answer = await side.ask(ADD, 4, AddPartitionsToTxnRequest([one]))
        [topic] = answer.results_by_transaction[0].topic_results
        assert [one.partition_error_code for one in topic.results_by_partition] == [NONE]


async def test_a_question_with_an_unknown_partition_is_not_answered_for_the_others(
    autojump_clock: Clock,
) -> None:
    async with serving() as side:
        epoch = await side.begin()
        await side.add(3, epoch, 0)
        one = AddPartitionsTransaction("x", PID, epoch, True, [AddPartitionsTopic("t", [0, 2])])
        answer = await side.ask(ADD, 5, AddPartitionsToTxnRequest([one]))
        [topic] = answer.results_by_transaction[0].topic_results
        assert [one.partition_error_code for one in topic.results_by_partition] == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


@pytest.mark.parametrize(
    ("version", "missing"),
    [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)],
)
async def test_brokers_only_ask_about_partitions(
    autojump_clock: Clock, version: int, missing: ErrorCode
) -> None:
    async with serving() as side:
        epoch = await side.begin()
        await side.add(3, epoch, 0)
        topics = [AddPartitionsTopic("t", [0, 1])]
        one = AddPartitionsTransaction("x", PID, epoch, True, topics)
        answer = await side.ask(ADD, version, AddPartitionsToTxnRequest([one, one]))
        for found in answer.results_by_transaction:
            codes = [
                one.partition_error_code for one in found.topic_results[0].results_by_partition
            ]
            assert codes == [NONE, missing]


async def test_offsets_of_a_transaction_count_with_its_marker(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        request = AddOffsetsToTxnRequest("x", PID, epoch, "g")
        assert (await side.ask(OFFSETS, 3, request)).error_code == NONE
        assert await side.commit_offset(3, epoch) == NONE
        assert (await side.fetched(require_stable=False)).offset == -1
        unstable = await side.fetched(require_stable=True)
        assert unstable.error is ErrorCode.UNSTABLE_OFFSET_COMMIT
        await side.ask(END, 3, EndTxnRequest("x", PID, epoch, True))
        await side.rig.reaches("CompleteCommit")
        assert await side.fetched(require_stable=True) == FetchedOffset(NONE, 5)


async def test_add_offsets_adds_the_partition_that_has_the_group(autojump_clock: Clock) -> None:
    """Somebody else has enlarged the topic since the groups were loaded."""
    async with serving() as side:
        side.topic.count = 7
        side.topic.changes.notify()
        epoch = await side.begin()
        assert partition_for("g", 7) != 0
        request = AddOffsetsToTxnRequest("x", PID, epoch, "g")
        assert (await side.ask(OFFSETS, 3, request)).error_code == NONE
        added = side.rig.coordinator.manager.ids["x"].metadata.partitions
        assert added == {(OFFSETS_TOPIC, 0)}
        assert await side.commit_offset(3, epoch) == NONE


async def test_offsets_that_were_not_announced_are_refused(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        assert await side.commit_offset(3, epoch) == ErrorCode.INVALID_TXN_STATE
        assert await side.commit_offset(4, epoch) == ErrorCode.TRANSACTION_ABORTABLE
        assert await side.commit_offset(3, epoch + 1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await side.fetched(require_stable=True)).offset == -1


async def test_unannounced_offsets_pass_where_verification_is_off(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        side.rig.plane.set_transaction_verification(is_on=False)
        assert await side.commit_offset(4, epoch) == NONE
        assert await side.commit_offset(5, epoch + 1) == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_old_clients_do_not_hear_of_a_load(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        await side.ask(OFFSETS, 3, AddOffsetsToTxnRequest("x", PID, epoch, "g"))
        side.groups.manager._partitions[0] = side.groups.manager._partitions[0]._replace(
            is_loading=True
        )
        assert await side.commit_offset(1, epoch) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await side.commit_offset(2, epoch) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_add_offsets_creates_the_offsets_topic() -> None:
    plane = FakePlane()
    topic = FakeTopic(None, {})
    groups = GroupCoordinator(
        GroupSettings(), GroupOptions(), plane, topic, wall_ms=wall_ms, fresh_id=lambda: "id"
    )
    async with running(plane) as rig, trio.open_nursery() as nursery:
        await nursery.start(groups.run)
        side = Side(rig, groups, topic)
        epoch = await side.begin()
        request = AddOffsetsToTxnRequest("x", PID, epoch, "g")
        assert (await side.ask(OFFSETS, 3, request)).error_code == NONE
        assert topic.created == 1
        nursery.cancel_scope.cancel()


async def test_version_5_adds_the_groups_partition_itself(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        assert await side.commit_offset(5, epoch, 7) == NONE
        described = side.rig.coordinator.manager.describe("x")
        assert described.partitions == {OFFSETS_TOPIC: [0]}
        answer = await side.ask(END, 5, EndTxnRequest("x", PID, epoch, False))
        await side.rig.reaches("CompleteAbort")
        assert (await side.fetched(require_stable=True)).offset == -1
        late = await side.commit_offset(5, epoch, 8)
        assert late == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await side.commit_offset(5, answer.producer_epoch, 9) == NONE


async def test_a_wrong_generation_is_refused(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        await side.ask(OFFSETS, 3, AddOffsetsToTxnRequest("x", PID, epoch, "g"))
        code = await side.commit_offset(3, epoch, generation_id=4, member_id="m")
        assert code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
        assert side.rig.plane.transactions.guard_count() == 0


async def test_a_refused_commit_leaves_no_guard(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        assert await side.commit_offset(3, epoch) == ErrorCode.INVALID_TXN_STATE
        assert side.rig.plane.transactions.guard_count() == 0


async def test_offsets_of_unknown_partitions_are_refused(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        topics = [TxnOffsetCommitRequestTopic("u", [TxnOffsetCommitRequestPartition(0, 1)])]
        request = TxnOffsetCommitRequest("x", "g", PID, epoch, topics=topics)
        answer = await side.ask(COMMIT, 5, request)
        [one] = answer.topics[0].partitions
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [1, 2])
async def test_markers_are_written_for_other_coordinators(
    autojump_clock: Clock, version: int
) -> None:
    async with serving() as side:
        topics = [WritableTxnMarkerTopic("t", [1, 0]), WritableTxnMarkerTopic("u", [0])]
        marker = WritableTxnMarker(5, 1, False, topics, 3, 2)
        answer = await side.ask(MARKERS, version, WriteTxnMarkersRequest([marker]))
        [found] = answer.markers
        codes = [[one.error_code for one in topic.partitions] for topic in found.topics]
        assert codes == [[NONE, NONE], [ErrorCode.NOT_LEADER_OR_FOLLOWER]]
        written = side.rig.plane.transactions.markers
        assert [one.partition for one in written] == [1, 0]
        assert {one.transaction_version for one in written} == {2 if version == 2 else 0}


async def test_a_marker_that_is_named_again_is_written_once(autojump_clock: Clock) -> None:
    async with serving() as side:
        topics = [WritableTxnMarkerTopic("t", [1, 1]), WritableTxnMarkerTopic("t", [1])]
        marker = WritableTxnMarker(5, 1, False, topics, 3, 2)
        answer = await side.ask(MARKERS, 1, WriteTxnMarkersRequest([marker]))
        [found] = answer.markers
        codes = [[one.error_code for one in topic.partitions] for topic in found.topics]
        assert codes == [[NONE, NONE], [NONE]]
        assert len(side.rig.plane.transactions.markers) == 1


async def test_a_marker_without_a_producer_is_not_written(autojump_clock: Clock) -> None:
    async with serving() as side:
        topics = [WritableTxnMarkerTopic("t", [0])]
        markers = [
            WritableTxnMarker(producer_id, epoch, False, topics, 3)
            for producer_id, epoch in ((-1, -1), (5, -1), (-1, 0), (5, 0))
        ]
        answer = await side.ask(MARKERS, 1, WriteTxnMarkersRequest(markers))
        codes = [one.topics[0].partitions[0].error_code for one in answer.markers]
        assert codes == [*[ErrorCode.INVALID_REQUEST] * 3, NONE]
        written = side.rig.plane.transactions.markers
        assert [(one.producer_id, one.producer_epoch) for one in written] == [(5, 0)]


async def test_no_markers_are_no_work(autojump_clock: Clock) -> None:
    async with serving() as side:
        assert (await side.ask(MARKERS, 1, WriteTxnMarkersRequest([]))).markers == []


async def test_transactions_are_described_and_listed(autojump_clock: Clock) -> None:
    async with serving() as side:
        epoch = await side.begin()
        await side.add(3, epoch, 1, 0)
        asked = DescribeTransactionsRequest(["x", "y", "", "x"])
        answer = await side.ask(DESCRIBE, 0, asked)
        one, unknown, empty = answer.transaction_states
        assert (one.error_code, one.transaction_state, one.producer_id) == (NONE, "Ongoing", PID)
        assert [(topic.topic, topic.partitions) for topic in one.topics] == [("t", [0, 1])]
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST
        listed = await side.ask(LIST, 1, ListTransactionsRequest(["Ongoing", "Odd"]))
        assert listed.unknown_state_filters == ["Odd"]
        [found] = listed.transaction_states
        assert (found.transactional_id, found.transaction_state) == ("x", "Ongoing")


async def test_producers_of_a_partition_are_described(autojump_clock: Clock) -> None:
    async with serving() as side:
        known = [ActiveProducer(5, 1, 8, 1000, 3, 40), ActiveProducer(6, 0, -1, 900, -1, -1)]
        side.rig.plane.transactions.producers["t", 0] = known
        topics = [DescribeProducersTopic("t", [0, 1, 2])]
        answer = await side.ask(PRODUCERS, 0, DescribeProducersRequest(topics))
        first, second, unknown = answer.topics[0].partitions
        ids = [(one.producer_id, one.current_txn_start_offset) for one in first.active_producers]
        assert ids == [(5, 40), (6, -1)]
        assert (second.error_code, second.active_producers) == (NONE, [])
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("key", [ADD, OFFSETS, END, COMMIT])
async def test_a_broker_that_coordinates_nothing_refuses(autojump_clock: Clock, key: int) -> None:
    messages: dict[int, Any] = {
        ADD: AddPartitionsToTxnRequest([], "x", 1, 0, [AddPartitionsTopic("t", [0])]),
        OFFSETS: AddOffsetsToTxnRequest("x", 1, 0, "g"),
        END: EndTxnRequest("x", 1, 0, True),
        COMMIT: TxnOffsetCommitRequest(
            "x",
            "g",
            1,
            0,
            topics=[TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 1)])],
        ),
    }
    async with serving() as side:
        answer = await ask(side.service, key, 3, messages[key])
    match key:
        case 24:
            [one] = answer.results_by_topic_v3_and_below[0].results_by_partition
            code = one.partition_error_code
        case 28:
            [one] = answer.topics[0].partitions
            code = one.error_code
        case _:
            code = answer.error_code
    assert code == ErrorCode.NOT_COORDINATOR
