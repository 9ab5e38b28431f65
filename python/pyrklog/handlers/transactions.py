"""Transactions are not served yet (skipped.md): clients are refused, and operators told."""

from pyrklog.base.logs import get_logger
from pyrklog.base.told import Told
from pyrklog.handlers.context import Context
from pyrklog.protocol.errors import ApiError, ErrorCode

TELL_SECONDS = 3600.0
CLIENTS_MAX = 100
"""So many are told of within that time; there may be no end of client ids."""
SHOWN_CHARACTERS_MAX = 200

log = get_logger("transactions")
_told = Told(TELL_SECONDS, CLIENTS_MAX)


def refusal(context: Context, transactional_id: str) -> ApiError:
    """What a client is answered: a code that no client tries again.

    Some libraries show their user a time-out all the same, so the broker's log says what it was.
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
