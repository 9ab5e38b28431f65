"""The value of ``max.connections.per.ip.overrides``."""

from __future__ import annotations

import re

from pyrklog.config.option import INT_MAX, Value

ALLOWED = "HOST:NUMBER,..."
_HOST = re.compile(r"[0-9a-zA-Z%._:-]+")


def parse_overrides(text: str) -> list[tuple[str, int]]:
    """(host, limit) of each host. As in Kafka, the last colon ends the host and the last limit of a
    host counts. Raises :class:`ValueError`."""
    found: dict[str, int] = {}
    for item in text.split(","):
        if not item.strip():
            continue
        host, colon, limit = (part.strip() for part in item.rpartition(":"))
        if not (colon and _HOST.fullmatch(host) and limit.isascii() and limit.isdigit()):
            raise ValueError(item)
        if int(limit) > INT_MAX:
            raise ValueError(item)
        found[host] = int(limit)
    return list(found.items())


def wrong_with_overrides(value: Value) -> str | None:
    """The end of "NAME ...", or None."""
    assert value is None or isinstance(value, str)
    try:
        parse_overrides(value or "")
    except ValueError:
        return f"must be {ALLOWED}, with numbers from 0 to {INT_MAX}"
    return None
