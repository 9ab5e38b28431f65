"""CreateTopics, DeleteTopics, CreatePartitions. Fields: KIP-4, 195, 464, 516, 525, 599."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import (
    NO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    Str,
    Uuid,
    empty_list,
    nullable,
    since,
    tagged,
    until,
)

NO_COUNT = -1
"""Partition count or replication factor: "the broker's default" or "unknown"."""


class CreatableReplicaAssignment(Message):
    """The brokers of a partition, the preferred leader first."""

    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Message):
    """An option to set; the broker refuses null."""

    name: Str
    value: Str | None


class CreatableTopic(Message):
    """With ``assignments``, both counts are -1."""

    name: Str
    num_partitions: Int32 = NO_COUNT
    replication_factor: Int16 = NO_COUNT
    assignments: list[CreatableReplicaAssignment] = empty_list()
    configs: list[CreatableTopicConfig] = empty_list()


class CreateTopicsRequest(Message):
    """``timeout_ms``: how long the answer may wait for the topics to be usable."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60_000
    validate_only: Annotated[Bool, since(1)] = False


class CreatableTopicConfigs(Message):
    """An option of the created topic (KIP-525)."""

    name: Str
    value: Str | None
    read_only: Bool
    config_source: Int8
    is_sensitive: Bool


class CreatableTopicResult(Message):
    """``configs`` null: the caller may not describe them."""

    name: Str
    topic_id: Annotated[Uuid, since(7)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[Str | None, since(1)] = None
    num_partitions: Annotated[Int32, since(5)] = NO_COUNT
    replication_factor: Annotated[Int16, since(5)] = NO_COUNT
    configs: Annotated[list[CreatableTopicConfigs] | None, since(5)] = empty_list()
    topic_config_error_code: Annotated[Int16, tagged(0, since=5)] = 0


class CreateTopicsResponse(Message):
    """In the order of the request."""

    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: list[CreatableTopicResult] = empty_list()


class DeleteTopicState(Message):
    """A topic by its name or, with ``name`` null, by its id."""

    name: Str | None = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(Message):
    """``topics`` since version 6, ``topic_names`` before."""

    topics: Annotated[list[DeleteTopicState], since(6)] = empty_list()
    topic_names: Annotated[list[Str], until(5)] = empty_list()
    timeout_ms: Int32 = 60_000


class DeletableTopicResult(Message):
    """``name`` null: the id is unknown."""

    name: Annotated[Str | None, nullable(6)]
    topic_id: Annotated[Uuid, since(6)] = NO_UUID
    error_code: Int16 = 0
    error_message: Annotated[Str | None, since(5)] = None


class DeleteTopicsResponse(Message):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    responses: list[DeletableTopicResult] = empty_list()


class CreatePartitionsAssignment(Message):
    broker_ids: list[Int32]


class CreatePartitionsTopic(Message):
    """``count`` is the new total; ``assignments`` covers only the new partitions."""

    name: Str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = None


class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32 = 60_000
    validate_only: Bool = False


class CreatePartitionsTopicResult(Message):
    name: Str
    error_code: Int16 = 0
    error_message: Str | None = None


class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = empty_list()


CREATE_TOPICS = Api(
    19, CreateTopicsRequest, CreateTopicsResponse, versions=(0, 7), flexible_since=5
)
DELETE_TOPICS = Api(
    20, DeleteTopicsRequest, DeleteTopicsResponse, versions=(0, 6), flexible_since=4
)
CREATE_PARTITIONS = Api(
    37, CreatePartitionsRequest, CreatePartitionsResponse, versions=(0, 3), flexible_since=2
)
