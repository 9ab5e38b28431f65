"""What no sane member sends: our broker and Apache Kafka answer it with the same codes."""

from collections.abc import Iterator
from typing import Any

import pytest

from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.group_admin import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
)
from pyrklog.protocol.groups import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pyrklog.protocol.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from pyrklog.testing import TestBroker
from tests.support.groups import create_topic
from tests.support.kafka_broker import KafkaBroker
from tests.support.raw_client import RawClient

TOPIC = "known"
SESSION_MS, REBALANCE_MS = 30_000, 60_000
CODE = ErrorCode


@pytest.fixture(scope="module", params=["pyrklog", pytest.param("kafka", marks=pytest.mark.jvm)])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("bad-input")
    if request.param == "kafka":
        with KafkaBroker(folder / "kafka") as kafka:
            create_topic(kafka.bootstrap, TOPIC, 2)
            yield kafka.bootstrap
        return
    with TestBroker(folder / "data") as broker:
        create_topic(broker.bootstrap, TOPIC, 2)
        yield broker.bootstrap


@pytest.fixture
def client(bootstrap: str, topic: str) -> Iterator[RawClient]:
    """Knows the coordinator of the group ``topic``."""
    with RawClient(bootstrap) as raw:
        raw.await_coordinator(topic)
        yield raw


def join(client: RawClient, group: str, version: int = 3, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol("range", b"\0\0\0\0\0\0\0\0\0\0")],
    }
    return client.ask(JOIN_GROUP, version, JoinGroupRequest(**fields | changes))


def sync(
    client: RawClient, group: str, me: Any, assignment: bytes = b"mine", **changes: Any
) -> int:
    fields: dict[str, Any] = {
        "group_id": group,
        "generation_id": me.generation_id,
        "member_id": me.member_id,
        "assignments": [SyncGroupRequestAssignment(me.member_id, assignment)],
    }
    code: int = client.ask(SYNC_GROUP, 3, SyncGroupRequest(**fields | changes)).error_code
    return code


def member(client: RawClient, group: str) -> Any:
    """The one member of a stable group."""
    me = join(client, group)
    assert me.error_code == 0
    assert sync(client, group, me) == 0
    return me


def heartbeat(client: RawClient, group: str, generation: int, member_id: str) -> int:
    request = HeartbeatRequest(group, generation, member_id)
    code: int = client.ask(HEARTBEAT, 3, request).error_code
    return code


