"""The messages between brokers, byte for byte as Kafka's own classes (3.9.1) write them."""

from typing import Any

import pytest
from msgspec.structs import replace

from pyrklog.protocol.api import Api
from pyrklog.protocol.inter_broker import (
    FULL_REQUEST,
    INCREMENTAL_REQUEST,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    PartitionInfo,
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    TopicPartitions,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from pyrklog.protocol.to_controller import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlteredPartition,
    AlteredTopic,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

TOPIC_ID = bytes(range(1, 17))
LEAD = PartitionInfo(
    partition=2,
    controller_epoch=3,
    leader=1,
    leader_epoch=5,
    isr=(1, 2),
    partition_epoch=8,
    replicas=(1, 2, 3),
    adding=(3,),
    is_new=True,
    recovery_state=1,
)
TOLD = PartitionInfo(
    partition=2,
    controller_epoch=3,
    leader=-2,
    leader_epoch=5,
    isr=(1,),
    partition_epoch=8,
    replicas=(1, 2),
    offline=(2,),
)
ENDPOINT = UpdateMetadataEndpoint(9092, "h", "PLAINTEXT", 0)


def altered_topic(version: int, kind: Any, partition: Any) -> Any:
    name = {"topic_name": "t"} if version < 2 else {"topic_id": TOPIC_ID}
    return kind(partitions=[partition], **name)


def alter_partition(version: int) -> AlterPartitionRequest:
    members: dict[str, Any] = {"new_isr": [1, 2]}
    if version >= 3:
        members = {"new_isr_with_epochs": [BrokerState(1, 99), BrokerState(2)]}
    partition = AlterPartitionPartition(
        partition_index=2,
        leader_epoch=5,
        leader_recovery_state=int(version > 0),
        partition_epoch=8,
        **members,
    )
    topic = altered_topic(version, AlterPartitionTopic, partition)
    return AlterPartitionRequest(1, 99, [topic])


def altered(version: int) -> AlterPartitionResponse:
    partition = AlteredPartition(
        partition_index=2,
        leader_id=1,
        leader_epoch=5,
        isr=(1, 2),
        leader_recovery_state=int(version > 0),
        partition_epoch=9,
    )
    return AlterPartitionResponse(topics=[altered_topic(version, AlteredTopic, partition)])


Case = tuple[Api[Any, Any], int, Any, str]
CASES: list[Case] = [
    (
        LEADER_AND_ISR,
        7,
        LeaderAndIsrRequest(
            controller_id=7,
            controller_epoch=3,
            broker_epoch=99,
            type=INCREMENTAL_REQUEST,
            topic_states=[TopicPartitions("t", TOPIC_ID, [LEAD])],
            live_leaders=[LeaderAndIsrLiveLeader(1, "h", 9092)],
        ),
        "0000000700000000030000000000000063010202740102030405060708090a0b0c0d0e0f10020000"
        "00020000000300000001000000050300000001000000020000000804000000010000000200000003"
        "0200000003010101000002000000010268000023840000",
    ),
    (
        LEADER_AND_ISR,
        7,
        LeaderAndIsrResponse(
            0, [LeaderAndIsrTopicError(TOPIC_ID, [LeaderAndIsrPartitionError(2, 56)])]
        ),
        "0000020102030405060708090a0b0c0d0e0f1002000000020038000000",
    ),
    (
        STOP_REPLICA,
        4,
        StopReplicaRequest(
            controller_id=7,
            controller_epoch=3,
            broker_epoch=99,
            topic_states=[StopReplicaTopicState("t", [StopReplicaPartitionState(2, -2, True)])],
        ),
        "00000007000000000300000000000000630202740200000002fffffffe01000000",
    ),
    (
        STOP_REPLICA,
        4,
        StopReplicaRequest(
            controller_id=7,
            controller_epoch=3,
            broker_epoch=99,
            topic_states=[
                StopReplicaTopicState("t", [StopReplicaPartitionState(2, -2, True)], TOPIC_ID)
            ],
        ),
        "00000007000000000300000000000000630202740200000002fffffffe010001914e10"
        "0102030405060708090a0b0c0d0e0f1000",
    ),
    (
        STOP_REPLICA,
        4,
        StopReplicaResponse(11, [StopReplicaPartitionError("t", 2, 56)]),
        "000b0202740000000200380000",
    ),
    (
        UPDATE_METADATA,
        8,
        UpdateMetadataRequest(
            controller_id=7,
            controller_epoch=3,
            broker_epoch=99,
            topic_states=[TopicPartitions("t", TOPIC_ID, [TOLD])],
            live_brokers=[UpdateMetadataBroker(1, [ENDPOINT], "r")],
            type=FULL_REQUEST,
        ),
        "00000007000000000300000000000000630202740102030405060708090a0b0c0d0e0f1002000000"
        "0200000003fffffffe00000005020000000100000008030000000100000002020000000200000200"
        "000001020000238402680a504c41494e5445585400000002720001000102",
    ),
    (
        UPDATE_METADATA,
        8,
        UpdateMetadataResponse(77),
        "004d00",
    ),
    (
        CONTROLLED_SHUTDOWN,
        3,
        ControlledShutdownRequest(1, 99),
        "00000001000000000000006300",
    ),
    (
        CONTROLLED_SHUTDOWN,
        3,
        ControlledShutdownResponse(0, [RemainingPartition("t", 2)]),
        "0000020274000000020000",
    ),
    (
        ALTER_PARTITION,
        0,
        alter_partition(0),
        "00000001000000000000006302027402000000020000000503000000010000000200000008000000",
    ),
    (
        ALTER_PARTITION,
        0,
        altered(0),
        "00000000000002027402000000020000000000010000000503000000010000000200000009000000",
    ),
    (
        ALTER_PARTITION,
        1,
        alter_partition(1),
        "0000000100000000000000630202740200000002000000050300000001000000020100000008000000",
    ),
    (
        ALTER_PARTITION,
        1,
        altered(1),
        "0000000000000202740200000002000000000001000000050300000001000000020100000009000000",
    ),
    (
        ALTER_PARTITION,
        2,
        alter_partition(2),
        "000000010000000000000063020102030405060708090a0b0c0d0e0f100200000002000000050300"
        "000001000000020100000008000000",
    ),
    (
        ALTER_PARTITION,
        2,
        altered(2),
        "000000000000020102030405060708090a0b0c0d0e0f100200000002000000000001000000050300"
        "000001000000020100000009000000",
    ),
    (
        ALTER_PARTITION,
        3,
        alter_partition(3),
        "000000010000000000000063020102030405060708090a0b0c0d0e0f100200000002000000050300"
        "00000100000000000000630000000002ffffffffffffffff000100000008000000",
    ),
    (
        ALTER_PARTITION,
        3,
        altered(3),
        "000000000000020102030405060708090a0b0c0d0e0f100200000002000000000001000000050300"
        "000001000000020100000009000000",
    ),
    (
        ALLOCATE_PRODUCER_IDS,
        0,
        AllocateProducerIdsRequest(1, 99),
        "00000001000000000000006300",
    ),
    (
        ALLOCATE_PRODUCER_IDS,
        0,
        AllocateProducerIdsResponse(0, 0, 3000, 1000),
        "0000000000000000000000000bb8000003e800",
    ),
]


def name_of(case: Case) -> str:
    return f"{type(case[2]).__name__}-v{case[1]}"


@pytest.mark.parametrize(("api", "version", "message", "written"), CASES, ids=map(name_of, CASES))
def test_bytes_are_kafkas(api: Api[Any, Any], version: int, message: Any, written: str) -> None:
    if isinstance(message, api.request):
        assert api.encode_request(message, version).hex() == written
        assert api.decode_request(bytes.fromhex(written), version) == message
    else:
        assert api.encode_response(message, version).hex() == written
        assert api.decode_response(bytes.fromhex(written), version) == message


def test_partial_replicas_are_tagged_and_cost_others_nothing() -> None:
    """Tags 10007 and 10008: one section of one field each, an array of one broker."""
    cases: list[tuple[Api[Any, Any], Any, Any, str]] = [
        (
            LEADER_AND_ISR,
            LeaderAndIsrRequest(7, topic_states=[TopicPartitions("t", TOPIC_ID, [LEAD])]),
            LeaderAndIsrRequest(
                7, topic_states=[TopicPartitions("t", TOPIC_ID, [replace(LEAD, partial=(3,))])]
            ),
            "01974e050200000003",
        ),
        (
            ALTER_PARTITION,
            AlterPartitionRequest(1, 99, [_altering()]),
            AlterPartitionRequest(1, 99, [_altering(3)]),
            "01984e050200000003",
        ),
    ]
    for api, plain, tagged_one, tag in cases:
        version = api.versions[1]
        without = api.encode_request(plain, version).hex()
        body = api.encode_request(tagged_one, version)
        assert tag in body.hex()
        assert tag not in without
        assert len(body.hex()) == len(without) + len(tag) - 2
        assert api.decode_request(body, version) == tagged_one


def _altering(*whole: int) -> AlterPartitionTopic:
    partition = AlterPartitionPartition(2, 5, partition_epoch=8, whole=whole)
    return AlterPartitionTopic(topic_id=TOPIC_ID, partitions=[partition])
