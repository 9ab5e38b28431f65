"""Processes that outlive the command that started them.

A process is known by its pid, its start time and the machine's boot. A reused pid is never
signalled: the pidfd of a signal is opened before the start time is compared.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

PROC = Path("/proc")
LOG_BYTES_MAX = 16 << 20
"""A larger log becomes ``NAME.1`` at a start and replaces an older one."""
_STOPPED = frozenset("Tt")
_ENDED = frozenset("ZX")


class ProcessId(msgspec.Struct, frozen=True):
    """A process, also after its end. ``started_ticks`` is field 22 of ``/proc/PID/stat``."""

    pid: int
    started_ticks: int
    boot_id: str


def identify(pid: int, proc: Path = PROC) -> ProcessId | None:
    found = _stat(pid, proc)
    return None if found is None else ProcessId(pid, found[1], _boot_id(proc))


def is_running(process: ProcessId, proc: Path = PROC) -> bool:
    found = _stat(process.pid, proc)
    return (
        found is not None
        and found[0] not in _ENDED
        and found[1] == process.started_ticks
        and _boot_id(proc) == process.boot_id
    )


def is_paused(process: ProcessId, proc: Path = PROC) -> bool:
    found = _stat(process.pid, proc)
    return found is not None and found[0] in _STOPPED and is_running(process, proc)


def send(process: ProcessId, number: signal.Signals) -> bool:
    with _pidfd(process) as descriptor:
        if descriptor is None or not is_running(process):
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        return True


def wait_ended(process: ProcessId, timeout_s: float | None = None) -> bool:
    """Waits for the end of a process; False if it still runs after the time.

    The end is that of its last thread: its files are closed, its ports are free.
    """
    with _pidfd(process) as descriptor:
        if descriptor is None:
            return True
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        return bool(waiting.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000))


def end(process: ProcessId, grace_s: float) -> bool:
    """SIGTERM, and SIGKILL after ``grace_s``. True if the process ended by itself.

    Returns once the process is gone.
    """
    ask_to_end(process)
    if wait_ended(process, grace_s):
        return True
    kill(process)
    return False


def ask_to_end(process: ProcessId) -> None:
    """SIGTERM; SIGCONT lets a paused process see it."""
    send(process, signal.SIGTERM)
    send(process, signal.SIGCONT)


def kill(process: ProcessId) -> bool:
    """SIGKILL, and waits for the end; False if the process had ended before."""
    was_running = send(process, signal.SIGKILL)
    wait_ended(process)
    return was_running


def children(process: ProcessId, proc: Path = PROC) -> list[ProcessId]:
    """Running processes that any thread of this process has started."""
    pids: set[int] = set()
    for file in (proc / str(process.pid) / "task").glob("*/children"):
        try:
            pids.update(map(int, file.read_text().split()))
        except OSError:
            continue  # the thread has ended; its children have another parent now
    found = [identify(pid, proc) for pid in sorted(pids)]
    return [one for one in found if one is not None] if is_running(process, proc) else []


class Daemon:
    """A new process in its own session, with its output in a file."""

    def __init__(
        self, command: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]
    ) -> None:
        """Raises :class:`OSError` where the command or the folder is missing."""
        _turn_over(log)
        self.log = log
        self.log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        found = identify(self._child.pid)
        assert found is not None, "a child stays in /proc until its parent has asked for its end"
        self.process = found

    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._child.poll()

    def output(self) -> str:
        with self.log.open("rb") as file:
            file.seek(self.log_start)
            return file.read().decode(errors="replace")


def daemon_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a cluster's processes.

    Python's search path becomes absolute, since they run in other folders. Broker options
    (``PYRKLOG_...``) are left out: they would reach all brokers.
    """
    from pyrklog.config.load import ENVIRONMENT_PREFIX

    given = environment.get("PYTHONPATH", "")
    found = {
        key: text for key, text in environment.items() if not key.startswith(ENVIRONMENT_PREFIX)
    }
    if given:
        found["PYTHONPATH"] = os.pathsep.join(
            str(Path(entry).absolute()) for entry in given.split(os.pathsep)
        )
    return found


def wait_for(seconds: float, pause_s: float = 0.01) -> Iterator[None]:
    """Yields at once, and after each pause, until the time is over."""
    deadline = time.monotonic() + seconds
    yield
    while time.monotonic() < deadline:
        time.sleep(pause_s)
        yield


def _turn_over(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_name(f"{log.name}.1"))


@contextmanager
def _pidfd(process: ProcessId) -> Iterator[int | None]:
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        # The handle belongs to the pid's current process; this check follows the opening.
        yield descriptor if identify(process.pid) == process else None
    finally:
        os.close(descriptor)


def _stat(pid: int, proc: Path) -> tuple[str, int] | None:
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may contain anything
    return fields[0], int(fields[19])


def _boot_id(proc: Path) -> str:
    return (proc / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
