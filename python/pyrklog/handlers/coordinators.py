"""FindCoordinator: says that there is none.

librdkafka takes a broker without this API for one that cannot read LZ4, and silently sends
uncompressed batches; so the API is served before the coordinators are. A group's coordinator is
"not available", which clients that assign their own partitions never notice; a transaction's is
refused with a code that no client retries.
"""

from pyrklog.handlers.context import Context
from pyrklog.protocol.coordinators import (
    KEY_GROUP,
    KEY_TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyrklog.protocol.errors import ApiError, ErrorCode

_REFUSALS = {
    KEY_GROUP: (ErrorCode.COORDINATOR_NOT_AVAILABLE, "Consumer groups are not served."),
    KEY_TRANSACTION: (ErrorCode.UNSUPPORTED_VERSION, "Transactions are not served."),
}


async def find_coordinator(
    _context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    """No coordinator, and why."""
    refusal = _REFUSALS.get(request.key_type)
    if refusal is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Coordinator type {request.key_type} is unknown."
        )
    raise ApiError(*refusal)


def find_coordinator_error(
    request: FindCoordinatorRequest, code: ErrorCode, message: str | None
) -> FindCoordinatorResponse:
    """The same code for each key."""
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        coordinators=[
            Coordinator(key, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ],
    )
