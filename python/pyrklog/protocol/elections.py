"""ElectLeaders (KIP-460)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int8, Int16, Int32, Message, Str, empty_list, since


class ElectedTopic(Message):
    """Partitions of one topic."""

    topic: Str
    partitions: list[Int32]


class ElectLeadersRequest(Message):
    """``topic_partitions`` null: all of them."""

    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: list[ElectedTopic] | None = None
    timeout_ms: Int32 = 60_000


class PartitionResult(Message):
    """Whether the partition has the leader that was asked for."""

    partition_id: Int32
    error_code: Int16 = 0
    error_message: Str | None = None


class ReplicaElectionResult(Message):
    """Partitions of one topic."""

    topic: Str
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Message):
    """One answer for each partition asked for."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult] = empty_list()


ELECT_LEADERS = Api(
    43,
    "ElectLeaders",
    ElectLeadersRequest,
    ElectLeadersResponse,
    versions=(0, 2),
    flexible_since=2,
)
