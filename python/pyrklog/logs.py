"""Structured logs: one line an event, JSON unless a person watches.

``log = get_logger("controller")``; ``log.info("event_name", field=value)``. structlog takes a tenth
of a second to load, so lines before :func:`configure` wait for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

_OWN_FIELDS = frozenset({"at", "event", "level", "logger", "timestamp"})
"""Fields that every line has; others of these names are left out."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Sink:
    """Where lines go: a list at first, structlog later."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, str, str, str, Mapping[str, Any]]] = []
        self.bound: Any = None
        self.minimum = LEVELS["info"]


_sink = _Sink()


class Logger:
    """A named source of lines."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, /, **fields: Any) -> None:
        """What only matters when something is being looked into."""
        self.log("debug", event, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """What an operator may want to know."""
        self.log("info", event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """What an operator should know."""
        self.log("warning", event, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """What an operator must act on."""
        self.log("error", event, fields)

    def log(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        """One line; ``level`` is a key of :data:`LEVELS`."""
        if LEVELS[level] < _sink.minimum:
            return
        if _sink.bound is None:
            _sink.waiting.append((time.time(), self._name, level, event, fields))
        else:
            _emit(time.time(), self._name, level, event, fields)


def get_logger(name: str) -> Logger:
    """A logger; cheap, and usable before :func:`configure`."""
    return Logger(name)


def _emit(at: float, name: str, level: str, event: str, fields: Mapping[str, Any]) -> None:
    clean = {key: value for key, value in fields.items() if key not in _OWN_FIELDS}
    try:
        getattr(_sink.bound, level)(event, logger=name, at=at, **clean)
    except (OSError, ValueError):
        pass  # nobody reads our output any more (a closed pipe); the broker goes on


def configure(stream: TextIO | None = None, *, level: str = "info") -> None:
    """Loads structlog and writes what waits; to a terminal readable, else JSON."""
    import structlog

    out = stream or sys.stdout
    _sink.minimum = LEVELS[level]
    terminal = out.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ, pad_event_to=0)
        if terminal
        else structlog.processors.JSONRenderer(default=str)
    )
    _sink.bound = structlog.wrap_logger(
        structlog.WriteLogger(out),
        processors=[
            _timestamp(terminal),
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.BoundLogger,
    )
    waiting, _sink.waiting = _sink.waiting, []
    for line in waiting:
        if LEVELS[line[2]] >= _sink.minimum:
            _emit(*line)


def load() -> None:
    """Imports structlog, for instance on another thread while there is something better to do."""
    import structlog.dev  # noqa: F401


def ensure_configured() -> None:
    """:func:`configure`, unless that was done."""
    if _sink.bound is None:
        configure()


def _timestamp(terminal: bool) -> Any:
    def add(_logger: object, _method: str, line: dict[str, Any]) -> dict[str, Any]:
        at = line.pop("at")
        whole = time.strftime(
            "%H:%M:%S" if terminal else "%Y-%m-%dT%H:%M:%S",
            time.localtime(at) if terminal else time.gmtime(at),
        )
        line["timestamp"] = f"{whole}.{int(at % 1 * 1000):03d}" + ("" if terminal else "Z")
        return line

    return add
