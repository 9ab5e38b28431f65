"""Groups in a whole broker: from FindCoordinator to a commit that survives, over a fake plane."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from pyrklog.handlers.service import TopicRef
from pyrklog.protocol.coordinators import FindCoordinatorRequest
from pyrklog.protocol.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pyrklog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from pyrklog.protocol.registry import find_api
from pyrklog.testing.fake_plane import FakeRequest
from tests.unit.broker.harness import Running, running_broker

COMMIT, FETCH, FIND, JOIN, HEARTBEAT, SYNC = 8, 9, 10, 11, 12, 14
PROTOCOLS = [JoinGroupRequestProtocol("range", b"")]
_ids = itertools.count(1)


async def ask(running: Running, key: int, version: int, message: Any) -> Any:
    api = find_api(key)
    number = next(_ids)
    request: Any = FakeRequest(number, key, version, api.encode_request(message, version))
    running.plane.request(request)
    await running.plane.wait_until(lambda: number in running.plane.replies)
    return api.decode_response(running.plane.replies[number], version)


async def loaded(running: Running) -> None:
    """Joins until the coordinator serves, as clients do."""
    while True:
        probe = await ask(running, HEARTBEAT, 0, HeartbeatRequest("g", 1, "nobody"))
        if probe.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            return


async def test_a_first_consumer_finds_a_coordinator_joins_and_commits(tmp_path: Path) -> None:
    options = ("group.initial.rebalance.delay.ms=100", "offsets.topic.num.partitions=3")
    async with running_broker(tmp_path, *options) as running:
        await running.created("t")
        found = await ask(running, FIND, 2, FindCoordinatorRequest("g"))
        assert (found.error_code, found.node_id, found.host) == (0, 1, "127.0.0.1")
        topic = running.plane.topics[OFFSETS_TOPIC]
        assert (topic.internal, len(topic.partitions)) == (True, 3)
        assert (topic.log.cleanup_compact, topic.log.cleanup_delete) == (True, False)
        assert topic.log.segment_bytes == 104_857_600
        assert [len(p.replicas) for p in topic.partitions] == [1, 1, 1]
        await loaded(running)

        joined = await ask(
            running, JOIN, 3, JoinGroupRequest("g", 10_000, 9_000, "", None, "consumer", PROTOCOLS)
        )
        assert joined.error_code == 0
        me = joined.member_id
        given = [SyncGroupRequestAssignment(me, b"mine")]
        synced = await ask(running, SYNC, 3, SyncGroupRequest("g", 1, me, assignments=given))
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        offsets = [OffsetCommitRequestTopic("t", [OffsetCommitRequestPartition(0, 42)])]
        request = OffsetCommitRequest("g", 1, me, topics=offsets)
        committed = await ask(running, COMMIT, 8, request)
        assert committed.topics[0].partitions[0].error_code == 0
        log = running.plane.internal_log(OFFSETS_TOPIC)
        assert len(log.records(partition_for("g", 3))) == 2

        # Deleting the topic forgets its offsets.
        await running.service.delete_topics([TopicRef("t")], timeout_ms=10_000)
        await log.changes.wait_until(lambda: len(log.records(partition_for("g", 3))) == 3)
        wanted = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0])])
        fetched = await ask(running, FETCH, 3, wanted)
        assert fetched.topics[0].partitions[0].committed_offset == -1


async def test_configured_offsets_replication_factor_is_kept(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "offsets.topic.replication.factor=3") as running:
        found = await ask(running, FIND, 2, FindCoordinatorRequest("g"))
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert OFFSETS_TOPIC not in running.plane.topics
