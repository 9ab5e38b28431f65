"""What a failure that ends a mirror is called, and what to do about it."""

from __future__ import annotations

from pyrklog.mirror.errors import AwayError, Kind, MirrorError
from pyrklog.mirror.names import Names
from pyrklog.producing import (
    ClusterUnavailableError,
    ProduceError,
    ProducerAuthenticationError,
    RecordTooLargeError,
)
from pyrklog.scanning import (
    AuthenticationError,
    BatchTooLargeError,
    BrokerNotAvailableError,
    CorruptBatchError,
    LeaderNotAvailableError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    ScanError,
    TopicDeletedError,
    UnknownTopicError,
)

PASSING = (
    AwayError,
    ClusterUnavailableError,
    BrokerNotAvailableError,
    LeaderNotAvailableError,
    # The next look at the topics does not find them.
    TopicDeletedError,
    UnknownTopicError,
)
"""Failures that may be over at the next try."""
FAILURES = (ScanError, ProduceError, ValueError)
"""All that a session raises besides MirrorError."""


def stopped(error: Exception, names: Names, how_again: str) -> MirrorError:
    """A failure for the user. ``how_again`` says what copies a topic anew."""
    match error:
        case AwayError():
            return error
        case RecordTooLargeError():
            fix = (
                f"raise max.message.bytes of the topic at {names.target}; at {names.source} if it "
                "has its own there, since that is copied"
            )
            return MirrorError(str(error), fix)
        case OffsetOutOfRangeError():
            fix = f"--missing skip goes on at the first record that is left; or {how_again}"
            return MirrorError(str(error), fix)
        case CorruptBatchError() | BatchTooLargeError():
            fix = (
                "leave its topic out, with --topics '(?!TOPIC$).*', so that the others go on; or "
                "delete the source's records up to behind it, and give --missing skip"
            )
            return MirrorError(str(error), fix)
        case LogTruncatedError():
            return MirrorError(str(error), how_again)
        case AuthenticationError() | ProducerAuthenticationError():
            return MirrorError(str(error), kind=Kind.DENIED)
        case _ if isinstance(error, PASSING):
            return MirrorError(str(error), kind=Kind.UNREACHABLE)
        case _:
            return MirrorError(str(error))
