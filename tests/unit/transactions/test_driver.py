"""The transaction coordinator over a plane in memory."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.base.logs import Logger
from pyrklog.coordinators.calls import PeerUnreachableError
from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import partition_for
from pyrklog.plane.internal_log import Marker
from pyrklog.plane.values import LeaderSpec
from pyrklog.protocol.api import Api
from pyrklog.protocol.transactions import (
    AddPartitionsPartitionResult,
    AddPartitionsResult,
    AddPartitionsTopicResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pyrklog.testing.fake_plane import FakePlane
from pyrklog.transactions.driver import ENLARGED, EXAMPLES_MAX, FENCED_RETRY_SECONDS
from pyrklog.transactions.holds import HOLD_SECONDS
from pyrklog.transactions.manager import (
    ID_BYTES,
    PARTITIONS_RESERVED,
    TRANSACTION_TOPIC,
    TransactionFilter,
)
from pyrklog.transactions.marking.sender import MISSING_SECONDS
from pyrklog.transactions.messages import ProducerEpoch, ProducerResult
from pyrklog.transactions.options import TransactionOptions
from tests.unit.transactions.rig import FIRST_PRODUCER_ID, T0, T1, FakeLeaders, Rig, lead, running

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
PID = FIRST_PRODUCER_ID
Clock = trio.testing.MockClock


async def test_a_transaction_is_decided_marked_and_completed(autojump_clock: Clock) -> None:
    async with running() as rig:
        assert await rig.init() == ProducerResult(NONE, PID, 0)
        producer = ProducerEpoch(PID, 0)
        assert await rig.add(producer, T0, T1) is NONE
        assert await rig.end(producer) == ProducerResult(NONE, PID, 0)
        await rig.reaches("CompleteCommit")
        assert rig.plane.transactions.markers == [
            Marker("t", index, PID, 0, 0, True, 0) for index in (0, 1)
        ]
        assert rig.coordinator.manager.describe("x").partitions == {}


async def test_ids_are_independent(autojump_clock: Clock) -> None:
    async with running() as rig:
        one, other = await rig.begun("a"), await rig.begun("b")
        assert one.id != other.id
        assert await rig.add(one, T0, name="a") is NONE
        assert await rig.end(other, name="b", commit=False) == ProducerResult(
            ErrorCode.INVALID_TXN_STATE
        )
        assert rig.state("a") == "Ongoing"
        assert await rig.add(one, T0, name="b") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_nothing_is_marked_before_the_decision_is_replicated(autojump_clock: Clock) -> None:
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        log = rig.plane.internal_log(TRANSACTION_TOPIC)
        log.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.end, producer)
            await trio.testing.wait_all_tasks_blocked()
            assert len(log.records(0)) == 3, "the decision is in the log"
            assert rig.plane.transactions.markers == []
            assert await rig.add(producer, T1) is CONCURRENT
            log.release()
        await rig.reaches("CompleteCommit")


async def test_a_request_waits_for_an_id_that_changes(autojump_clock: Clock) -> None:
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        failing = rig.plane.transactions.failing
        failing[T0] = ErrorCode.NOT_ENOUGH_REPLICAS
        await rig.end(producer)
        answers: list[ProducerResult] = []

        async def init_again() -> None:
            answers.append(await rig.init())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(init_again)
            await trio.sleep(HOLD_SECONDS / 2)
            assert answers == []
            del failing[T0]
        assert answers == [ProducerResult(NONE, PID, 1)]


@pytest.mark.parametrize("is_reloaded", [True, False])
async def test_a_waiting_request_is_answered_at_last(
    autojump_clock: Clock, is_reloaded: bool
) -> None:
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        rig.plane.transactions.failing[T0] = ErrorCode.NOT_ENOUGH_REPLICAS
        await rig.end(producer)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.coordinator.wait_until_settled, "x")
            await trio.testing.wait_all_tasks_blocked()
            if is_reloaded:
                rig.topic.resign(0)
        assert trio.current_time() - began == (0 if is_reloaded else HOLD_SECONDS)


async def test_nobody_waits_for_an_id_whose_end_takes_long(autojump_clock: Clock) -> None:
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        rig.plane.transactions.failing[T0] = ErrorCode.NOT_ENOUGH_REPLICAS
        await rig.end(producer)
        await rig.coordinator.wait_until_settled("x")
        await trio.sleep(HOLD_SECONDS / 100)
        assert rig.coordinator.hold("x") is None
        assert (await rig.init()).error is CONCURRENT


async def test_nothing_is_complete_while_a_marker_is_missing(autojump_clock: Clock) -> None:
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0, T1)
        failing = rig.plane.transactions.failing
        failing[T1] = ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await rig.end(producer)).error is NONE
        await trio.sleep(60)
        assert rig.state() == "PrepareCommit"
        assert (await rig.init()).error is CONCURRENT
        del failing[T1]
        await rig.reaches("CompleteCommit")
        written = [marker.partition for marker in rig.plane.transactions.markers]
        assert written.count(0) == 1, "only what is missing is tried again"


async def test_a_deleted_partition_needs_no_marker(autojump_clock: Clock) -> None:
    async with running() as rig:
        leaders = rig.coordinator.markers._leaders
        assert isinstance(leaders, FakeLeaders)
        producer = await rig.begun()
        await rig.add(producer, T0, T1)
        leaders.gone.add(T1)
        began = trio.current_time()
        await rig.end(producer)
        await rig.reaches("CompleteCommit")
        assert trio.current_time() - began >= MISSING_SECONDS, "the metadata may only be late"


async def test_a_partition_that_was_heard_to_be_deleted_is_not_waited_for(
    autojump_clock: Clock,
) -> None:
    async with running() as rig:
        markers = rig.coordinator.markers
        leaders = markers._leaders
        assert isinstance(leaders, FakeLeaders)
        producer = await rig.begun()
        markers.note_deleted([T0])
        await rig.add(producer, T0, T1)
        markers.note_deleted([T1])
        leaders.gone.update([T0, T1])
        await rig.end(producer)
        await trio.sleep(MISSING_SECONDS / 2)
        described = rig.coordinator.manager.describe("x")
        assert described.state == "PrepareCommit"
        assert described.partitions == {"t": [0]}, "it was added after a deletion: not yet known"
        await rig.reaches("CompleteCommit")


@pytest.mark.parametrize("is_decided", [True, False])
async def test_the_next_coordinator_carries_out_what_was_decided(
    autojump_clock: Clock, is_decided: bool
) -> None:
    plane = FakePlane()
    async with running(plane) as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        if is_decided:
            plane.transactions.failing[T0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            await rig.end(producer, commit=False)
    plane.transactions.failing.clear()
    plane.transactions.markers.clear()
    async with running(plane, epoch=4) as rig:
        if is_decided:
            await rig.reaches("CompleteAbort")
            assert plane.transactions.markers == [Marker("t", 0, PID, 0, 4, False, 0)]
        else:
            assert rig.state() == "Ongoing"
            assert (await rig.end(producer)).error is NONE
            await rig.reaches("CompleteCommit")


async def test_a_loaded_decision_is_carried_out_once_it_is_replicated(
    autojump_clock: Clock,
) -> None:
    """The log of a new leader may end with what other replicas lack."""
    plane = FakePlane()
    async with running(plane) as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        plane.transactions.failing[T0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await rig.end(producer)
        await trio.testing.wait_all_tasks_blocked()
        plane.transactions.failing.clear()
        plane.transactions.markers.clear()
        log = plane.internal_log(TRANSACTION_TOPIC)
        log.failing += [ErrorCode.NOT_ENOUGH_REPLICAS] * 20
        rig.topic.lead(0, epoch=1)
        lead(plane, TRANSACTION_TOPIC, 1, epoch=1)
        await trio.sleep(5)
        assert plane.transactions.markers == []
        assert await rig.add(producer, T0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await rig.reaches("CompleteCommit")


async def test_a_coordinator_that_has_moved_refuses_and_leaves_off(autojump_clock: Clock) -> None:
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        rig.plane.transactions.failing[T0] = ErrorCode.NOT_ENOUGH_REPLICAS
        await rig.end(producer)
        rig.topic.resign(0)
        await rig.loaded()
        assert await rig.add(producer, T0) is ErrorCode.NOT_COORDINATOR
        assert (await rig.end(producer)).error is ErrorCode.NOT_COORDINATOR
        tried = len(rig.plane.transactions.markers)
        await trio.sleep(60)
        assert len(rig.plane.transactions.markers) == tried
        assert rig.coordinator.manager.ids == {}
        assert rig.coordinator.manager.memory_pool.used_bytes == 0


async def test_a_coordinator_that_learns_of_a_newer_one_hardly_marks_any_more(
    autojump_clock: Clock,
) -> None:
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        failing = rig.plane.transactions.failing
        failing[T0] = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        await rig.end(producer)
        await trio.sleep(FENCED_RETRY_SECONDS - 1)
        assert len(rig.plane.transactions.markers) == 1
        assert rig.state() == "PrepareCommit"
        del failing[T0]
        await rig.reaches("CompleteCommit")


async def test_who_waits_for_an_append_hears_of_the_move(autojump_clock: Clock) -> None:
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        rig.plane.internal_log(TRANSACTION_TOPIC).hold()
        results: list[ProducerResult] = []

        async def end() -> None:
            results.append(await rig.end(producer))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            await trio.testing.wait_all_tasks_blocked()
            rig.topic.resign(0)
        assert results == [ProducerResult(ErrorCode.NOT_COORDINATOR)]


async def test_after_an_append_of_unknown_end_the_log_decides(autojump_clock: Clock) -> None:
    """Here it is not in the log: the client may still abort."""
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        log = rig.plane.internal_log(TRANSACTION_TOPIC)
        log.failing.append(ErrorCode.REQUEST_TIMED_OUT)
        assert (await rig.end(producer)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        refused = (await rig.end(producer, commit=False)).error
        assert refused in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        )
        await rig.loaded()
        assert rig.state() == "Ongoing"
        assert (await rig.end(producer, commit=False)).error is NONE
        await rig.reaches("CompleteAbort")


async def test_a_transaction_that_lasts_too_long_is_aborted(autojump_clock: Clock) -> None:
    async with running() as rig:
        producer = await rig.begun()
        await rig.add(producer, T0)
        await rig.reaches("CompleteAbort")
        [marker] = rig.plane.transactions.markers
        assert (marker.producer_epoch, marker.is_commit) == (1, False)
        assert (await rig.end(producer)).error is ErrorCode.PRODUCER_FENCED
        assert await rig.begun() == ProducerEpoch(PID, 2)


async def test_an_idle_id_is_forgotten_with_a_tombstone(autojump_clock: Clock) -> None:
    options = TransactionOptions(expiration_ms=3_000_000, expired_interval_ms=1_000_000)
    plane = FakePlane()
    async with running(plane, options) as rig:
        await rig.begun()
        await trio.sleep(5000)
        assert rig.coordinator.manager.ids == {}
        assert rig.coordinator.manager.memory_pool.used_bytes == 0
        assert plane.internal_log(TRANSACTION_TOPIC).records(0)[-1].value is None
        described = rig.coordinator.manager.describe("x")
        assert described.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    async with running(plane, options) as rig:
        assert rig.coordinator.manager.ids == {}


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_time_outs_have_bounds(autojump_clock: Clock, timeout_ms: int) -> None:
    async with running() as rig:
        result = await rig.init(timeout_ms=timeout_ms)
        assert result.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_memory_is_bounded(autojump_clock: Clock) -> None:
    options = TransactionOptions(memory_max_bytes=20 * ID_BYTES)
    plane = FakePlane()
    full = ErrorCode.COORDINATOR_NOT_AVAILABLE
    async with running(plane, options) as rig:
        producer = await rig.begun(host="1.2.3.4")
        results = [await rig.init(f"x-{number}", host="1.2.3.4") for number in range(20)]
        assert {one.error for one in results} == {NONE, full}
        assert (await rig.init("another", host="5.6.7.8")).error is NONE, "others have the rest"
        assert (await rig.init("y" * 32_000, host="5.6.7.8")).error is full
        many = [("t", index) for index in range(100)]
        assert await rig.add(producer, *many) is full
        few = [("t", index) for index in range(PARTITIONS_RESERVED)]
        assert await rig.add(producer, *few) is NONE, "a known id has a transaction"
        held = rig.coordinator.manager.memory_pool.used_bytes
    async with running(plane, options) as rig:
        pool = rig.coordinator.manager.memory_pool
        assert pool.used_bytes == held
        assert pool.of_host("1.2.3.4") == 0, "what was loaded is nobody's"
        assert (await rig.init("yet another", host="1.2.3.4")).error is NONE


async def test_who_initializes_an_id_pays_for_it(autojump_clock: Clock) -> None:
    async with running() as rig:
        await rig.begun(host="1.2.3.4")
        pool = rig.coordinator.manager.memory_pool
        taken = pool.of_host("1.2.3.4")
        assert taken > 0
        await rig.begun(host="5.6.7.8")
        assert (pool.of_host("1.2.3.4"), pool.of_host("5.6.7.8")) == (0, taken)


async def test_damaged_records_cost_no_other_id(autojump_clock: Clock) -> None:
    plane = FakePlane()
    async with running(plane) as rig:
        await rig.begun("a")
        await rig.begun("b")
    log = plane.internal_log(TRANSACTION_TOPIC)
    [first, *_] = log.batches[0]
    log.batches[0][0] = first._replace(
        records=[one._replace(value=b"\0\0short") for one in first.records]
    )
    async with running(plane) as rig:
        assert list(rig.coordinator.manager.ids) == ["b"]


async def test_ids_of_other_partitions_are_left_out_and_told_of(
    autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has enlarged the topic."""
    told: list[tuple[str, Any]] = []
    monkeypatch.setattr(Logger, "warning", lambda _, event, **fields: told.append((event, fields)))
    names = [f"id-{number}" for number in range(12)]
    plane = FakePlane()
    async with running(plane) as rig:
        for name in names:
            await rig.begun(name)
    here = [name for name in names if partition_for(name, 3) == 0]
    async with running(plane, count=3) as rig:
        assert sorted(rig.coordinator.manager.ids) == sorted(here)
    assert 0 < len(here) < len(names)
    left_out = [name for name in names if name not in here]
    [(event, fields)] = told
    assert (event, fields["partition"]) == ("transactional_ids_displaced", 0)
    assert (fields["count"], fields["reason"]) == (len(left_out), ENLARGED)
    assert len(fields["examples"]) == EXAMPLES_MAX
    assert set(fields["examples"]) <= set(left_out)


