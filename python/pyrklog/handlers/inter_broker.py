"""LeaderAndIsr, UpdateMetadata, StopReplica: the controller's requests to brokers."""

from __future__ import annotations

from typing import Any

import trio

from pyrklog.cluster import wire
from pyrklog.cluster.requests import (
    ControlResponse,
)
from pyrklog.cluster.valid_requests import wrong_with_request
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.context import Context


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


leader_and_isr = update_metadata = stop_replica = _carried_out
