"""DescribeLogDirs."""

from pyrklog.handlers.context import Context
from pyrklog.plane.seam import LogDirUsage
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


def _result(usage: LogDirUsage) -> DescribeLogDirsResult:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for name, index, size_bytes, lag in usage.partitions:
        topic = topics.setdefault(name, DescribeLogDirsTopic(name, []))
        topic.partitions.append(DescribeLogDirsPartition(index, size_bytes, lag))
    return DescribeLogDirsResult(
        error_code=usage.error_code,
        log_dir=usage.path,
        topics=list(topics.values()),
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
    )