async def test_list_filters(autojump_clock: Clock) -> None:
    async with running() as rig:
        one, other = await rig.begun("a"), await rig.begun("b")
        await rig.add(one, T0, name="a")
        manager, now = rig.coordinator.manager, rig.coordinator.now_ms()

        def names(
            states: list[str], ids: list[int], duration_ms: int, later_ms: int = 0
        ) -> list[str]:
            wanted = TransactionFilter(frozenset(states), frozenset(ids), duration_ms)
            found = manager.list_ids(wanted, now + later_ms)
            return [item.transactional_id for item in found if item is not None]

        assert names([], [], -1) == ["a", "b"]
        assert names(["Ongoing"], [], -1) == ["a"]
        assert names(["Empty", "nonsense"], [], -1) == ["b"]
        assert names(["nonsense"], [], -1) == []
        assert names([], [other.id], -1) == ["b"]
        assert names([], [], 1000) == []
        assert names([], [], 1000, later_ms=1001) == ["a"]
        odd = TransactionFilter(frozenset({"nonsense", "Empty"}), frozenset(), -1)
        assert odd.unknown_states == ["nonsense"]


# --- other brokers -------------------------------------------------------------------------------


class FakeCalls:
    """Another broker, which answers each partition with the next of ``codes``, then with NONE."""

    def __init__(self, *codes: ErrorCode | None) -> None:
        """None: it cannot be reached."""
        self.codes = list(codes)
        self.asked: list[tuple[int, int, Any]] = []

    async def call(self, broker: int, api: Api[Any, Any], version: int, message: Any) -> Any:
        await trio.lowlevel.checkpoint()
        message = api.decode_request(api.encode_request(message, version), version)
        self.asked.append((broker, version, message))
        code = self.codes.pop(0) if self.codes else NONE
        if code is None:
            raise PeerUnreachableError("refused")
        if isinstance(message, WriteTxnMarkersRequest):
            return _marked(message, code)
        return _added(message, code)


