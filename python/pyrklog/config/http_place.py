"""Where the broker serves HTTP: ``pyrklog.http.listener``, or beside its Kafka listener."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyrklog.base.hosts import host_and_port
from pyrklog.config.listeners import Endpoint

NAME = "pyrklog.http.listener"
OFF = "none"
LOOPBACK = "127.0.0.1"
ABOVE_KAFKA = 100
"""The default port above the first Kafka listener's."""
ALLOWED = f"HOST:PORT, [HOST]:PORT, {OFF}"


class HttpPlace(NamedTuple):
    """An empty ``host`` is every interface, port 0 any free port."""

    host: str
    port: int
    is_given: bool
    """Whether it was chosen; the default one may be taken."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def wrong_with_place(value: object) -> str | None:
    """What is wrong with the option's value, or None."""
    if not isinstance(value, str) or not value.strip() or value.strip().lower() == OFF:
        return None
    return None if parse_address(value) is not None else f"must be {ALLOWED}"


def http_place(text: str | None, listeners: Sequence[Endpoint]) -> HttpPlace | None:
    """None: nowhere. ``text`` is the option's valid value, None or empty where it is unset."""
    given = (text or "").strip()
    if given.lower() == OFF:
        return None
    found = parse_address(given)
    if found is not None:
        return HttpPlace(*found, is_given=True)
    return HttpPlace(LOOPBACK, _beside([one.port for one in listeners]), is_given=False)


def _beside(kafka: Sequence[int]) -> int:
    """No listener's port: whatever asks for nothing gives way."""
    port = kafka[0]
    while port in kafka and port:
        port += ABOVE_KAFKA
    return port


def parse_address(text: str) -> tuple[str, int] | None:
    """Host, which may be empty, and port of ``HOST:PORT`` or ``[HOST]:PORT``; None for others."""
    try:
        return host_and_port(text.strip(), None, port_min=0)
    except ValueError:
        return None
