"""What a controller answers while it moves, or is late, and what counts as a refusal."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, Self, cast

import pytest

from pyrklog.cli import reassign_cluster
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.reassign_cluster import NO_TOPIC_ID, ReassignmentAdmin
from pyrklog.protocol.elections import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.reassignments import (
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
    ReassignedPartition,
    ReassignedTopic,
)

KEY = ("t", 0)
Answers = Callable[..., ReassignmentAdmin]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """The controller gives these answers; the last one for ever, for 0.05 seconds."""
    monkeypatch.setattr(reassign_cluster, "RETRY_PAUSE_S", 0.0)

    class Broker:
        left: ClassVar[list[Any]] = []

        def __init__(self, *_: Any) -> None: ...
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...
        def ask(self, *_: Any) -> Any:
            return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    monkeypatch.setattr(reassign_cluster, "BrokerConnection", Broker)

    def made(*answers: Any) -> ReassignmentAdmin:
        Broker.left = list(answers)
        settings = SimpleNamespace(security_protocol="plaintext", timeout_s=0.05)
        admin = ReassignmentAdmin(cast(Connection, SimpleNamespace(settings=settings)))
        brokers = [SimpleNamespace(broker_id=1, host="h", port=1)]
        described = SimpleNamespace(brokers=brokers, controller_id=1)
        monkeypatch.setattr(admin, "describe", lambda: described)
        return admin

    return made


def altered(code: ErrorCode = ErrorCode.NONE) -> AlterPartitionReassignmentsResponse:
    topics = [ReassignedTopic("t", [ReassignedPartition(0, code)])]
    return AlterPartitionReassignmentsResponse(0, code, None, topics)


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT])
def test_an_error_that_passes_is_tried_again(answering: Answers, code: ErrorCode) -> None:
    found = answering(altered(code), altered(code), altered()).alter({KEY: (1,)})
    assert found == {KEY: (ErrorCode.NONE, None)}


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (ErrorCode.NOT_CONTROLLER, Exit.UNREACHABLE),
        (ErrorCode.BROKER_NOT_AVAILABLE, Exit.UNREACHABLE),
        (ErrorCode.REQUEST_TIMED_OUT, Exit.TIMED_OUT),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Exit.FAILED),
    ],
)
def test_who_waits_for_the_cluster_waits_for_what_passes(
    answering: Answers, code: ErrorCode, exit_code: Exit
) -> None:
    admin = answering(ListPartitionReassignmentsResponse(0, code))
    with pytest.raises(CliError) as raised:
        admin.moving()
    assert raised.value.code is exit_code


def test_an_election_is_asked_again_of_the_new_controller(answering: Answers) -> None:
    def elected(code: ErrorCode) -> ElectLeadersResponse:
        return ElectLeadersResponse(0, 0, [ReplicaElectionResult("t", [PartitionResult(0, code)])])

    admin = answering(elected(ErrorCode.NOT_CONTROLLER), elected(ErrorCode.ELECTION_NOT_NEEDED))
    assert admin.elect([KEY]) == {}
    admin = answering(elected(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE))
    assert admin.elect([KEY]) == {KEY: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}


def test_topics_without_an_id(answering: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"t": "T", "old": NO_TOPIC_ID, "gone": None}
    monkeypatch.setattr(reassign_cluster, "topic_ids", lambda *_: told)
    assert answering().topic_ids(told) == {"t": "T"}
