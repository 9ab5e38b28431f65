"""ObserveBroker, our own: the controller asks a broker whether a third broker answers it.

Its key is far above Kafka's, as in ``verification.py``; ApiVersions omits it.
"""

from enum import IntEnum

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int8, Int16, Int32, Message


class Outcome(IntEnum):
    UNKNOWN = 0
    """The observer does not know that broker, was late itself, or was refused."""
    ANSWERED = 1
    SILENT = 2
    """No connection, or no answer, in the whole time."""


class ObserveBrokerRequest(Message):
    """``timeout_ms``: how long to wait for ``broker_id``."""

    broker_id: Int32
    timeout_ms: Int32


class ObserveBrokerResponse(Message):
    error_code: Int16 = 0
    outcome: Int8 = Outcome.UNKNOWN


OBSERVE_BROKER = Api(
    20_003, ObserveBrokerRequest, ObserveBrokerResponse, versions=(0, 0), flexible_since=0
)
