"""The broker's side of control requests, with a fake plane."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplica,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicPartition,
    UpdateMetadataRequest,
)
from pyrklog.config.load import load_config
from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.inter_broker import PartitionInfo, TopicPartitions
from pyrklog.replication.driver import ReplicationDriver
from pyrklog.start.identity import create_paths
from pyrklog.testing.fake_plane import FakePlane

BROKERS = [BrokerImage(1, None, [("PLAINTEXT", "here", 9092)])]


def topic(name: str, *epochs: int, leader: int = 1, topic_id: bytes = b"1" * 16) -> TopicPartitions:
    infos = [
        PartitionInfo(p, 1, leader, epoch, (1,), 0, (1,), (), (), (), False, 0)
        for p, epoch in enumerate(epochs)
    ]
    return TopicPartitions(name, topic_id, infos)


class Bench:
    def __init__(self, session: EmbeddedSession) -> None:
        self.session = session
        self.plane = FakePlane()
        self.metadata = Metadata(1, load_config(), session, self.plane)
        self.driver = ReplicationDriver(1, self.metadata, self.plane)
        self.answers: dict[int, ControlResponse] = {}
        self._asked = 0
        self._answered = trio.Event()

    def post(self, request: ControlRequest) -> int:
        self._asked += 1
        number = self._asked

        def answered(response: ControlResponse) -> None:
            self.answers[number] = response
            self._answered.set()
            self._answered = trio.Event()

        self.driver.post(request, answered)
        return number

    async def answer(self, number: int) -> ControlResponse:
        with trio.fail_after(10):
            while number not in self.answers:
                await self._answered.wait()
        return self.answers[number]

    async def ask(self, request: ControlRequest) -> ControlResponse:
        return await self.answer(self.post(request))

    async def lead(self, *topics: TopicPartitions) -> ControlResponse:
        return await self.ask(LeaderAndIsrRequest(1, 1, -1, topics))

    async def metadata_of(self, *topics: TopicPartitions) -> ControlResponse:
        return await self.ask(UpdateMetadataRequest(1, 1, -1, topics, BROKERS))


@pytest.fixture
async def bench(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Bench]:
    store = await open_store(tmp_path / "meta")
    session = store.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    under_test = Bench(session)
    nursery.start_soon(under_test.driver.run)
    under_test.driver.registered(7)
    yield under_test
    await store.close()


async def test_orders_wait_until_the_broker_is_registered(bench: Bench) -> None:
    """A new process must not obey requests to its predecessor, whose own requests to the controller
    may still be under way."""
    fresh = Bench(bench.session)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fresh.driver.run)
        old = fresh.post(LeaderAndIsrRequest(1, 1, 5, [topic("t", 0)]))
        own = fresh.post(LeaderAndIsrRequest(1, 1, 7, [topic("t", 0)]))
        await trio.testing.wait_all_tasks_blocked()
        assert not fresh.answers
        assert not fresh.plane.led
        fresh.driver.registered(7)
        assert await fresh.answer(old) == LeaderAndIsrResponse(ErrorCode.STALE_BROKER_EPOCH, {})
        done = {("t", 0): ErrorCode.NONE}
        assert await fresh.answer(own) == LeaderAndIsrResponse(ErrorCode.NONE, done)
        nursery.cancel_scope.cancel()


async def test_metadata_for_the_registration_tells_a_broker(bench: Bench) -> None:
    async def tell(broker_epoch: int) -> bool:
        await bench.ask(UpdateMetadataRequest(1, 1, broker_epoch, [topic("t", 0)], BROKERS))
        return bench.driver.replicas.is_told

    assert await tell(7)
    bench.driver.registered(8)
    assert not bench.driver.replicas.is_told, "until a controller knows the registration"
    assert not await tell(7), "it is refused"
    assert await tell(8)


async def test_metadata_then_leadership(bench: Bench) -> None:
    assert await bench.metadata_of(topic("t", 0, 0)) is ErrorCode.NONE
    assert [b.id for b in bench.plane.deltas[-1].brokers] == [1]
    response = await bench.lead(topic("t", 0, 0))
    done = {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.NONE}
    assert response == LeaderAndIsrResponse(ErrorCode.NONE, done)
    assert set(bench.plane.led) == {("t", 0), ("t", 1)}
    assert bench.driver.replicas.is_serving(("t", 1))


async def test_failure_of_an_earlier_topic_of_the_name_has_no_effect(bench: Bench) -> None:
    await bench.lead(topic("t", 0))
    bench.driver.partition_failed(("t", 0), b"2" * 16)
    assert bench.driver.replicas.is_serving(("t", 0))
    bench.driver.partition_failed(("t", 0), b"1" * 16)
    assert not bench.driver.replicas.is_serving(("t", 0))


async def test_leadership_before_metadata(bench: Bench) -> None:
    """Kafka's controllers send a new topic's leadership first."""
    await bench.lead(topic("t", 0))
    assert ("t", 0) in bench.plane.led


async def test_a_topics_options_are_there_before_it_is_led(bench: Bench) -> None:
    await bench.session.create(
        znodes.topic_config_path("t"), znodes.encode_config({"retention.ms": "5"})
    )
    await bench.lead(topic("t", 0))
    assert bench.plane.topics["t"].log.retention_ms == 5


async def test_slow_log_does_not_hold_up_the_next_control_request(bench: Bench) -> None:
    bench.plane.hold_tickets()
    slow = bench.post(LeaderAndIsrRequest(1, 1, -1, [topic("slow", 0)]))
    assert await bench.metadata_of(topic("other", 0, topic_id=b"2" * 16)) is ErrorCode.NONE
    assert "other" in bench.plane.topics
    assert slow not in bench.answers
    bench.plane.release_tickets()
    assert isinstance(await bench.answer(slow), LeaderAndIsrResponse)


async def test_errors_of_the_data_plane_are_answered(bench: Bench) -> None:
    bench.plane.failing[("t", 1)] = ErrorCode.KAFKA_STORAGE_ERROR
    response = await bench.lead(topic("t", 0, 0))
    assert response == LeaderAndIsrResponse(
        ErrorCode.NONE, {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.KAFKA_STORAGE_ERROR}
    )


async def test_stale_orders_do_not_touch_the_image(bench: Bench) -> None:
    await bench.lead(topic("t", 5))
    response = await bench.lead(topic("t", 4, leader=-1))
    assert isinstance(response, LeaderAndIsrResponse)
    assert response.errors == {("t", 0): ErrorCode.STALE_CONTROLLER_EPOCH}
    assert bench.plane.partition("t", 0).leader_epoch == 5
    old = LeaderAndIsrRequest(1, 0, -1, [topic("t", 9)])
    assert await bench.ask(old) == LeaderAndIsrResponse(ErrorCode.STALE_CONTROLLER_EPOCH, {})
    stale = UpdateMetadataRequest(1, 0, -1, [topic("t", 9)], BROKERS)
    assert await bench.ask(stale) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert bench.plane.partition("t", 0).leader_epoch == 5


async def test_losing_leadership_stops_serving(bench: Bench) -> None:
    await bench.lead(topic("t", 0))
    await bench.lead(topic("t", 1, leader=-1))
    assert list(bench.plane.followed) == [("t", 0)]
    assert not bench.plane.led
    assert not bench.driver.replicas.is_serving(("t", 0))


async def test_deletion_and_a_new_topic_of_the_same_name(bench: Bench) -> None:
    """The new topic has a leader only once the old one's folders are gone."""
    await bench.metadata_of(topic("t", 0))
    await bench.lead(topic("t", 0))
    assert await bench.metadata_of(topic("t", 0, leader=-2)) is ErrorCode.NONE
    assert "t" not in bench.plane.topics
    bench.plane.hold_tickets()
    stop = bench.post(StopReplicaRequest(1, 1, -1, [StopReplica("t", 0, -2, True)]))
    again = bench.post(LeaderAndIsrRequest(1, 1, -1, [topic("t", 0, topic_id=b"2" * 16)]))
    await trio.testing.wait_all_tasks_blocked()
    assert not bench.answers.keys() & {stop, again}
    bench.plane.release_tickets()
    assert await bench.answer(stop) == StopReplicaResponse(
        ErrorCode.NONE, {("t", 0): ErrorCode.NONE}
    )
    await bench.answer(again)
    assert bench.plane.stopped == [("t", 0, True)]
    assert ("t", 0) in bench.plane.led
    assert bench.plane.topics["t"].id == b"2" * 16


