"""``python guard_process.py TOKEN PID``: waits for the end of a test process, and removes what is
left of it. Only :mod:`.guard` starts it, as a script: it needs nothing but the standard library.

Lines of JSON on standard input name directories: ``{"add": PATH, "is_temporary": BOOL}`` and
``{"drop": PATH}``; ``{"end": true}`` is the end as well. Processes are known by a variable of their
environment, which theirs inherit: none is missed, however early the test process was killed.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

VARIABLE = "TEST_PROCESS_OF_PYRKLOG"
QUIET_SCANS = 2
"""So many scans in a row find nothing at the end: a process may be about to be executed."""
SCAN_PAUSE_S = 0.1
SCANS_MAX = 100
END_S = 10.0
READ_BYTES = 65536


def remove_arenas(data: Path) -> None:
    """A killed broker leaves its block cache in shared memory and its reserve on the disk."""
    for reserve in data.glob("**/.pyrklog-reserve"):
        reserve.unlink(missing_ok=True)
    for marker in data.glob("**/.pyrklog-arena"):
        for line in marker.read_text().splitlines():
            if line.startswith("path="):
                Path(line.removeprefix("path=")).unlink(missing_ok=True)


class _Directories:
    def __init__(self) -> None:
        self._are_temporary: dict[str, bool] = {}
        self._waiting = b""

    def read(self, data: bytes) -> bool:
        """Whether the test process says that it ends."""
        *lines, self._waiting = (self._waiting + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "end" in told:
                return True
            if "add" in told:
                self._are_temporary[told["add"]] = told["is_temporary"]
            else:
                self._are_temporary.pop(told["drop"], None)
        return False

    def remove(self) -> None:
        """Of a directory that was given, and lies elsewhere than temporary ones, all stays: the
        arena of a killed broker has records."""
        common = Path(tempfile.gettempdir()).resolve()
        for name, is_temporary in self._are_temporary.items():
            path = Path(name)
            try:
                if is_temporary or path.resolve().is_relative_to(common):
                    remove_arenas(path)
            except OSError:
                pass  # the others are removed all the same
            if is_temporary:
                shutil.rmtree(path, ignore_errors=True)


def wait_for_end(test_process: int, directories: _Directories) -> None:
    try:
        descriptor = os.pidfd_open(test_process)
    except ProcessLookupError:
        descriptor = None
    if descriptor is None or os.getppid() != test_process:
        _read_rest(directories)
        return
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    waiting.register(0, select.POLLIN)
    while True:
        ready = [one for one, _ in waiting.poll()]
        if 0 in ready:
            data = os.read(0, READ_BYTES)
            if not data or directories.read(data):
                return
        elif descriptor in ready:
            return  # and everything that it wrote is read


def _read_rest(directories: _Directories) -> None:
    os.set_blocking(0, False)
    try:
        while data := os.read(0, READ_BYTES):
            directories.read(data)
    except BlockingIOError:
        pass


def end_processes(token: str) -> None:
    """Kills all of them, and what they start meanwhile."""
    quiet = 0
    for _ in range(SCANS_MAX):
        found = _started(token)
        quiet = 0 if found else quiet + 1
        if quiet == QUIET_SCANS:
            return
        for process in found:
            _kill(process, token)
        time.sleep(SCAN_PAUSE_S)


def _started(token: str) -> list[int]:
    own = os.getpid()
    numbers = [int(one) for one in os.listdir("/proc") if one.isdecimal()]
    return [one for one in numbers if one != own and _is_started(one, token)]


def _is_started(process: int, token: str) -> bool:
    """Not one that has ended, and waits for its parent to notice."""
    try:
        variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"{VARIABLE}={token}".encode() in variables


def _kill(process: int, token: str) -> None:
    try:
        descriptor = os.pidfd_open(process)
    except OSError:
        return  # it has ended
    try:
        # Its number may be another process's by now: not while the descriptor is open.
        if _is_started(process, token):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], END_S)
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def main(token: str, test_process: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    directories = _Directories()
    wait_for_end(test_process, directories)
    end_processes(token)
    directories.remove()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
