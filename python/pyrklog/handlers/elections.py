from collections.abc import Mapping

from pyrklog.cluster.requests import ElectionKind, Refusal, TopicPartition
from pyrklog.handlers.context import Context
from pyrklog.protocol.elections import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pyrklog.protocol.errors import ApiError, ErrorCode


async def elect_leaders(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Preferred or unclean elections; done when this broker shows clients the new leaders.

    If all partitions are asked, those with the right leader are left out, as in Kafka.
    """
    try:
        kind = ElectionKind(request.election_type)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Election type {request.election_type} is unknown."
        ) from None
    keys = _keys(request)
    results = await context.controller.elect(kind, keys)
    if results is None:
        if keys is None:
            keys = [
                (topic.name, index)
                for topic in context.service.topics()
                for index in range(topic.partition_count)
            ]
        refused = Refusal(ErrorCode.NOT_CONTROLLER)
        # As in Kafka, on each partition only: Java's client gives up at a top-level error.
        return _response(dict.fromkeys(keys, refused))
    leaders = {key: one.leader for key, one in results.items() if not one.refusal.error}
    late = await context.service.wait_for_leaders(leaders, timeout_ms=request.timeout_ms)
    answers = {key: one.refusal for key, one in results.items()}
    answers |= dict.fromkeys(late, Refusal(ErrorCode.REQUEST_TIMED_OUT))
    if keys is None:
        needless = ErrorCode.ELECTION_NOT_NEEDED
        answers = {key: one for key, one in answers.items() if one.error is not needless}
    return _response(answers)


def elect_leaders_error(
    request: ElectLeadersRequest, code: ErrorCode, message: str | None
) -> ElectLeadersResponse:
    """Older versions have no top-level code."""
    return _response(dict.fromkeys(_keys(request) or [], Refusal(code, message)), code)


def _keys(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    found = [(one.topic, index) for one in request.topic_partitions for index in one.partitions]
    return list(dict.fromkeys(found))


def _response(
    answers: Mapping[TopicPartition, Refusal], code: ErrorCode = ErrorCode.NONE
) -> ElectLeadersResponse:
    topics: dict[str, list[PartitionResult]] = {}
    for (topic, partition), (error, message) in answers.items():
        result = PartitionResult(partition, error, (message or error.message) if error else None)
        topics.setdefault(topic, []).append(result)
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[ReplicaElectionResult(*item) for item in topics.items()],
    )
