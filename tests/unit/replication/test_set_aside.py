"""A control request that a broker cannot carry out must not block the others."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
import trio.testing

from pyrklog.cluster.requests import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplica,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from pyrklog.errors import ErrorCode
from pyrklog.metastore import znodes
from pyrklog.metastore.embedded import EmbeddedSession, open_store
from pyrklog.metastore.interface import Node, StoreFailedError, Watch
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol.inter_broker import TopicPartitions
from pyrklog.start.identity import create_paths
from tests.unit.replication.test_driver import BROKERS, Bench, topic

OTHER_ID = b"2" * 16
NO_PORT = BrokerImage(2, None, [("PLAINTEXT", "there", 70_000)])


class Failing:
    def __init__(self, session: EmbeddedSession) -> None:
        self.failures: list[Exception] = []
        self._session = session

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    async def get_many(self, paths: list[str], watch: Watch | None = None) -> list[Node | None]:
        if self.failures:
            raise self.failures.pop()
        return await self._session.get_many(paths, watch)


@pytest.fixture
async def failing(tmp_path: Path) -> AsyncIterator[Failing]:
    store = await open_store(tmp_path / "meta")
    session = store.session()
    await create_paths(session, znodes.PERSISTENT_PATHS)
    yield Failing(session)
    await store.close()


@pytest.fixture
async def bench(failing: Failing, nursery: trio.Nursery) -> Bench:
    under_test = Bench(failing)  # type: ignore[arg-type]
    nursery.start_soon(under_test.driver.run)
    under_test.driver.registered(7)
    return under_test


def metadata(brokers: list[BrokerImage], *topics: TopicPartitions) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(1, 1, -1, topics, brokers)


async def test_broker_without_a_port_in_metadata_is_set_aside(bench: Bench) -> None:
    await bench.metadata_of(topic("t", 0))
    told = metadata([*BROKERS, NO_PORT], topic("u", 0, topic_id=OTHER_ID))
    await bench.ask(told)
    assert set(bench.plane.topics) == {"t", "u"}, "the rest of the message counts"
    assert bench.plane.deltas[-1].brokers == BROKERS, "as before"
    later = [*BROKERS, NO_PORT._replace(endpoints=[("PLAINTEXT", "there", 7000)])]
    assert await bench.ask(metadata(later)) is ErrorCode.NONE
    assert bench.plane.deltas[-1].brokers == later


async def test_the_first_message_may_be_the_bad_one(bench: Bench) -> None:
    await bench.ask(metadata([NO_PORT], topic("t", 0)))
    assert set(bench.plane.topics) == {"t"}
    await bench.metadata_of(topic("t", 1))
    assert bench.plane.deltas[-1].brokers == BROKERS


async def test_later_topic_with_a_used_id_is_set_aside(bench: Bench) -> None:
    await bench.metadata_of(topic("t", 0))
    same_id, third = topic("same-id", 0), topic("third", 0, topic_id=OTHER_ID)
    assert await bench.metadata_of(same_id, third) is ErrorCode.NONE
    assert set(bench.plane.topics) == {"t", "third"}
    response = await bench.lead(topic("t", 1), same_id, third)
    assert isinstance(response, LeaderAndIsrResponse)
    assert response.errors == {
        ("t", 0): ErrorCode.NONE,
        ("same-id", 0): ErrorCode.UNKNOWN_SERVER_ERROR,
        ("third", 0): ErrorCode.NONE,
    }
    assert set(bench.plane.led) == {("t", 0), ("third", 0)}
    assert bench.metadata.image.name_of(b"1" * 16) == "t"


async def test_a_topic_that_the_plane_refuses_is_set_aside(bench: Bench) -> None:
    bench.plane.refused_topics.add("bad")
    await bench.metadata_of(topic("gone", 0, topic_id=b"3" * 16))
    gone = topic("gone", 0, leader=-2, topic_id=b"3" * 16)
    bad, good = topic("bad", 0), topic("good", 0, topic_id=OTHER_ID)
    assert await bench.metadata_of(gone, bad, good) is ErrorCode.NONE
    assert set(bench.plane.topics) == {"good"}
    bench.plane.refused_topics.clear()
    await bench.metadata_of(topic("bad", 1))
    assert set(bench.plane.topics) == {"good", "bad"}, "it is tried again when it changes"


async def test_a_partition_with_which_the_plane_fails_is_answered_alone(bench: Bench) -> None:
    bench.plane.raising = {("t", 1)}
    for leader, held in ((1, bench.plane.led), (2, bench.plane.followed)):
        response = await bench.lead(topic("t", leader, leader, leader, leader=leader))
        assert response == LeaderAndIsrResponse(
            ErrorCode.NONE,
            {
                ("t", 0): ErrorCode.NONE,
                ("t", 1): ErrorCode.UNKNOWN_SERVER_ERROR,
                ("t", 2): ErrorCode.NONE,
            },
        )
        assert set(held) == {("t", 0), ("t", 2)}
    stops = [StopReplica("t", index, -2, True) for index in range(3)]
    assert await bench.ask(StopReplicaRequest(1, 1, -1, stops)) == StopReplicaResponse(
        ErrorCode.NONE,
        {
            ("t", 0): ErrorCode.NONE,
            ("t", 1): ErrorCode.UNKNOWN_SERVER_ERROR,
            ("t", 2): ErrorCode.NONE,
        },
    )
    bench.plane.raising.clear()
    assert ("t", 1) not in bench.plane.led
    response = await bench.lead(topic("t", 3, 3, 3))
    assert isinstance(response, LeaderAndIsrResponse)
    assert set(response.errors.values()) == {ErrorCode.NONE}


async def test_failed_control_request_can_be_repeated(bench: Bench, failing: Failing) -> None:
    failing.failures.append(RuntimeError("a bug"))
    order = LeaderAndIsrRequest(1, 1, -1, [topic("t", 0)])
    failed = LeaderAndIsrResponse(ErrorCode.UNKNOWN_SERVER_ERROR, {})
    assert await bench.ask(order) == failed
    assert await bench.ask(order) == LeaderAndIsrResponse(
        ErrorCode.NONE, {("t", 0): ErrorCode.NONE}
    )
    failing.failures.append(RuntimeError("a bug"))
    told = metadata(BROKERS, topic("u", 0, topic_id=OTHER_ID))
    assert await bench.ask(told) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await bench.ask(told) is ErrorCode.NONE
    assert "u" in bench.plane.topics


async def test_options_that_cannot_be_read_are_read_again(
    bench: Bench, failing: Failing, autojump_clock: trio.testing.MockClock
) -> None:
    """A topic served with the broker's retention instead of its own may lose records."""
    path = znodes.topic_config_path("t")
    await failing._session.create(path, znodes.encode_config({"retention.ms": "-1"}))
    failing.failures += [StoreFailedError("no access")] * 3
    assert await bench.metadata_of(topic("t", 0)) is ErrorCode.NONE
    assert bench.plane.topics["t"].log.retention_ms == -1
