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


def _refused(message: Any, code: ErrorCode, _text: str | None) -> Any:
    request = wire.request_of(message)
    response: ControlResponse
    if isinstance(request, UpdateMetadataRequest):
        response = code
    elif isinstance(message, LeaderAndIsrMessage):
        response = LeaderAndIsrResponse(code, {})
    else:
        response = StopReplicaResponse(code, {})
    return wire.response_message(request, response)


leader_and_isr = update_metadata = stop_replica = _carried_out
leader_and_isr_error = update_metadata_error = stop_replica_error = _refused
