"""DescribeLogDirs."""

from pyrklog.handlers.context import Context
from pyrklog.handlers.service import LogDirInfo
from pyrklog.protocol.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def describe_log_dirs(
    context: Context, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """All log directories of this broker with the given partitions; null means all."""
    wanted = None
    if request.topics is not None:
        wanted = [(topic.topic, topic.partitions) for topic in request.topics]
    described = await context.service.describe_log_dirs(wanted)
    return DescribeLogDirsResponse(results=[_result(one) for one in described])


def _result(info: LogDirInfo) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for one in info.partitions:
        topic = topics.setdefault(one.topic, DescribeLogDirsTopic(one.topic, []))
        topic.partitions.append(
            DescribeLogDirsPartition(one.partition, one.size_bytes, one.offset_lag)
        )
    return DescribeLogDirsResult(
        error_code=info.error,
        log_dir=info.path,
        topics=list(topics.values()),
        total_bytes=info.total_bytes,
        usable_bytes=info.usable_bytes,
    )