async def test_a_partition_that_has_moved_away_is_closed_and_kept(bench: Bench) -> None:
    await bench.metadata_of(topic("t", 0, 0))
    await bench.lead(topic("t", 0, 0))
    (away, stays) = topic("t", 1, 1).partitions
    away = replace(away, leader=2, replicas=(2,))
    moved = TopicPartitions("t", b"1" * 16, [away, stays])
    assert await bench.metadata_of(moved) is ErrorCode.NONE
    await trio.testing.wait_all_tasks_blocked()
    assert bench.plane.stopped == [("t", 0, False)]
    assert bench.driver.replicas.is_serving(("t", 1))


async def test_stop_replica_of_a_missing_partition_succeeds(bench: Bench) -> None:
    bench.plane.failing[("t", 0)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = await bench.ask(StopReplicaRequest(1, 1, -1, [StopReplica("t", 0, -2, True)]))
    assert response == StopReplicaResponse(ErrorCode.NONE, {("t", 0): ErrorCode.NONE})


# --- deletions that went unheard -----------------------------------------------------------------

OTHER_ID = b"2" * 16


def full(number: int, *topics: TopicPartitions, epoch: int = 1) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(1, epoch, -1, topics, BROKERS, number, is_full=True)


def numbered(number: int, *topics: TopicPartitions, epoch: int = 1) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(1, epoch, -1, topics, BROKERS, number)


@pytest.fixture
def deleted(bench: Bench) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []

    def announce(partitions: Sequence[TopicPartition]) -> None:
        assert all(name in bench.metadata.image.topics for name, _ in partitions), "too late"
        found.extend(partitions)

    bench.metadata.on_partitions_deleted = announce
    return found


async def test_full_update_metadata_deletes_topics_it_does_not_name(
    bench: Bench, deleted: list[tuple[str, int]]
) -> None:
    await bench.metadata_of(topic("t", 0, 0), topic("kept", 0, topic_id=OTHER_ID))
    await bench.ask(full(1, topic("kept", 0, topic_id=OTHER_ID)))
    assert set(bench.plane.topics) == {"kept"}
    assert deleted == [("t", 0), ("t", 1)]


async def test_partial_update_metadata_deletes_nothing(
    bench: Bench, deleted: list[tuple[str, int]]
) -> None:
    await bench.metadata_of(topic("t", 0))
    await bench.metadata_of(topic("other", 0, topic_id=OTHER_ID))
    assert set(bench.plane.topics) == {"t", "other"}
    assert deleted == []


async def test_a_topic_that_is_named_without_partitions_stays(
    bench: Bench, deleted: list[tuple[str, int]]
) -> None:
    await bench.metadata_of(topic("t", 0))
    await bench.ask(full(1, topic("t")))
    assert "t" in bench.plane.topics
    assert deleted == []


@pytest.mark.parametrize("leader", [None, -2])
async def test_full_update_with_another_topic_id_deletes_the_old_topic(
    bench: Bench, deleted: list[tuple[str, int]], leader: int | None
) -> None:
    await bench.metadata_of(topic("t", 0))
    named = (
        topic("t", topic_id=OTHER_ID)
        if leader is None
        else topic("t", 0, leader=leader, topic_id=OTHER_ID)
    )
    await bench.ask(full(1, named))
    assert "t" not in bench.plane.topics
    assert deleted == [("t", 0)]


async def test_recreated_topic_is_deleted_before_it_is_created(
    bench: Bench, deleted: list[tuple[str, int]]
) -> None:
    """Its options are the new topic's."""
    await bench.metadata_of(topic("t", 0, 0))
    await bench.session.create(
        znodes.topic_config_path("t"), znodes.encode_config({"retention.ms": "5"})
    )
    await bench.ask(full(1, topic("t", 0, topic_id=OTHER_ID)))
    assert deleted == [("t", 0), ("t", 1)]
    assert bench.plane.topics["t"].id == OTHER_ID
    assert len(bench.plane.topics["t"].partitions) == 1
    assert bench.plane.topics["t"].log.retention_ms == 5


async def test_late_full_update_metadata_deletes_nothing(
    bench: Bench, deleted: list[tuple[str, int]]
) -> None:
    """The repeated request does not know the topic created in between."""
    await bench.ask(full(1))
    await bench.ask(numbered(2, topic("t", 0)))
    assert await bench.ask(full(1)) is ErrorCode.NONE
    assert "t" in bench.plane.topics
    await bench.ask(full(3))
    assert "t" not in bench.plane.topics
    assert deleted == [("t", 0)]


async def test_late_update_metadata_changes_neither_leaders_nor_brokers(bench: Bench) -> None:
    old = numbered(1, topic("t", 0))
    await bench.ask(old)
    later = [*BROKERS, BrokerImage(2, None, [("PLAINTEXT", "there", 9092)])]
    await bench.ask(numbered(2, topic("t", 1, leader=2))._replace(brokers=later))
    for _ in range(2):
        assert await bench.ask(old) is ErrorCode.NONE
        (told,) = bench.plane.topics["t"].partitions
        assert (told.leader, told.leader_epoch) == (2, 1)
        assert bench.metadata.image.brokers == later
    # The same request again has no further effect.
    await bench.ask(numbered(2, topic("t", 1, leader=2))._replace(brokers=later))
    assert bench.metadata.image.brokers == later


async def test_message_numbers_start_again_at_a_new_registration(bench: Bench) -> None:
    """A store restored from a copy repeats epochs."""
    await bench.ask(numbered(9, topic("t", 0)))
    bench.driver.registered(8)
    await bench.ask(numbered(1, topic("t", 1, leader=2)))
    (told,) = bench.plane.topics["t"].partitions
    assert told.leader == 2


async def test_message_numbers_start_again_with_each_controller(bench: Bench) -> None:
    await bench.ask(full(3, topic("t", 0)))
    await bench.ask(full(1, epoch=2))
    assert "t" not in bench.plane.topics
    await bench.ask(full(4, topic("t", 0)))
    assert "t" not in bench.plane.topics, "of the controller before"


async def test_late_leader_and_isr_does_not_revive_a_deleted_topic(
    bench: Bench, deleted: list[tuple[str, int]]
) -> None:
    await bench.metadata_of(topic("t", 0))
    await bench.metadata_of(topic("t", 0, leader=-2))
    await bench.metadata_of(topic("t", 0))
    assert "t" not in bench.plane.topics
    await bench.metadata_of(topic("t", 0, topic_id=OTHER_ID))
    await bench.metadata_of(topic("t", 0))
    await bench.lead(topic("t", 7))
    assert bench.plane.topics["t"].id == OTHER_ID
    assert deleted == [("t", 0)], "the offsets of the new one stay"


async def test_partitions_may_be_deleted_one_after_another(
    bench: Bench, deleted: list[tuple[str, int]]
) -> None:
    """A controller reports an ISR change while the topic waits for its deletion."""
    await bench.metadata_of(topic("t", 0, 0))
    (first, _) = topic("t", 0, 0, leader=-2).partitions
    await bench.metadata_of(TopicPartitions("t", b"1" * 16, [first]))
    await bench.metadata_of(topic("t", 0, 0, leader=-2))
    assert "t" not in bench.plane.topics
    assert set(deleted) == {("t", 0), ("t", 1)}


async def test_remembered_leaders_are_dropped_with_their_topic(bench: Bench) -> None:
    cluster_of_several = load_config(overrides=["zookeeper.connect=host:2181"])
    bench.metadata._told = Metadata(1, cluster_of_several, bench.session, bench.plane)._told
    await bench.metadata_of(topic("t", 0), topic("kept", 0, topic_id=OTHER_ID))
    await bench.ask(full(1, topic("kept", topic_id=OTHER_ID)))
    assert [told.topic for told in bench.metadata.told()] == ["kept"]
