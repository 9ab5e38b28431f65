"""Ends processes with the test process that started them, however that ends.

A process of its own (:mod:`.guard_process`) waits for that. So it does not matter which thread
started a broker, whether the broker is stopped by a signal, or whether it has a door.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pyrklog.testing import guard_process
from pyrklog.testing.guard_process import VARIABLE, remove_arenas

END_S = 15.0


class Guard:
    """Of one test process."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._token = secrets.token_hex(16)
        self._directories: dict[Path, bool] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.left: set[Path] = set()
        """Directories of closed brokers whose block cache is left, since it may have records."""
        atexit.register(self._end)

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """For a process that ends with this one; ``given`` None: the inherited environment."""
        with self._lock:
            self._ensure()
        return {**(os.environ if given is None else given), VARIABLE: self._token}

    def add(self, data: Path, *, is_temporary: bool) -> None:
        """Brokers keep data there; a temporary directory goes with the test process."""
        with self._lock:
            self.left.discard(data)
            self._directories[data] = is_temporary
            self._send({"add": str(data.absolute()), "is_temporary": is_temporary})

    def drop(self, data: Path) -> None:
        """Nothing is left to be removed."""
        with self._lock:
            self.left.discard(data)
            if self._directories.pop(data, None) is not None:
                self._send({"drop": str(data.absolute())})

    def remove_left(self) -> None:
        """Removes the block caches that closed brokers left, with the records in them."""
        for data in list(self.left):
            remove_arenas(data)
            self.drop(data)

    def _ensure(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._close()
            script = str(Path(guard_process.__file__))
            # Neither this process's signals nor its working directory concern it.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", script, self._token, str(self.owner)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            for data, is_temporary in self._directories.items():
                self._write({"add": str(data.absolute()), "is_temporary": is_temporary})
        return self._process

    def _send(self, told: Mapping[str, object]) -> None:
        self._ensure()
        self._write(told)

    def _write(self, told: Mapping[str, object]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        self._process.stdin.flush()

    def _close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def _end(self) -> None:
        """A forked process has no guard of its parent's."""
        process = self._process
        if process is None or os.getpid() != self.owner or process.poll() is not None:
            return
        self._write({"end": True})
        self._close()
        process.wait(END_S)


_guard = Guard()
_guard_lock = threading.Lock()


def guard() -> Guard:
    """That of this process; a forked one has its own."""
    global _guard
    with _guard_lock:
        if _guard.owner != os.getpid():
            _guard = Guard()
        return _guard
