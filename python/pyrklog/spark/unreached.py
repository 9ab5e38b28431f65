"""Why brokers do not answer, for an error's text: librdkafka says only that the time is over."""

from __future__ import annotations

import re
from collections.abc import Callable

from pyrklog.scanning import Scan, ScanError, UnknownTopicError, scan
from pyrklog.spark.connection import Connection

# Of one look, when the time for the question itself is over.
_LOOK_S = 2.0
_NOTHING = r"(?!)"


def reason(
    connection: Connection, topic: str | None = None, open_scan: Callable[..., Scan] = scan
) -> str | None:
    """What a scan meets that looks for the leaders of a topic, or for any broker; None if it meets
    nothing. Never raises."""
    arguments = connection.scan_arguments()
    for name in ("timeout_s", "request_timeout_s", "connect_timeout_s"):
        arguments[name] = min(_LOOK_S, arguments[name])
    pattern = re.compile(_NOTHING if topic is None else re.escape(topic))
    try:
        with open_scan(pattern, "earliest", "latest", ["offset"], threads=1, **arguments):
            return None
    except UnknownTopicError:
        # A broker has answered.
        return None
    except (ScanError, ValueError) as error:
        return str(error)
