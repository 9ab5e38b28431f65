"""TxnOffsetCommit (KIP-98, KIP-447, KIP-890)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int16, Int32, Int64, Message, Str, empty_list, since
from pyrklog.protocol.groups import NO_GENERATION, NO_MEMBER_ID
from pyrklog.protocol.offsets import NO_LEADER_EPOCH


class TxnOffsetCommitRequestPartition(Message):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Annotated[Int32, since(2)] = NO_LEADER_EPOCH
    committed_metadata: Str | None = None


class TxnOffsetCommitRequestTopic(Message):
    name: Str
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Message):
    """Member and generation since KIP-447. From version 5 on the group's coordinator adds its
    partition to the transaction; before, AddOffsetsToTxn has done it."""

    transactional_id: Str
    group_id: Str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Annotated[Int32, since(3)] = NO_GENERATION
    member_id: Annotated[Str, since(3)] = NO_MEMBER_ID
    group_instance_id: Annotated[Str | None, since(3)] = None
    topics: list[TxnOffsetCommitRequestTopic] = empty_list()


class TxnOffsetCommitResponsePartition(Message):
    partition_index: Int32
    error_code: Int16


class TxnOffsetCommitResponseTopic(Message):
    name: Str
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = empty_list()


TXN_OFFSET_COMMIT = Api(
    28, TxnOffsetCommitRequest, TxnOffsetCommitResponse, versions=(0, 5), flexible_since=3
)