def _marked(message: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        [
            WritableTxnMarkerResult(
                one.producer_id,
                [
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        [
                            WritableTxnMarkerPartitionResult(i, code)
                            for i in topic.partition_indexes
                        ],
                    )
                    for topic in one.topics
                ],
            )
            for one in message.markers
        ]
    )


def _added(message: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsResult(
                one.transactional_id,
                [
                    AddPartitionsTopicResult(
                        topic.name,
                        [AddPartitionsPartitionResult(i, code) for i in topic.partitions],
                    )
                    for topic in one.topics
                ],
            )
            for one in message.transactions
        ]
    )


OF_ANOTHER = ("u", 0)


def _leads_elsewhere(rig: Rig) -> None:
    leaders = rig.coordinator.markers._leaders
    assert isinstance(leaders, FakeLeaders)
    leaders.others[OF_ANOTHER] = 2


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("failure", [None, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_markers_of_other_leaders_are_sent_until_they_are_written(
    autojump_clock: Clock, failure: ErrorCode | None, version: int
) -> None:
    calls = FakeCalls(failure, failure)
    async with running(calls=calls) as rig:
        _leads_elsewhere(rig)
        producer = await rig.begun()
        await rig.add(producer, T0, OF_ANOTHER, version=version)
        await rig.end(producer, version=version)
        await rig.reaches("CompleteCommit")
        assert [broker for broker, _, _ in calls.asked] == [2, 2, 2]
        assert {used for _, used, _ in calls.asked} == {2 if version == 2 else 1}
        assert len(rig.plane.transactions.markers) == 1


async def test_a_leader_with_a_newer_epoch_needs_no_marker(autojump_clock: Clock) -> None:
    async with running(calls=FakeCalls(ErrorCode.INVALID_PRODUCER_EPOCH)) as rig:
        _leads_elsewhere(rig)
        producer = await rig.begun()
        await rig.add(producer, OF_ANOTHER)
        await rig.end(producer)
        await rig.reaches("CompleteCommit")


async def test_first_batches_are_verified_here(autojump_clock: Clock) -> None:
    async with running() as rig:
        producer = await rig.begun()
        verify = rig.parts.verifier.verify
        await rig.add(producer, T0)
        assert await verify("x", producer, [T0, T1], enrols=False) == [
            NONE,
            ErrorCode.TRANSACTION_ABORTABLE,
        ]
        assert await verify("x", producer, [T0, T1], enrols=True) == [NONE, NONE]
        assert await verify("x", producer, [T1], enrols=False) == [NONE]
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await verify("y", producer, [T0], enrols=False) == [unknown]


@pytest.mark.parametrize("enrols", [True, False])
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (NONE, NONE),
        (CONCURRENT, CONCURRENT),
        (None, ErrorCode.NETWORK_EXCEPTION),
    ],
)
async def test_first_batches_are_verified_by_another_coordinator(
    autojump_clock: Clock, answer: ErrorCode | None, code: ErrorCode, enrols: bool
) -> None:
    calls = FakeCalls(answer)
    async with running(calls=calls) as rig:
        coordinator = rig.coordinator
        endpoint = coordinator.coordinator_endpoint("x", "PLAINTEXT")
        assert endpoint is not None
        rig.topic.leader_endpoint = (  # type: ignore[method-assign]
            lambda partition, listener: endpoint._replace(node_id=2)
        )
        found = await rig.parts.verifier.verify("x", ProducerEpoch(5, 1), [T0, T1], enrols=enrols)
        assert found == [code, code]
        [(broker, version, message)] = calls.asked
        assert (broker, version) == (2, 5)
        assert message.transactions[0].verify_only is not enrols


async def test_without_a_coordinator_nothing_is_verified(autojump_clock: Clock) -> None:
    async with running() as rig:
        rig.topic.count = None
        found = await rig.parts.verifier.verify("x", ProducerEpoch(5, 1), [T0], enrols=False)
        assert found == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


async def test_a_marker_of_offsets_tells_the_groups(autojump_clock: Clock) -> None:
    async with running() as rig:
        told: list[tuple[int, int, int, bool]] = []
        rig.parts.writer.on_offsets_ended = lambda *marker: told.append(marker)
        key = ("__consumer_offsets", 3)
        rig.plane.led[key] = LeaderSpec(*key, 0, [1], [1], False)
        producer = await rig.begun()
        await rig.add(producer, T0, key)
        await rig.end(producer)
        await rig.reaches("CompleteCommit")
        assert told == [(PID, 3, 0, True)]
