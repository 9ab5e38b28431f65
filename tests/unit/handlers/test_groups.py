"""The group APIs, in every version, over a real coordinator and a log in memory."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from pyrklog.errors import ErrorCode
from pyrklog.groups.options import GroupSettings
from pyrklog.handlers.group_admin import GROUP_OPERATIONS
from pyrklog.handlers.service import TopicInfo
from pyrklog.protocol.coordinators import FindCoordinatorRequest
from pyrklog.protocol.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from pyrklog.protocol.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pyrklog.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pyrklog.testing.fake_offsets import FakeTopic
from tests.unit.groups.rig import Rig, running
from tests.unit.handlers.fake_service import FakeService, FakeSession, ask

COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = 8, 9, 10, 11, 12, 13, 14, 15, 16
DELETE, OFFSET_DELETE = 42, 47
PROTOCOLS = [JoinGroupRequestProtocol("range", b"meta")]
AT_ONCE = GroupSettings(initial_rebalance_delay_ms=0)


class Client:
    def __init__(self, rig: Rig, host: str = "127.0.0.1") -> None:
        self.rig = rig
        self.session = FakeSession(host=host)
        topics = [TopicInfo("t", bytes(16), 2, False)]
        self.service = FakeService(topics=topics)

    async def ask(self, key: int, version: int, message: Any) -> Any:
        coordinator, session = self.rig.coordinator, self.session
        return await ask(self.service, key, version, message, coordinator, session=session)

    async def join(self, version: int, member_id: str = "", **more: Any) -> Any:
        request = JoinGroupRequest("g", 10_000, 20_000, member_id, None, "consumer", PROTOCOLS)
        for name, value in more.items():
            setattr(request, name, value)
        return await self.ask(JOIN, version, request)

    async def sync(self, version: int, generation: int, member_id: str) -> Any:
        given = [SyncGroupRequestAssignment(member_id, b"mine")]
        kind, name = ("consumer", "range") if version >= 5 else (None, None)
        request = SyncGroupRequest("g", generation, member_id, None, kind, name, given)
        return await self.ask(SYNC, version, request)

    async def enter(self, version: int = 5) -> str:
        joined = await self.join(version, group_instance_id="i")
        assert joined.error_code == 0
        assert (await self.sync(5, joined.generation_id, joined.member_id)).error_code == 0
        member_id: str = joined.member_id
        return member_id

    async def commit(self, version: int, offset: int = 5, **more: Any) -> Any:
        partitions = [OffsetCommitRequestPartition(0, offset, 3, committed_metadata="note")]
        request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions)])
        for name, value in more.items():
            setattr(request, name, value)
        response = await self.ask(COMMIT, version, request)
        return [
            (topic.name, one.partition_index, one.error_code)
            for topic in response.topics
            for one in topic.partitions
        ]


@pytest.mark.parametrize("version", range(10))
async def test_every_version_of_join_ends_in_a_generation(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        joined = await client.join(version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert joined.member_id.startswith("test-")
            assert joined.protocol_name == (None if version >= 7 else "")
            joined = await client.join(version, joined.member_id)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert joined.leader == joined.member_id
        assert [member.metadata for member in joined.members] == [b"meta"]
        assert joined.protocol_name == "range"
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert joined.skip_assignment is False


async def test_the_first_version_of_join_rebalances_within_its_session(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(settings=AT_ONCE) as rig:
        joined = await Client(rig).join(0)
        member = rig.coordinator.manager.groups["g"].group.members[joined.member_id]
        assert member.rebalance_timeout_ms == member.session_timeout_ms == 10_000


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_sync_gets_the_assignment(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        joined = await client.join(3)
        synced = await client.sync(version, 1, joined.member_id)
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        assert synced.protocol_name == ("range" if version >= 5 else None)


async def test_sync_must_name_its_protocol_from_version_5_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        joined = await client.join(3)
        for named in ((None, "range"), ("consumer", None), ("connect", "range"), ("consumer", "x")):
            request = SyncGroupRequest("g", 1, joined.member_id, None, *named)
            response = await client.ask(SYNC, 5, request)
            assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
async def test_every_version_of_heartbeat(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        me = await client.enter()
        codes = [
            (await client.ask(HEARTBEAT, version, HeartbeatRequest(*who))).error_code
            for who in (("g", 1, me), ("g", 0, me), ("g", 1, "x"), ("h", 1, me), ("", 1, me))
        ]
        assert codes == [
            ErrorCode.NONE,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.INVALID_GROUP_ID,
        ]


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_leave(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        me = await client.enter()
        if version < 3:
            wrong = await client.ask(LEAVE, version, LeaveGroupRequest("g", "x"))
            assert wrong.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            left = await client.ask(LEAVE, version, LeaveGroupRequest("g", me))
            assert left.error_code == 0
        else:
            members = [MemberIdentity("x"), MemberIdentity("", "i"), MemberIdentity("", "j")]
            left = await client.ask(LEAVE, version, LeaveGroupRequest("g", members=members))
            assert left.error_code == 0
            assert [(m.member_id, m.group_instance_id, m.error_code) for m in left.members] == [
                ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
                ("", "i", ErrorCode.NONE),
                ("", "j", ErrorCode.UNKNOWN_MEMBER_ID),
            ]
        assert rig.coordinator.manager.describe_group("g").state == "Empty"


@pytest.mark.parametrize("version", range(2, 10))
async def test_every_version_of_commit_is_read_back(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        assert await client.commit(version) == [("t", 0, 0)]
        request = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0, 1])])
        fetched = await client.ask(FETCH, 5, request)
        [topic] = fetched.topics
        epoch = 3 if version >= 6 else -1
        assert [
            (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata)
            for p in topic.partitions
        ] == [(0, 5, epoch, "note"), (1, -1, -1, "")]


async def test_a_commit_may_bring_its_own_time_to_live(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        await client.commit(4, retention_time_ms=60_000)
        await trio.testing.wait_all_tasks_blocked()
        [record] = rig.log.records(0)
        assert record.value is not None
        assert record.value[:2] == b"\0\1"
        assert int.from_bytes(record.value[-8:], "big") == rig.coordinator.now_ms() + 60_000


async def test_commits_to_missing_partitions_fail_one_by_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(settings=AT_ONCE) as rig:
        partitions = [OffsetCommitRequestPartition(i, 1) for i in (0, 2, -1)]
        topics = [
            OffsetCommitRequestTopic("t", partitions),
            OffsetCommitRequestTopic("missing", partitions[:1]),
        ]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = await Client(rig).commit(8, topics=topics)
        assert answer == [
            ("t", 0, 0),
            ("t", 2, unknown),
            ("t", -1, unknown),
            ("missing", 0, unknown),
        ]


async def test_a_note_that_is_too_long_concerns_its_partition_only(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(settings=AT_ONCE) as rig:
        notes = ["x" * 4096, "\N{PILE OF POO}" * 2049]
        partitions = [
            OffsetCommitRequestPartition(i, 1, committed_metadata=n) for i, n in enumerate(notes)
        ]
        answer = await Client(rig).commit(8, topics=[OffsetCommitRequestTopic("t", partitions)])
        assert answer == [("t", 0, 0), ("t", 1, ErrorCode.OFFSET_METADATA_TOO_LARGE)]


async def test_a_time_to_live_without_end_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    async with running(settings=AT_ONCE) as rig:
        partitions = [OffsetCommitRequestPartition(0, 1)]
        request = OffsetCommitRequest(
            "g",
            retention_time_ms=2**63 - 1,
            topics=[OffsetCommitRequestTopic("t", partitions)],
        )
        answer = await Client(rig).ask(COMMIT, 2, request)
        assert [one.error_code for one in answer.topics[0].partitions] == [0]
        assert rig.committed() == 1


@pytest.mark.parametrize("version", range(1, 10))
async def test_every_version_of_fetch_says_that_this_is_not_the_coordinator(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Version 1 can carry the group's error only in the partitions (KAFKA-19439)."""
    async with running(FakeTopic(1, {})) as rig:
        topics = [OffsetFetchRequestTopic("t", [0, 1])]
        group = OffsetFetchRequestGroup("g", topics=topics)
        request = OffsetFetchRequest("g", topics, [group])
        response = await Client(rig).ask(FETCH, version, request)
        code = ErrorCode.NOT_COORDINATOR
        if version == 1:
            [topic] = response.topics
            shown = [(p.committed_offset, p.error_code) for p in topic.partitions]
            assert shown == [(-1, code), (-1, code)]
        elif version < 8:
            assert (response.error_code, response.topics) == (code, [])
        else:
            assert [(g.group_id, g.error_code) for g in response.groups] == [("g", code)]


