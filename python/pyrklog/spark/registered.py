"""The Avro schema of values whose registry is known: the latest of a subject, asked for once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyrklog.scanning import latest_schema
from pyrklog.spark.connection import Connection
from pyrklog.spark.decode_options import Decoding
from pyrklog.spark.given import Given


def is_wanted(decoding: Decoding) -> bool:
    """Whether the schema is that of a registry."""
    return decoding.registry is not None and decoding.schema is None


def latest(
    decoding: Decoding, options: Mapping[str, str], ask: Callable[..., str] = latest_schema
) -> str:
    """Avro's JSON. The registry is asked for as long as a scan asks it.

    Raises ValueError for a subject that it has not, and the exceptions of ``pyrklog.scanning``.
    """
    defaults = Connection("")
    given = Given({name.lower(): value for name, value in options.items()})
    connect_timeout_s = given.seconds(
        "kafka.socket.connection.setup.timeout.ms", defaults.connect_timeout_s
    )
    request_timeout_s = given.seconds("kafka.request.timeout.ms", defaults.request_timeout_s)
    given.raise_mistakes()
    return ask(
        decoding.registry,
        decoding.subject,
        connect_timeout_s=connect_timeout_s,
        request_timeout_s=request_timeout_s,
    )
