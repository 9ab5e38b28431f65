"""AlterReplicaLogDirs and DescribeLogDirs."""

from collections.abc import Iterable

from pyrklog.handlers.context import Context
from pyrklog.plane.seam import LogDirUsage
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def alter_replica_log_dirs(
    context: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begins moves of this broker's replicas. A partition's last directory counts, as in Kafka."""
    wanted = _wanted(request)
    codes = await context.service.alter_log_dirs(
        [(topic, index, path) for (topic, index), path in wanted.items()]
    )
    return _answer(zip(wanted, codes, strict=True))


def alter_replica_log_dirs_error(
    request: AlterReplicaLogDirsRequest, code: ErrorCode, _message: str | None
) -> AlterReplicaLogDirsResponse:
    return _answer((place, code) for place in _wanted(request))


def _wanted(request: AlterReplicaLogDirsRequest) -> dict[tuple[str, int], str]:
    return {
        (topic.name, index): one.path
        for one in request.dirs
        for topic in one.topics
        for index in topic.partitions
    }


def _answer(codes: Iterable[tuple[tuple[str, int], int]]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), code in codes:
        topic = topics.setdefault(name, AlterReplicaLogDirTopicResult(name, []))
        topic.partitions.append(AlterReplicaLogDirPartitionResult(index, code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


async def describe_log_dirs(
    context: Context, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """All log directories of this broker with the given partitions; null means all."""
    wanted = None
    if request.topics is not None:
        wanted = [(topic.topic, topic.partitions) for topic in request.topics]
    described = await context.service.describe_log_dirs(wanted)
    return DescribeLogDirsResponse(results=[_result(one) for one in described])


def _result(usage: LogDirUsage) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for name, index, size_bytes, lag, is_future in usage.partitions:
        topic = topics.setdefault(name, DescribeLogDirsTopic(name, []))
        topic.partitions.append(DescribeLogDirsPartition(index, size_bytes, lag, is_future))
    return DescribeLogDirsResult(
        error_code=usage.error_code,
        log_dir=usage.path,
        topics=list(topics.values()),
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
    )
