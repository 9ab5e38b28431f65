"""Structured logs: one line for each event, JSON unless on a terminal.

``log = get_logger("controller")``; ``log.info("event_name", field=value)``. structlog takes a tenth
of a second to load, so lines before :func:`configure` wait. A thread writes the lines
(``line_writer``): a hanging output blocks nobody.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TextIO

from pyrklog.base.line_writer import LineWriter

_OWN_FIELDS = frozenset({"at", "event", "level", "logger", "timestamp"})
"""Fields of every line; callers' fields of these names are dropped."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3}
"""The levels' numbers in the journal (sd-daemon(3))."""
JOURNAL_VARIABLE = "JOURNAL_STREAM"
ROOT = "root"
"""Name of the level of loggers without one of their own."""
FORMATS = ("auto", "json", "text")
"""``auto``: text for a terminal, else JSON."""
WAITING_BYTES_MAX = 8 << 20
FLUSH_SECONDS = 1.0
"""How long an end waits for the last lines."""


class _Sink:
    """A list at first, structlog later."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, str, str, str, Mapping[str, Any]]] = []
        self.bound: Any = None
        self.minimum = LEVELS["info"]
        self.names: set[str] = set()
        self.own_minimums: dict[str, int] = {}
        self.format = "auto"
        self.writer: LineWriter | None = None


_sink = _Sink()


class Logger:
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, /, **fields: Any) -> None:
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
        """``level`` is a key of :data:`LEVELS`."""
        if LEVELS[level] < _minimum(self._name):
            return
        if _sink.bound is None:
            _sink.waiting.append((time.time(), self._name, level, event, fields))
        else:
            _emit(time.time(), self._name, level, event, fields)


def get_logger(name: str) -> Logger:
    """Cheap, and usable before :func:`configure`."""
    _sink.names.add(name)
    return Logger(name)


def levels() -> dict[str, int]:
    """Least level in force of :data:`ROOT` and of each logger."""
    return {ROOT: _sink.minimum, **{name: _minimum(name) for name in _sink.names}}


def set_level(name: str, minimum: int | None) -> None:
    """Least level of a logger or of :data:`ROOT`; None: a logger follows the root again."""
    if name == ROOT:
        assert minimum is not None
        _sink.minimum = minimum
    elif minimum is None:
        _sink.own_minimums.pop(name, None)
    else:
        _sink.own_minimums[name] = minimum


def _minimum(name: str) -> int:
    return _sink.own_minimums.get(name, _sink.minimum)


def _emit(at: float, name: str, level: str, event: str, fields: Mapping[str, Any]) -> None:
    clean = {key: value for key, value in fields.items() if key not in _OWN_FIELDS}
    try:
        getattr(_sink.bound, level)(event, logger=name, at=at, **clean)
    except (OSError, ValueError):
        pass  # the output was closed; the broker goes on


def choose(*, level: str, format_: str) -> None:
    """Settings for :func:`configure`: a key of :data:`LEVELS`, one of :data:`FORMATS`."""
    _sink.minimum = LEVELS[level]
    _sink.format = format_


class _Lines:
    def __init__(self, writer: LineWriter, *, in_journal: bool) -> None:
        """``in_journal``: lines begin with their priority, which the journal takes off."""
        self._writer = writer
        self._starts = {name: f"<{number}>" for name, number in PRIORITIES.items() if in_journal}

    def debug(self, line: str) -> None:
        self._put("debug", line)

    def info(self, line: str) -> None:
        self._put("info", line)

    def warning(self, line: str) -> None:
        self._put("warning", line)

    def error(self, line: str) -> None:
        self._put("error", line)

    def _put(self, level: str, line: str) -> None:
        self._writer.put(f"{self._starts.get(level, '')}{line}\n")


def _is_journal(descriptor: int) -> bool:
    """Whether systemd's journal reads it: ``JOURNAL_STREAM`` names device and inode
    (systemd.exec(5)). An output that was redirected has others."""
    found = os.fstat(descriptor)
    return os.environ.get(JOURNAL_VARIABLE) == f"{found.st_dev}:{found.st_ino}"


def _write(descriptor: int, lines: Sequence[str]) -> None:
    # Not through a stream: a hanging thread would hold its lock for ever.
    data = memoryview("".join(lines).encode(errors="replace"))
    while data:
        data = data[os.write(descriptor, data) :]


def _dropped(is_text: bool, count: int) -> str:
    line = {"logger": "logs", "event": "log_lines_dropped", "dropped": count, "at": time.time()}
    line = {**_timestamp(is_text)(None, "", line), "level": "warning"}
    if is_text:
        return "{timestamp} [warning] log_lines_dropped dropped={dropped}\n".format(**line)
    return json.dumps(line) + "\n"


def flush(timeout_seconds: float = FLUSH_SECONDS) -> bool:
    """Waits at most so long; returns whether all lines were written."""
    return _sink.writer is None or _sink.writer.flush(timeout_seconds)


def configure(stream: TextIO | None = None, *, level: str | None = None) -> None:
    import structlog

    out = stream or sys.stdout
    if level is not None:
        _sink.minimum = LEVELS[level]
    terminal = _sink.format == "text" or (_sink.format == "auto" and out.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=_may_colour(out), pad_event_to=0)
        if terminal
        else structlog.processors.JSONRenderer(default=str)
    )
    try:
        descriptor = out.fileno()
    except (OSError, ValueError):
        target: Any = structlog.WriteLogger(out)  # in memory: cannot hang
    else:
        _sink.writer = LineWriter(
            "logs",
            partial(_write, descriptor),
            partial(_dropped, terminal),
            max_bytes=WAITING_BYTES_MAX,
        )
        atexit.register(flush)
        target = _Lines(_sink.writer, in_journal=_is_journal(descriptor))
    _sink.bound = structlog.wrap_logger(
        target,
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
        if LEVELS[line[2]] >= _minimum(line[1]):
            _emit(*line)


def _may_colour(out: TextIO) -> bool:
    is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    return out.isatty() and not is_plain


def load() -> None:
    """Imports structlog, for instance on another thread."""
    import structlog.dev  # noqa: F401


def ensure_configured() -> None:
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
