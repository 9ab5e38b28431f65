"""A registry of schemas, asked for one."""

from __future__ import annotations

from pyrklog.scanning.arguments import milliseconds
from pyrklog.scanning.core_scan import latest_schema as latest


def latest_schema(
    registry: str,
    subject: str,
    *,
    connect_timeout_s: float = 10.0,
    request_timeout_s: float = 30.0,
) -> str:
    """The latest schema of a subject, as Avro's JSON. ``registry`` is ``http://HOST:PORT``. One
    question takes ``connect_timeout_s`` at most for each address that HOST has, and is repeated
    until ``request_timeout_s`` has passed.

    Raises ValueError for a registry that is no URL, a subject that the registry has not and a
    schema that is not Avro, RegistryNotAvailableError if there is no answer.
    """
    for name, text in (("registry", registry), ("subject", subject)):
        if not isinstance(text, str):
            raise TypeError(f"{name} is {text!r}; it takes a text")
    connect_ms = milliseconds("connect_timeout_s", connect_timeout_s)
    request_ms = milliseconds("request_timeout_s", request_timeout_s)
    return latest(registry, subject, connect_ms, request_ms)
