"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders."""

import pytest

from pyrklog.cluster.assignment import PartitionAssignment
from pyrklog.cluster.requests import Elected, ElectionKind, Refusal
from pyrklog.errors import ErrorCode
from pyrklog.handlers.service import TopicInfo
from pyrklog.protocol.elections import ElectedTopic, ElectLeadersRequest, ElectLeadersResponse
from pyrklog.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.unit.handlers.fake_service import FakeController, FakeService, ask

ELECT, ALTER, LIST = 43, 45, 46


async def test_each_partition_gets_its_answer() -> None:
    controller = FakeController(
        alter_reassignments={
            ("t", 0): Refusal(ErrorCode.NONE),
            ("t", 1): Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
            ("u", 0): Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "why"),
        }
    )
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                "t", [ReassignablePartition(0, [2, 3], at_end=True), ReassignablePartition(1)]
            ),
            ReassignableTopic("u", [ReassignablePartition(0, [])]),
        ]
    )
    response = await ask(FakeService(), ALTER, 0, request, controller=controller)
    wanted = {("t", 0): [2, 3], ("t", 1): None, ("u", 0): []}
    assert controller.asked == [("alter_reassignments", (wanted, {("t", 0)}))]
    assert response.error_code == ErrorCode.NONE
    assert [
        (topic.name, [(p.partition_index, p.error_code, p.error_message) for p in topic.partitions])
        for topic in response.responses
    ] == [
        ("t", [(0, 0, None), (1, 85, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS.message)]),
        ("u", [(0, 39, "why")]),
    ]


async def test_ongoing_reassignments_are_listed() -> None:
    moving = {
        ("t", 0): PartitionAssignment((3, 1, 2), (3,), (2,)),
        ("u", 5): PartitionAssignment((1, 2), (), (2,)),
    }
    controller = FakeController(reassignments=moving)
    response = await ask(
        FakeService(), LIST, 0, ListPartitionReassignmentsRequest(), controller=controller
    )
    assert [
        (topic.name, p.partition_index, p.replicas, p.adding_replicas, p.removing_replicas)
        for topic in response.topics
        for p in topic.partitions
    ] == [("t", 0, [3, 1, 2], [3], [2]), ("u", 5, [1, 2], [], [2])]
    some = ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsTopics("t", [0, 1])],
    )
    await ask(FakeService(), LIST, 0, some, controller=controller)
    assert controller.asked == [("reassignments", None), ("reassignments", [("t", 0), ("t", 1)])]


@pytest.mark.parametrize(
    ("key", "request_"),
    [(ALTER, AlterPartitionReassignmentsRequest()), (LIST, ListPartitionReassignmentsRequest())],
)
async def test_only_the_controller_moves_partitions(key: int, request_: object) -> None:
    response = await ask(FakeService(), key, 0, request_)
    assert response.error_code == ErrorCode.NOT_CONTROLLER


async def test_an_error_of_the_whole_request_is_repeated_for_each_partition() -> None:
    """Java's admin client throws UnknownServerException when results are missing."""
    topics = [
        ReassignableTopic("t", [ReassignablePartition(0, [2, 3]), ReassignablePartition(1)]),
        ReassignableTopic("u", [ReassignablePartition(4, [])]),
    ]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    response = await ask(FakeService(), ALTER, 0, request)
    refused = ErrorCode.NOT_CONTROLLER
    assert (response.error_code, response.error_message) == (refused, refused.message)
    assert [
        (topic.name, [(p.partition_index, p.error_code, p.error_message) for p in topic.partitions])
        for topic in response.responses
    ] == [
        ("t", [(0, refused, refused.message), (1, refused, refused.message)]),
        ("u", [(4, refused, refused.message)]),
    ]


def elected(response: ElectLeadersResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, one.partition_id): one.error_code
        for topic in response.replica_election_results
        for one in topic.partition_result
    }


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_leaders_are_elected(version: int) -> None:
    results = {
        ("t", 0): Elected(Refusal(ErrorCode.NONE), 3),
        ("t", 1): Elected(Refusal(ErrorCode.ELECTION_NOT_NEEDED)),
    }
    controller = FakeController(elect=results)
    request = ElectLeadersRequest(
        election_type=1 if version else 0, topic_partitions=[ElectedTopic("t", [0, 1])]
    )
    fake = FakeService()
    response = await ask(fake, ELECT, version, request, controller=controller)
    kind = ElectionKind.UNCLEAN if version else ElectionKind.PREFERRED
    assert controller.asked == [("elect", (kind, [("t", 0), ("t", 1)]))]
    assert elected(response) == {("t", 0): 0, ("t", 1): ErrorCode.ELECTION_NOT_NEEDED}
    assert fake.asked("wait_for_leaders") == {("t", 0): 3}
    assert fake.options("wait_for_leaders") == {"timeout_ms": 60_000}


async def test_election_for_all_partitions_omits_those_that_needed_none() -> None:
    results = {
        ("t", 0): Elected(Refusal(ErrorCode.NONE), 3),
        ("t", 1): Elected(Refusal(ErrorCode.ELECTION_NOT_NEEDED)),
        ("t", 2): Elected(Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)),
    }
    controller = FakeController(elect=results)
    fake = FakeService(wait_for_leaders=[("t", 0)])
    response = await ask(fake, ELECT, 2, ElectLeadersRequest(), controller=controller)
    assert controller.asked == [("elect", (ElectionKind.PREFERRED, None))]
    assert elected(response) == {
        ("t", 0): ErrorCode.REQUEST_TIMED_OUT,
        ("t", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }


@pytest.mark.parametrize("named", [True, False])
async def test_election_at_another_broker_fails_with_not_controller(named: bool) -> None:
    """Only the partitions carry the error: with a top-level one, Java's client gives up."""
    request = ElectLeadersRequest(topic_partitions=[ElectedTopic("t", [0, 1])] if named else None)
    fake = FakeService(topics=[TopicInfo("t", b"i" * 16, 2, False)])
    response = await ask(fake, ELECT, 2 if named else 0, request)
    assert elected(response) == dict.fromkeys([("t", 0), ("t", 1)], ErrorCode.NOT_CONTROLLER)
    assert response.error_code == 0


async def test_an_unknown_kind_of_election_is_refused() -> None:
    request = ElectLeadersRequest(election_type=2, topic_partitions=[ElectedTopic("t", [0])])
    response = await ask(FakeService(), ELECT, 1, request, controller=FakeController(elect={}))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert elected(response) == {("t", 0): ErrorCode.INVALID_REQUEST}
