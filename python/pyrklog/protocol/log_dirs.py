"""AlterReplicaLogDirs and DescribeLogDirs (KIP-113, KIP-827)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Bool, Int16, Int32, Int64, Message, Str, empty_list, since

UNKNOWN_BYTES = -1


class AlterReplicaLogDirTopic(Message):
    name: Str
    partitions: list[Int32]


class AlterReplicaLogDir(Message):
    """``path``: the absolute path of the directory that the replicas are to move to."""

    path: Str
    topics: list[AlterReplicaLogDirTopic] = empty_list()


class AlterReplicaLogDirsRequest(Message):
    dirs: list[AlterReplicaLogDir] = empty_list()


class AlterReplicaLogDirPartitionResult(Message):
    partition_index: Int32
    error_code: Int16


class AlterReplicaLogDirTopicResult(Message):
    topic_name: Str
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Message):
    """Error 0: the move is under way, or the replica is there already."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = empty_list()


class DescribableLogDirTopic(Message):
    topic: Str
    partitions: list[Int32]


class DescribeLogDirsRequest(Message):
    """``topics`` null: all."""

    topics: list[DescribableLogDirTopic] | None = None


class DescribeLogDirsPartition(Message):
    """``offset_lag``: how far a future replica is behind the current one, or a current one's end
    behind the high watermark."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool = False


class DescribeLogDirsTopic(Message):
    name: Str
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Message):
    """The byte counts are of the directory's volume."""

    error_code: Int16
    log_dir: Str
    topics: list[DescribeLogDirsTopic] = empty_list()
    total_bytes: Annotated[Int64, since(4)] = UNKNOWN_BYTES
    usable_bytes: Annotated[Int64, since(4)] = UNKNOWN_BYTES


class DescribeLogDirsResponse(Message):
    """All log directories of the answering broker."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    results: list[DescribeLogDirsResult] = empty_list()


ALTER_REPLICA_LOG_DIRS = Api(
    34, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, versions=(0, 2), flexible_since=2
)
DESCRIBE_LOG_DIRS = Api(
    35, DescribeLogDirsRequest, DescribeLogDirsResponse, versions=(0, 4), flexible_since=2
)