def commit(
    client: RawClient,
    group: str,
    generation: int = -1,
    member_id: str = "",
    *,
    version: int = 8,
    partitions: tuple[tuple[str, int, str], ...] = ((TOPIC, 0, ""),),
) -> list[int]:
    topics = [
        OffsetCommitRequestTopic(
            topic, [OffsetCommitRequestPartition(index, 7, committed_metadata=note)]
        )
        for topic, index, note in partitions
    ]
    request = OffsetCommitRequest(group, generation, member_id, topics=topics)
    answer = client.ask(OFFSET_COMMIT, version, request)
    codes = {
        (topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
    }
    return [codes[(topic, index)] for topic, index, _ in partitions]


def test_wrong_generations_and_unknown_members(client: RawClient, topic: str) -> None:
    me = member(client, topic)
    now = me.generation_id
    for generation in (now - 1, now + 1, -1, 2**31 - 1):
        assert heartbeat(client, topic, generation, me.member_id) == CODE.ILLEGAL_GENERATION
        assert sync(client, topic, me, generation_id=generation) == CODE.ILLEGAL_GENERATION
        assert commit(client, topic, generation, me.member_id) == [CODE.ILLEGAL_GENERATION]
    for name in ("ghost", "", "x" * 10_000):
        assert heartbeat(client, topic, now, name) == CODE.UNKNOWN_MEMBER_ID
        assert sync(client, topic, me, member_id=name) == CODE.UNKNOWN_MEMBER_ID
        assert commit(client, topic, now, name) == [CODE.UNKNOWN_MEMBER_ID]
    assert commit(client, topic) == [CODE.UNKNOWN_MEMBER_ID], "the group has a member"
    assert join(client, topic, member_id="ghost").error_code == CODE.UNKNOWN_MEMBER_ID
    leaving = LeaveGroupRequest(topic, members=[MemberIdentity("ghost")])
    answer = client.ask(LEAVE_GROUP, 3, leaving)
    assert (answer.error_code, answer.members[0].error_code) == (0, CODE.UNKNOWN_MEMBER_ID)
    assert heartbeat(client, topic, now, me.member_id) == 0, "nothing of this harmed the member"


@pytest.mark.parametrize("session_ms", [-1, 0, 1, 5_999, 1_800_001, 2**31 - 1, -(2**31)])
def test_absurd_session_time_outs(client: RawClient, topic: str, session_ms: int) -> None:
    answer = join(client, topic, session_timeout_ms=session_ms)
    assert answer.error_code == CODE.INVALID_SESSION_TIMEOUT


def test_impossible_group_names_are_refused(client: RawClient, topic: str) -> None:
    assert join(client, "").error_code == CODE.INVALID_GROUP_ID
    assert heartbeat(client, "", 1, "m") == CODE.INVALID_GROUP_ID
    none = CODE.INCONSISTENT_GROUP_PROTOCOL
    assert join(client, topic, protocols=[]).error_code == none
    assert join(client, topic, protocol_type="").error_code == none
    me = member(client, topic)
    other = [JoinGroupRequestProtocol("other", b"")]
    assert join(client, topic, protocols=other).error_code == none
    assert join(client, topic, protocol_type="connect").error_code == none
    assert heartbeat(client, topic, me.generation_id, me.member_id) == 0
    deleted = client.ask(DELETE_GROUPS, 1, DeleteGroupsRequest(["never-there", topic]))
    codes = {one.group_id: one.error_code for one in deleted.results}
    assert codes == {"never-there": CODE.GROUP_ID_NOT_FOUND, topic: CODE.NON_EMPTY_GROUP}
    described = client.ask(DESCRIBE_GROUPS, 4, DescribeGroupsRequest(["never-there"])).groups[0]
    assert (described.error_code, described.group_state) == (0, "Dead")


def test_more_than_a_record_may_hold(client: RawClient, topic: str) -> None:
    """The generation does not fit into a batch of ``__consumer_offsets``: its members are told, and
    other groups continue."""
    other = member(client, f"{topic}-other")
    large = [JoinGroupRequestProtocol("range", bytes(2_000_000))]
    me = join(client, topic, protocols=large)
    assert me.error_code == 0
    assert sync(client, topic, me) == CODE.UNKNOWN_SERVER_ERROR
    assert heartbeat(client, f"{topic}-other", other.generation_id, other.member_id) == 0
    again = member(client, f"{topic}-third")
    assert commit(client, f"{topic}-third", again.generation_id, again.member_id) == [0]


def test_commits_to_missing_partitions_or_with_long_metadata_fail(
    client: RawClient, topic: str
) -> None:
    unknown, long = CODE.UNKNOWN_TOPIC_OR_PARTITION, CODE.OFFSET_METADATA_TOO_LARGE
    me = member(client, topic)
    partitions = (
        (TOPIC, 0, "x" * 4096),
        (TOPIC, 1, "x" * 4097),
        (TOPIC, 2, ""),
        (TOPIC, -1, ""),
        ("never-there", 0, ""),
    )
    for version in (2, 5, 8, 9):
        codes = commit(
            client, topic, me.generation_id, me.member_id, version=version, partitions=partitions
        )
        assert codes == [0, long, unknown, unknown, unknown]
    fetched = client.ask(
        OFFSET_FETCH, 5, OffsetFetchRequest(topic, [OffsetFetchRequestTopic(TOPIC, [0, 1, 2])])
    )
    found = [(one.partition_index, one.committed_offset) for one in fetched.topics[0].partitions]
    assert sorted(found) == [(0, 7), (1, -1), (2, -1)]


def test_unknown_coordinator_key_types_are_refused(client: RawClient) -> None:
    answer = client.ask(FIND_COORDINATOR, 2, FindCoordinatorRequest("g", key_type=9))
    assert answer.error_code == CODE.INVALID_REQUEST
