"""What a broker's process writes."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable
from typing import IO, Any

LINES_MAX = 5_000
WAIT_S = 30.0


class Output:
    """The lines of all processes of one broker, one after another."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_MAX)
        self._count = 0
        self._notes = 0
        self._changed = threading.Condition()

    @property
    def count(self) -> int:
        """How many lines there were so far: a place for :meth:`since`."""
        return self._count

    def since(self, place: int) -> list[str]:
        """The lines from a place on, as far as they are kept."""
        with self._changed:
            kept = list(self.lines)
            return kept[max(0, len(kept) - (self._count - place)) :]

    def follow(self, output: IO[str]) -> Started:
        """Reads a process's output in a thread, so that the process never blocks."""
        started = Started(self._changed)
        started.thread = threading.Thread(target=self._read, args=(output, started), daemon=True)
        started.thread.start()
        return started

    def _read(self, output: IO[str], started: Started) -> None:
        with output:
            for line in output:
                with self._changed:
                    self.lines.append(line.rstrip("\n"))
                    self._count += 1
                    started.take(line)
                    self._changed.notify_all()
        with self._changed:
            started.has_ended = True
            self._changed.notify_all()

    def next_note(self) -> int:
        """A number for a note that the broker is to write."""
        with self._changed:
            self._notes += 1
            return self._notes

    def wait_for_note(self, number: int, started: Started) -> None:
        """Waits until all is here that the process wrote before the note. Raises TimeoutError."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: started.note >= number or started.has_ended, WAIT_S
            )
        if not arrived:
            raise TimeoutError(f"the broker wrote no note within {WAIT_S:g} s")


class Started:
    """One process: what its lines told."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self.thread: threading.Thread | None = None
        self.port = 0
        self.is_ready = False
        self.has_ended = False
        self.note = 0
        self.lines: deque[str] = deque(maxlen=LINES_MAX)

    def take(self, line: str) -> None:
        self.lines.append(line.rstrip("\n"))
        if not any(word in line for word in ('"listening"', '"ready"', '"note"')):
            return
        for event in events([line]):
            match event["event"]:
                case "listening":
                    self.port = self.port or int(event["port"])
                case "ready":
                    # A broker of a cluster listens before it knows the cluster.
                    self.is_ready = True
                case "note":
                    self.note = int(event["number"])

    def wait_ready(self, timeout_s: float) -> bool:
        """Whether it is ready, or has ended, within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_ready or self.has_ended, timeout_s)

    def join(self) -> None:
        """Waits until the last line is read; the process has ended."""
        if self.thread is not None:
            self.thread.join()


def events(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The lines of the log; other lines are left out."""
    found = []
    for line in lines:
        if line.startswith("{"):
            try:
                fields = json.loads(line)
            except ValueError:
                continue
            if "event" in fields:
                found.append(fields)
    return found
