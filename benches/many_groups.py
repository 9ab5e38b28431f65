"""Many consumer groups without members, each with committed offsets."""

import time
from collections.abc import Sequence

from benches.brokers import BenchError
from benches.group_members import PATIENCE_S, Member, frame
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_VERSION = 9
_EACH = 10
_RETRY_S = 0.1
_PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def names(count: int) -> list[str]:
    return [f"observed-{number}" for number in range(count)]


def places(number: int, partitions: int) -> list[int]:
    """The partitions in which the group of this number commits: all groups together spread over
    all partitions."""
    return [(number * _EACH + index) % partitions for index in range(min(_EACH, partitions))]


def commit(port: int, groups: Sequence[str], topic: str, partitions: int, offset: int) -> None:
    """Commits ``offset`` for ten partitions of each group. Raises BenchError for a refusal."""
    connection = Member(port, "")
    deadline = time.monotonic() + PATIENCE_S
    for number, group in enumerate(groups):
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    topic,
                    [
                        OffsetCommitRequestPartition(index, offset, -1, committed_metadata="")
                        for index in places(number, partitions)
                    ],
                )
            ],
        )
        while (code := _commit_once(connection, request)) in _PASSING:
            if time.monotonic() > deadline:
                raise BenchError(f"commit of {group}: {ErrorCode(code).name}")
            # The first one makes the topic of the offsets.
            connection.ask(FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=[group]))
            time.sleep(_RETRY_S)
        if code:
            raise BenchError(f"commit of {group}: {ErrorCode(code).name}")
    connection.socket.close()


def _commit_once(connection: Member, request: OffsetCommitRequest) -> int:
    """The first error code, or 0."""
    connection.send(frame(OFFSET_COMMIT, _VERSION, request))
    answer = OFFSET_COMMIT.decode_response(connection.receive(), _VERSION)
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    return next(filter(None, codes), 0)
