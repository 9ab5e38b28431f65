"""ElectLeaders (KIP-460)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int8, Int16, Int32, Message, Str, empty_list, since


class ElectedTopic(Message):
    topic: Str
    partitions: list[Int32]


class ElectLeadersRequest(Message):
    """``topic_partitions`` null: all."""

    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: list[ElectedTopic] | None = None
    timeout_ms: Int32 = 60_000


class PartitionResult(Message):
    partition_id: Int32
    error_code: Int16 = 0
    error_message: Str | None = None


class ReplicaElectionResult(Message):
    topic: Str
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: list[ReplicaElectionResult] = empty_list()


ELECT_LEADERS = Api(
    43, ElectLeadersRequest, ElectLeadersResponse, versions=(0, 2), flexible_since=2
)
