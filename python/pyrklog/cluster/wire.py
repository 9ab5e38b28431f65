"""The controller's requests and their answers, between values and Kafka's messages. Pure.

LeaderAndIsr's answer has topic ids, StopReplica's has names. Both have every partition asked for,
unless the request is refused as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from pyrklog.base.pieces import Turn
from pyrklog.cluster.requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LogEnd,
    StopReplica,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from pyrklog.errors import ErrorCode
from pyrklog.plane.values import BrokerImage
from pyrklog.protocol import inter_broker as wire
from pyrklog.protocol.api import Api
from pyrklog.protocol.compiler import message_writer
from pyrklog.protocol.primitives import EncodeError, write_unsigned_varint

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Kafka's numbers."""

_BROKER_EPOCH_AT = 9
_TOPICS_AT = 17
"""In the body of an UpdateMetadata v8: behind controller id, KRaft flag and controller epoch."""


_APIS: dict[type[ControlRequest], Api[Any, Any]] = {
    LeaderAndIsrRequest: wire.LEADER_AND_ISR,
    UpdateMetadataRequest: wire.UPDATE_METADATA,
    StopReplicaRequest: wire.STOP_REPLICA,
}


def api_of(request: ControlRequest) -> Api[Any, Any]:
    """The controller speaks only its highest version."""
    return _APIS[type(request)]


def encode_request(
    request: ControlRequest, brokers: Mapping[int, BrokerImage], listener: str
) -> bytes:
    """The body of a request. ``listener`` is the one between brokers."""
    api = api_of(request)
    message: Any
    match request:
        case LeaderAndIsrRequest():
            message = _leader_and_isr(request, brokers, listener)
        case UpdateMetadataRequest():
            message = _update_metadata(request)
        case StopReplicaRequest():
            message = _stop_replica(request)
    return api.encode_request(message, api.versions[1])


def _head(request: ControlRequest) -> tuple[int, bool, int, int]:
    """The first fields of each message; False: no KRaft controller."""
    return request.controller_id, False, request.controller_epoch, request.broker_epoch


def _leader_and_isr(
    request: LeaderAndIsrRequest, brokers: Mapping[int, BrokerImage], listener: str
) -> wire.LeaderAndIsrRequest:
    leaders = {info.leader for topic in request.topics for info in topic.partitions}
    addresses = [
        wire.LeaderAndIsrLiveLeader(broker, host, port)
        for broker in sorted(leaders & brokers.keys())
        for name, host, port in brokers[broker].endpoints
        if name == listener
    ]
    return wire.LeaderAndIsrRequest(
        *_head(request),
        topic_states=list(request.topics),
        live_leaders=addresses,
    )


def metadata_pieces(request: UpdateMetadataRequest) -> Generator[None, None, bytes]:
    """The body of an UpdateMetadata, as :func:`encode_request` makes it; yields in between where
    there are many partitions. Raises :class:`EncodeError`.
    """
    api = wire.UPDATE_METADATA
    version = api.versions[1]
    around = api.encode_request(_update_metadata(request._replace(topics=[])), version)
    body = bytearray(around[:_TOPICS_AT])
    write_unsigned_varint(body, len(request.topics) + 1)
    write = message_writer(wire.TopicPartitions, version, True)
    turn = Turn()
    for topic in request.topics:
        try:
            write(body, topic)
        except (struct.error, OverflowError, UnicodeEncodeError) as error:
            raise EncodeError(f"UpdateMetadata of {topic.topic}: {error}") from None
        if turn.is_over(len(topic.partitions)):
            yield
    # Skips the count of no topics, one byte.
    return bytes(body + around[_TOPICS_AT + 1 :])


def with_broker_epoch(body: bytes, broker_epoch: int) -> bytes:
    """The body of an UpdateMetadata for another broker."""
    return body[:_BROKER_EPOCH_AT] + struct.pack(">q", broker_epoch) + body[_TOPICS_AT:]


def _update_metadata(request: UpdateMetadataRequest) -> wire.UpdateMetadataRequest:
    return wire.UpdateMetadataRequest(
        *_head(request),
        topic_states=list(request.topics),
        live_brokers=[_broker(broker) for broker in request.brokers],
        number=request.number,
        is_full=request.is_full,
    )


def _broker(broker: BrokerImage) -> wire.UpdateMetadataBroker:
    # A listener without a protocol's name is plaintext: there is no other yet.
    endpoints = [
        wire.UpdateMetadataEndpoint(port, host, name, SECURITY_PROTOCOLS.get(name, 0))
        for name, host, port in broker.endpoints
    ]
    return wire.UpdateMetadataBroker(broker.id, endpoints, broker.rack)


