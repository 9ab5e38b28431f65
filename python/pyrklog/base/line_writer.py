"""Writes lines in a thread, so that callers never wait for the output.

A volume or a pipe's reader may hang for ever. Waiting lines are bounded; further ones are dropped
and counted, and the count is written as soon as possible.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

BATCH_MAX = 1000


class LineWriter:
    """The thread starts with the first line and lives as long as the process."""

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[str]], None],
        dropped: Callable[[int], str],
        *,
        max_bytes: int,
    ) -> None:
        """``write`` may block; lines whose write raises are lost.

        ``dropped`` makes the line with the count. ``max_bytes`` bounds what waits.
        """
        self._name = name
        self._write = write
        self._dropped_line = dropped
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._waiting: deque[str] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._is_writing = False
        self._thread: threading.Thread | None = None

    def put(self, line: str) -> None:
        """Queues or drops a line. May be called in any thread; never waits."""
        with self._changed:
            # A line larger than the bound is taken when nothing else waits.
            if self._waiting and self._waiting_bytes + len(line) > self._max_bytes:
                self._dropped += 1
                return
            self._waiting.append(line)
            self._waiting_bytes += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_seconds: float) -> bool:
        """Waits at most so long; returns whether everything was written."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_seconds)

    def _is_idle(self) -> bool:
        return not (self._waiting or self._dropped or self._is_writing)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._dropped)
                self._is_writing = True
                lines = self._take()
            try:
                self._write(lines)
            except (OSError, ValueError):
                pass  # the output is gone; the program goes on

    def _take(self) -> list[str]:
        count = min(BATCH_MAX, len(self._waiting))
        lines = [self._waiting.popleft() for _ in range(count)]
        self._waiting_bytes -= sum(map(len, lines))
        # Goes with the next lines, so that a slow output gets it too.
        if self._dropped:
            lines.append(self._dropped_line(self._dropped))
            self._dropped = 0
        return lines
