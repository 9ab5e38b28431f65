"""ObserveBroker, our own: the controller asks a broker whether a third one answers it.

As ReplicaDigest (``verification.py``) it has a key far above Kafka's, and ApiVersions does not tell
of it.
"""

from enum import IntEnum

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int8, Int16, Int32, Message


class Outcome(IntEnum):
    """What the broker that was asked has seen."""

    UNKNOWN = 0
    """It cannot say: it does not know that broker, was late itself, or was refused."""
    ANSWERED = 1
    SILENT = 2
    """A connection was not made, or a request on it not answered, in all of the time."""


class ObserveBrokerRequest(Message):
    """``timeout_ms`` is how long to wait for the answer of the broker ``broker_id``."""

    broker_id: Int32
    timeout_ms: Int32


class ObserveBrokerResponse(Message):
    """``outcome`` is an :class:`Outcome`."""

    error_code: Int16 = 0
    outcome: Int8 = Outcome.UNKNOWN


OBSERVE_BROKER = Api(
    20_003,
    "ObserveBroker",
    ObserveBrokerRequest,
    ObserveBrokerResponse,
    versions=(0, 0),
    flexible_since=0,
)