def _stop_replica(request: StopReplicaRequest) -> wire.StopReplicaRequest:
    topics: dict[str, wire.StopReplicaTopicState] = {}
    for item in request.replicas:
        topic = topics.setdefault(
            item.topic, wire.StopReplicaTopicState(item.topic, [], item.topic_id)
        )
        topic.partition_states.append(
            wire.StopReplicaPartitionState(item.partition, item.leader_epoch, item.delete)
        )
    return wire.StopReplicaRequest(
        *_head(request),
        topic_states=list(topics.values()),
    )


def request_of(message: Any) -> ControlRequest:
    """The request in a message of one of these APIs."""
    head = message.controller_id, message.controller_epoch, message.broker_epoch
    match message:
        case wire.LeaderAndIsrRequest():
            return LeaderAndIsrRequest(*head, message.topic_states)
        case wire.UpdateMetadataRequest():
            brokers = [_told_broker(broker) for broker in message.live_brokers]
            return UpdateMetadataRequest(
                *head, message.topic_states, brokers, message.number, message.is_full
            )
        case wire.StopReplicaRequest():
            replicas = [
                StopReplica(
                    topic.topic_name,
                    item.partition_index,
                    item.leader_epoch,
                    item.delete_partition,
                    topic.topic_id,
                )
                for topic in message.topic_states
                for item in topic.partition_states
            ]
            return StopReplicaRequest(*head, replicas)
        case _:
            raise TypeError(f"{type(message).__name__} is no request of a controller")


def _told_broker(broker: wire.UpdateMetadataBroker) -> BrokerImage:
    endpoints = [(item.listener, item.host, item.port) for item in broker.endpoints]
    return BrokerImage(broker.id, broker.rack, endpoints)


def response_message(request: ControlRequest, response: ControlResponse) -> Any:
    if isinstance(response, ErrorCode):
        return wire.UpdateMetadataResponse(response)
    if isinstance(response, LeaderAndIsrResponse):
        assert isinstance(request, LeaderAndIsrRequest)
        return wire.LeaderAndIsrResponse(response.error, _errors_by_id(request.topics, response))
    errors = response.errors.items()
    return wire.StopReplicaResponse(
        response.error, [wire.StopReplicaPartitionError(*key, error) for key, error in errors]
    )


def _errors_by_id(
    topics: Sequence[wire.TopicPartitions], response: LeaderAndIsrResponse
) -> list[wire.LeaderAndIsrTopicError]:
    ids = {topic.topic: topic.topic_id for topic in topics}
    found: dict[str, wire.LeaderAndIsrTopicError] = {}
    for (topic, partition), error in response.errors.items():
        entry = found.setdefault(topic, wire.LeaderAndIsrTopicError(ids[topic], []))
        end = list(response.ends.get((topic, partition), ()))
        entry.partition_errors.append(wire.LeaderAndIsrPartitionError(partition, error, end))
    return list(found.values())


def decode_response(request: ControlRequest, body: bytes) -> ControlResponse:
    """The answer to ``request``. Raises :class:`DecodeError`.

    An unknown error counts as UNKNOWN_SERVER_ERROR; unknown topic ids are left out.
    """
    api = api_of(request)
    message = api.decode_response(body, api.versions[1])
    match message:
        case wire.UpdateMetadataResponse():
            return error_of(message.error_code)
        case wire.LeaderAndIsrResponse():
            assert isinstance(request, LeaderAndIsrRequest)
            names = {topic.topic_id: topic.topic for topic in request.topics}
            answers = [
                ((names[topic.topic_id], item.partition_index), item)
                for topic in message.topics
                if topic.topic_id in names
                for item in topic.partition_errors
            ]
            return LeaderAndIsrResponse(
                error_of(message.error_code),
                {key: error_of(item.error_code) for key, item in answers},
                {key: LogEnd(*item.log_end) for key, item in answers if len(item.log_end) == 3},
            )
        case wire.StopReplicaResponse():
            errors = {
                (item.topic_name, item.partition_index): error_of(item.error_code)
                for item in message.partition_errors
            }
            return StopReplicaResponse(error_of(message.error_code), errors)
        case _:
            raise TypeError(f"{api.name} is no request of a controller")


def error_of(code: int) -> ErrorCode:
    """Unknown errors are UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
