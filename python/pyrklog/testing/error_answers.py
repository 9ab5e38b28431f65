"""Answers in which every part has an error, in the API's version.

Those of APIs that Python serves are the handlers' own. Fetch, Produce and others are answered in
Rust, and here by codecs of :mod:`.data_apis`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from pyrklog.errors import ErrorCode
from pyrklog.handlers.dispatch import load_route
from pyrklog.protocol.api import Api
from pyrklog.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyrklog.protocol.registry import ROWS
from pyrklog.testing import data_apis as data

METADATA = 3
API_VERSIONS = 18


class Answer(NamedTuple):
    """``is_put_off``: the error itself comes with another request, which this answer calls
    forth."""

    body: bytes
    is_put_off: bool = False


def error_answer(api_key: int, version: int, body: bytes, code: ErrorCode) -> Answer | None:
    """The answer to a request that the broker does not get to see; None for APIs whose answers are
    changed (:func:`with_error`). Raises :class:`DecodeError` for a malformed request, EncodeError.
    """
    if api_key in ROWS:
        route = load_route(api_key)
        answer = route.error_answer(route.api.decode_request(body, version), code, code.message)
        return Answer(route.api.encode_response(answer, version))
    builder = _BUILDERS.get(api_key)
    if builder is None:
        return None
    api, build = builder
    request = api.decode_request(body, version)
    if api is data.FETCH and request.session_epoch not in data.FULL_FETCH_EPOCHS:
        # It names only partitions that changed. Without its session, the client names all again.
        gone = data.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return Answer(api.encode_response(gone, version), is_put_off=True)
    return Answer(api.encode_response(build(request, code), version))


def with_error(api_key: int, version: int, body: bytes, code: ErrorCode) -> bytes:
    """The broker's own answer (Metadata, ApiVersions) with an error. Raises
    :class:`DecodeError`."""
    if api_key == API_VERSIONS:
        return struct.pack(">h", code) + body[2:]
    answer = data.METADATA.decode_response(body, version)
    for topic in answer.topics:
        topic.error_code = code
        topic.partitions = []
    return data.METADATA.encode_response(answer, version)


def _produce(request: data.ProduceRequest, code: ErrorCode) -> data.ProduceResponse:
    return data.ProduceResponse(
        [
            data.ProduceTopicResult(
                topic.name,
                [
                    data.ProducePartitionResult(one.index, code, error_message=code.message)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fetch(request: data.FetchRequest, code: ErrorCode) -> data.FetchResponse:
    return data.FetchResponse(
        topics=[
            data.FetchTopicResult(
                topic.topic,
                topic.topic_id,
                [data.FetchPartitionResult(one.partition, code) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _list_offsets(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(one.partition_index, code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _epochs(
    request: data.OffsetForLeaderEpochRequest, code: ErrorCode
) -> data.OffsetForLeaderEpochResponse:
    return data.OffsetForLeaderEpochResponse(
        topics=[
            data.EpochTopicResult(
                topic.topic,
                [data.EpochPartitionResult(code, one.partition) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _replica_start(
    _request: data.ReplicaStartRequest, code: ErrorCode
) -> data.ReplicaStartResponse:
    return data.ReplicaStartResponse(code)


def _replica_segments(
    _request: data.ReplicaSegmentsRequest, code: ErrorCode
) -> data.ReplicaSegmentsResponse:
    return data.ReplicaSegmentsResponse(code)


_BUILDERS: dict[int, tuple[Api[Any, Any], Callable[[Any, ErrorCode], Any]]] = {
    data.PRODUCE.key: (data.PRODUCE, _produce),
    data.PRODUCE_AT.key: (data.PRODUCE_AT, _produce),
    data.FETCH.key: (data.FETCH, _fetch),
    data.LIST_OFFSETS.key: (data.LIST_OFFSETS, _list_offsets),
    data.OFFSET_FOR_LEADER_EPOCH.key: (data.OFFSET_FOR_LEADER_EPOCH, _epochs),
    data.REPLICA_START.key: (data.REPLICA_START, _replica_start),
    data.REPLICA_SEGMENTS.key: (data.REPLICA_SEGMENTS, _replica_segments),
}
