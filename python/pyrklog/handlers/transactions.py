from pyrklog.base.logs import get_logger
from pyrklog.base.told import Told
from pyrklog.handlers.context import Context
from pyrklog.protocol.errors import ApiError, ErrorCode

TELL_SECONDS = 3600.0
CLIENTS_MAX = 100
"""Most clients to log in that time: client ids may be endless."""
SHOWN_CHARACTERS_MAX = 200

log = get_logger("transactions")
_told = Told(TELL_SECONDS, CLIENTS_MAX)


def refusal(context: Context, transactional_id: str) -> ApiError:
    """An error that no client retries.

    Some libraries report a time-out all the same, so the broker's log names the reason.
    """
    client_id = (context.session.client_id or "")[:SHOWN_CHARACTERS_MAX]
    if _told.is_due(client_id):
        log.warning(
            "transactions_not_served",
            client_id=client_id,
            transactional_id=transactional_id[:SHOWN_CHARACTERS_MAX],
            host=context.session.host,
            consequence="the producer gets UNSUPPORTED_VERSION, and its library may report a "
            "time-out",
            fix="leave transactional.id out; enable.idempotence is served",
        )
    return ApiError(ErrorCode.UNSUPPORTED_VERSION, "Transactions are not served.")
