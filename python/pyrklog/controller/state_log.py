"""The state-change log: one JSON line for each transition of a partition or a replica.

Fields: ``at`` (UTC), ``event`` (partition_state, replica_state, ...), ``topic``, ``partition``,
``from``, ``to``, ``leader``, ``leader_epoch``, ``isr``, ``controller_epoch``, ``broker``. A file
that reaches the maximum size is renamed to ``*.1``; at most two are kept. When the log cannot be
written, the broker warns once and goes on.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from pyrklog.base.line_writer import LineWriter
from pyrklog.base.logs import get_logger

FILE_NAME = "state-change.jsonl"
SIZE_MAX_BYTES = 32 * 2**20
WAITING_BYTES_MAX = 64 * 2**20
"""Of lines that wait for the disk; further lines are dropped and counted."""
FLUSH_SECONDS = 1.0

_encode = json.JSONEncoder(default=str).encode
"""Made once: a controller's start writes tens of thousands of lines."""

log = get_logger("state_change")


class LogPiece(NamedTuple):
    """Bytes of a log file; empty at its end, or without a file."""

    file_id: int
    data: bytes


class StateChangeLog:
    """Appends lines in its own thread: the controller never waits for a disk."""

    def __init__(self, directory: Path, size_max_bytes: int = SIZE_MAX_BYTES) -> None:
        self._path = directory / FILE_NAME
        self._size_max_bytes = size_max_bytes
        self._size_bytes = 0
        self._file: TextIO | None = None
        self._failed = False
        self._at_ms = -1
        self._at = ""
        self._writer = LineWriter(
            "state-change-log", self._write, self._dropped, max_bytes=WAITING_BYTES_MAX
        )
        self._turn = threading.Lock()
        """Held while the file is written or closed."""

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        if self._failed:
            return
        now_ms = time.time_ns() // 1_000_000
        if now_ms != self._at_ms:
            self._at_ms = now_ms
            self._at = _time(now_ms)
        self._writer.put(_encode({"at": self._at, "event": event, **fields}) + "\n")

    @staticmethod
    def _dropped(count: int) -> str:
        at = _time(time.time_ns() // 1_000_000)
        return _encode({"at": at, "event": "lines_dropped", "lines": count}) + "\n"

    def flush(self, timeout_seconds: float = FLUSH_SECONDS) -> bool:
        """Blocks until the lines are handed to the operating system, at most so long; whether they
        were.
        """
        return self._writer.flush(timeout_seconds)

    def _write(self, lines: Sequence[str]) -> None:
        """Runs in the writer's thread."""
        if self._failed:
            return
        try:
            with self._turn:
                for line in lines:
                    self._open().write(line)
                    self._size_bytes += len(line)
                    if self._size_bytes > self._size_max_bytes:
                        self._rotate()
                if self._file is not None:
                    self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _open(self) -> TextIO:
        if self._file is None:
            self._file = self._path.open("a", encoding="utf-8")
            self._size_bytes = self._path.stat().st_size
        return self._file

    def _rotate(self) -> None:
        self._close_file()
        self._path.replace(self._path.with_name(FILE_NAME + ".1"))

    def _give_up(self, error: OSError) -> None:
        self._failed = True
        log.warning("state_change_log_failed", path=str(self._path), reason=str(error))

    def read(self, *, older: bool, position: int, max_bytes: int) -> LogPiece:
        """Reads from ``position`` on, from the current file or the older one.

        May be called in any thread. Blocks. Raises :class:`OSError`.
        """
        self.flush()
        path = self._path.with_name(FILE_NAME + ".1") if older else self._path
        try:
            with path.open("rb") as file:
                file.seek(position)
                return LogPiece(os.fstat(file.fileno()).st_ino, file.read(max_bytes))
        except FileNotFoundError:
            return LogPiece(0, b"")

    def close(self) -> None:
        """Flushes for at most :data:`FLUSH_SECONDS` and closes."""
        if self.flush() and self._turn.acquire(timeout=FLUSH_SECONDS):
            try:
                self._close_file()
            except OSError as error:
                self._give_up(error)
            finally:
                self._turn.release()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _time(now_ms: int) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
    return f"{seconds}.{now_ms % 1000:03d}Z"
