"""LeaderAndIsr, UpdateMetadata, StopReplica: the controller's requests to brokers."""

from __future__ import annotations

from typing import Any

import trio

from pyrklog.cluster import wire
from pyrklog.cluster.requests import (
    ControlResponse,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from pyrklog.cluster.valid_requests import wrong_with_request
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.context import Context
from pyrklog.protocol.inter_broker import (
    LeaderAndIsrRequest as LeaderAndIsrMessage,
)
from pyrklog.protocol.inter_broker import (
    StopReplicaRequest as StopReplicaMessage,
)
from pyrklog.protocol.inter_broker import (
    UpdateMetadataRequest as UpdateMetadataMessage,
)


async def _carried_out(context: Context, message: Any) -> Any:
    """Passes the request to the replicas, in the order of arrival, and waits for the result."""
    request = wire.request_of(message)
    wrong = wrong_with_request(request)
    if wrong is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, wrong)
    done = trio.Event()
    answers: list[ControlResponse] = []

    def answered(response: ControlResponse) -> None:
        answers.append(response)
        done.set()

    context.control_requests.post(request, answered)
    await done.wait()
    return wire.response_message(request, answers[0])


def _refused(message: Any, code: ErrorCode) -> Any:
    request = wire.request_of(message)
    response: ControlResponse
    if isinstance(request, UpdateMetadataRequest):
        response = code
    elif isinstance(message, LeaderAndIsrMessage):
        response = LeaderAndIsrResponse(code, {})
    else:
        response = StopReplicaResponse(code, {})
    return wire.response_message(request, response)


async def leader_and_isr(context: Context, message: LeaderAndIsrMessage) -> Any:
    return await _carried_out(context, message)


def leader_and_isr_error(message: LeaderAndIsrMessage, code: ErrorCode, _text: str | None) -> Any:
    return _refused(message, code)


async def update_metadata(context: Context, message: UpdateMetadataMessage) -> Any:
    return await _carried_out(context, message)


def update_metadata_error(
    message: UpdateMetadataMessage, code: ErrorCode, _text: str | None
) -> Any:
    return _refused(message, code)


async def stop_replica(context: Context, message: StopReplicaMessage) -> Any:
    return await _carried_out(context, message)


def stop_replica_error(message: StopReplicaMessage, code: ErrorCode, _text: str | None) -> Any:
    return _refused(message, code)