@pytest.mark.parametrize("version", range(2, 10))
async def test_all_offsets_of_a_group_can_be_asked_for(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        await client.commit(8)
        groups = [OffsetFetchRequestGroup("g"), OffsetFetchRequestGroup("h")]
        response = await client.ask(FETCH, version, OffsetFetchRequest("g", None, groups))
        topics = response.groups[0].topics if version >= 8 else response.topics
        assert [(t.name, [p.committed_offset for p in t.partitions]) for t in topics] == [
            ("t", [5])
        ]
        if version >= 8:
            assert (response.groups[1].error_code, response.groups[1].topics) == (0, [])


async def test_a_group_that_is_named_again_and_again_is_answered_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        await client.commit(8)
        groups = [OffsetFetchRequestGroup("g")] * 1000 + [OffsetFetchRequestGroup("h")]
        response = await client.ask(FETCH, 9, OffsetFetchRequest("", None, groups))
        assert [group.group_id for group in response.groups] == ["g", "h"]
        described = await client.ask(15, 5, DescribeGroupsRequest(["g"] * 1000 + ["h"]))
        assert [group.group_id for group in described.groups] == ["g", "h"]


async def test_offsets_that_are_read_are_not_deleted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        await client.commit(8)
        partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(7)]
        request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", partitions)])
        response = await client.ask(OFFSET_DELETE, 0, request)
        codes = [one.error_code for one in response.topics[0].partitions]
        assert (response.error_code, codes) == (0, [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        missing = await client.ask(OFFSET_DELETE, 0, OffsetDeleteRequest("nobody", request.topics))
        assert (missing.error_code, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_and_filtered(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        await client.enter()
        await client.commit(8, group_id="h")

        async def names(*filters: Any) -> list[str]:
            response = await client.ask(LIST, version, ListGroupsRequest(*filters))
            assert response.error_code == 0
            return sorted(group.group_id for group in response.groups)

        assert await names() == ["g", "h"]
        if version >= 4:
            assert await names(["stable"]) == ["g"]
            assert await names(["EMPTY", "Stable"]) == ["g", "h"]
            assert await names(["Dead"]) == []
        if version >= 5:
            assert await names([], ["Classic"]) == ["g", "h"]
            assert await names([], ["consumer"]) == []
            response = await client.ask(LIST, version, ListGroupsRequest(["stable"]))
            [group] = response.groups
            assert (group.group_state, group.group_type) == ("Stable", "classic")
            assert group.protocol_type == "consumer"


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_described(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        me = await client.enter()
        response = await client.ask(DESCRIBE, version, DescribeGroupsRequest(["g", "nobody"], True))
        known, unknown = response.groups
        assert (known.error_code, known.group_state) == (0, "Stable")
        assert (known.protocol_type, known.protocol_data) == ("consumer", "range")
        [member] = known.members
        assert (member.member_id, member.client_id, member.client_host) == (
            me,
            "test",
            "/127.0.0.1",
        )
        assert (member.member_metadata, member.member_assignment) == (b"meta", b"mine")
        assert member.group_instance_id == ("i" if version >= 4 else None)
        assert (unknown.error_code, unknown.group_state) == (0, "Dead")
        if version >= 3:
            assert known.authorized_operations == GROUP_OPERATIONS


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("10.0.0.7", "/10.0.0.7"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::1:0:A00", "/2001:db8:0:0:0:1:0:a00"),
    ],
)
async def test_addresses_of_members_are_written_as_in_java(
    host: str, shown: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig, host)
        await client.enter()
        response = await client.ask(DESCRIBE, 5, DescribeGroupsRequest(["g"], False))
        assert [member.client_host for member in response.groups[0].members] == [shown]


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted(version: int, autojump_clock: trio.testing.MockClock) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        await client.enter()
        await client.commit(8, group_id="h")
        request = DeleteGroupsRequest(["g", "h", "nobody", "h"])
        response = await client.ask(DELETE, version, request)
        assert [(one.group_id, one.error_code) for one in response.results] == [
            ("g", ErrorCode.NON_EMPTY_GROUP),
            ("h", ErrorCode.NONE),
            ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ]


@pytest.mark.parametrize("version", range(7))
async def test_every_version_finds_the_coordinator(
    version: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(FakeTopic(2, {0: 0})) as rig:
        client = Client(rig)
        groups = {rig.coordinator.manager.partition_for(name): name for name in "abcd"}
        here, elsewhere = groups[0], groups[1]
        for name, error, node in (
            (here, 0, 1),
            (elsewhere, ErrorCode.COORDINATOR_NOT_AVAILABLE, -1),
        ):
            request = FindCoordinatorRequest(name, 0, [name])
            response = await client.ask(FIND, version, request)
            found = response.coordinators[0] if version >= 4 else response
            assert (found.error_code, found.node_id) == (error, node)
            assert bool(found.host) == (node == 1)


async def test_a_session_time_out_out_of_bounds_is_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running(settings=AT_ONCE) as rig:
        client = Client(rig)
        for timeout_ms in (-1, 0, 5_999, 1_800_001, 2**31 - 1):
            joined = await client.join(3, session_timeout_ms=timeout_ms)
            assert joined.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert rig.coordinator.manager.list_groups([], []) == (ErrorCode.NONE, [])
