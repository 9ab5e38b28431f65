"""Options as they were given, read one by one: all mistakes become one exception."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from pyrklog.scanning.arguments import is_topic_name
from pyrklog.security import OPTIONS, Security, parse
from pyrklog.spark.connection import Connection
from pyrklog.spark.places import Places, shown

COUNT_MAX = 2**63 - 1
SECONDS_MAX = 86_400

_DURATION = re.compile(r"([0-9]{1,15})\s*(us|ms|s|m|min|h|d)", re.ASCII | re.IGNORECASE)
_UNITS_US = {
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_DURATION_US_MAX = 36_500 * _UNITS_US["d"]

Value = TypeVar("Value")


class OptionError(ValueError):
    """Options that cannot be; the message names all mistakes, one a line."""


class Given:
    """The options as given, and the mistakes found so far. Reading a value that is wrong notes the
    mistake and returns the default."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Names in lower case."""
        self._options = options
        self.mistakes: list[str] = []

    def names(self) -> list[str]:
        return sorted(self._options)

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def value(self, name: str, read: Callable[[str], Value], default: Value) -> Value:
        """``read`` raises ValueError with the rest of the sentence "NAME is VALUE: ..."."""
        text = self.text(name)
        if text is None:
            return default
        try:
            return read(text.strip())
        except ValueError as error:
            self.mistakes.append(f"{name} is {shown(text)}: {error}")
            return default

    def places(self, name: str, read: Callable[[str, str], Places], default: Places) -> Places:
        text = self.text(name)
        if text is None:
            return default
        try:
            return read(name, text)
        except ValueError as error:
            self.mistakes.append(str(error))
            return default

    def flag(self, name: str, default: bool) -> bool:
        return self.value(name, flag_value, default)

    def count(self, name: str, most: int = COUNT_MAX) -> int | None:
        return self.value(name, lambda text: whole(text, most), None)

    def seconds(self, name: str, default_s: float) -> float:
        """Of an option in milliseconds."""
        return self.value(name, lambda text: whole(text, SECONDS_MAX * 1000) / 1000, default_s)

    def word(self, name: str, words: tuple[str, ...]) -> str:
        """One of ``words``; the first is the default."""

        def read(text: str) -> str:
            if text.lower() not in words:
                raise ValueError(f"it can be {' or '.join(words)}")
            return text.lower()

        return self.value(name, read, words[0])

    def raise_mistakes(self) -> None:
        if self.mistakes:
            raise OptionError("\n".join(self.mistakes))


def connection(given: Given) -> Connection:
    """How the cluster is reached, without what concerns readers alone."""
    defaults = Connection("")
    if not given.has("kafka.bootstrap.servers"):
        given.mistakes.append("option kafka.bootstrap.servers is needed: HOST:PORT,...")
    return Connection(
        bootstrap_servers=given.value("kafka.bootstrap.servers", servers, ""),
        client_id=given.text("kafka.client.id") or defaults.client_id,
        request_timeout_s=given.seconds("kafka.request.timeout.ms", defaults.request_timeout_s),
        connect_timeout_s=given.seconds(
            "kafka.socket.connection.setup.timeout.ms", defaults.connect_timeout_s
        ),
        security=_security(given),
    )


def _security(given: Given) -> Security:
    mistakes: list[str] = []
    security = parse({name: given.text(f"kafka.{name}") for name in OPTIONS}, mistakes)
    named = ("sasl.", "security.", "ssl.")
    given.mistakes.extend(f"kafka.{one}" if one.startswith(named) else one for one in mistakes)
    return security


def topic_name(name: str) -> str:
    if not is_topic_name(name):
        raise ValueError(f"no topic can have the name {shown(name)}")
    return name


def servers(text: str) -> str:
    servers = [one.strip() for one in text.split(",") if one.strip()]
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ValueError(f"{shown(server)} is not HOST:PORT")
    if not servers:
        raise ValueError("it names no broker")
    return ",".join(servers)


def flag_value(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("it can be true or false")
    return text.lower() == "true"


def whole(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and 0 < int(text) <= most):
        raise ValueError(f"it can be a whole number from 1 to {most}")
    return int(text)


def duration_ms(text: str) -> float:
    """Of a time such as ``10s``, up to a hundred years. Raises ValueError as ``Given.value`` takes
    it."""
    found = _DURATION.fullmatch(text.strip())
    microseconds = int(found[1]) * _UNITS_US[found[2].lower()] if found is not None else None
    if microseconds is None or microseconds > _DURATION_US_MAX:
        raise ValueError("it can be a time such as 500ms, 10s, 5m, 1h or 2d")
    return microseconds / 1000
