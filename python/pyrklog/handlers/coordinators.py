"""FindCoordinator for groups and transactions."""

from pyrklog.handlers.context import Context, step
from pyrklog.protocol.coordinators import (
    KEY_GROUP,
    KEY_TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyrklog.protocol.errors import ApiError, ErrorCode

SEVERAL_KEYS_SINCE = 4
"""First version with several keys (KIP-699)."""


async def find_coordinator(
    context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """One answer a key; before version 4 the response is the one answer."""
    if request.key_type not in (KEY_GROUP, KEY_TRANSACTION):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Coordinator type {request.key_type} is unknown."
        )
    if context.api_version >= SEVERAL_KEYS_SINCE:
        coordinators = []
        for count, key in enumerate(request.coordinator_keys, 1):
            coordinators.append(await _find(context, request.key_type, key))
            await step(count)
        return FindCoordinatorResponse(coordinators=coordinators)
    found = await _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(context: Context, key_type: int, key: str) -> Coordinator:
    listener = context.session.listener
    if key_type == KEY_TRANSACTION:
        error, endpoint = await context.transactions.coordinator.find(key, listener)
    else:
        error, endpoint = await context.groups.find(key, listener)
    if endpoint is None:
        return Coordinator(key, error_code=error, error_message=error.message)
    return Coordinator(key, endpoint.node_id, endpoint.host, endpoint.port)


def find_coordinator_error(
    request: FindCoordinatorRequest, code: ErrorCode, message: str | None
) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        coordinators=[
            Coordinator(key, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ],
    )
