"""Processes are found again, and foreign processes are never signalled."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pyrklog.dev import processes
from pyrklog.dev.processes import Daemon, ProcessId
from tests.support.waiting import wait_until

SLEEPER = [sys.executable, "-S", "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable,
    "-S",
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
    "time.sleep(600)",
]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    started: list[Daemon] = []

    def make(command: list[str] = SLEEPER) -> Daemon:
        daemon = Daemon(command, tmp_path, tmp_path / "log", dict(os.environ))
        started.append(daemon)
        return daemon

    yield make
    for daemon in started:
        processes.kill(daemon.process)
        daemon.exit_code()


def until_up(daemon: Daemon) -> None:
    wait_until(lambda: daemon.output().endswith("\n"), daemon.output)


def test_a_daemon_has_a_session_of_its_own_and_its_output_in_a_file(
    start: object, tmp_path: Path
) -> None:
    daemon = start()  # type: ignore[operator]
    until_up(daemon)
    assert os.getsid(daemon.process.pid) == daemon.process.pid
    assert (tmp_path / "log").read_text() == "up\n"
    assert Path(f"/proc/{daemon.process.pid}/cwd").resolve() == tmp_path.resolve()


def test_daemon_is_paused_resumed_and_ended(start: object) -> None:
    process = start().process  # type: ignore[operator]
    assert processes.is_running(process)
    assert not processes.is_paused(process)
    assert processes.send(process, signal.SIGSTOP)
    wait_until(lambda: processes.is_paused(process), "it goes on")
    assert processes.is_running(process)
    # A shutdown also reaches a paused process.
    assert processes.end(process, 30)
    assert not processes.is_running(process)
    assert not processes.send(process, signal.SIGTERM)
    assert not processes.kill(process)
    assert processes.wait_ended(process, 0)


def test_a_process_has_ended_when_its_last_thread_has(start: object) -> None:
    threads = "import threading, time\nfor _ in range(200):\n" + (
        "    threading.Thread(target=time.sleep, args=(600,)).start()\nprint('up', flush=True)"
    )
    for _ in range(5):
        daemon = start([sys.executable, "-S", "-c", threads])  # type: ignore[operator]
        until_up(daemon)
        assert processes.kill(daemon.process)
        # The parent sees the end when all is over.
        assert daemon.exit_code() == -signal.SIGKILL


def test_daemon_that_ignores_the_signal_is_killed(start: object) -> None:
    daemon = start(STUBBORN)  # type: ignore[operator]
    until_up(daemon)
    assert not processes.end(daemon.process, 0.2)
    assert daemon.exit_code() == -signal.SIGKILL


@pytest.mark.parametrize("field", ["started_ticks", "boot_id"])
def test_a_pid_that_is_another_process_now_is_left_alone(start: object, field: str) -> None:
    daemon = start()  # type: ignore[operator]
    other = {"started_ticks": daemon.process.started_ticks - 1, "boot_id": "another-boot"}[field]
    stale = msgspec.structs.replace(daemon.process, **{field: other})
    assert not processes.is_running(stale)
    assert not processes.is_paused(stale)
    assert not processes.send(stale, signal.SIGKILL)
    assert not processes.kill(stale)
    assert processes.end(stale, 0)
    assert processes.wait_ended(stale, 0)
    assert daemon.exit_code() is None
    assert processes.is_running(daemon.process)


def test_unused_pid_identifies_no_process(tmp_path: Path) -> None:
    assert processes.identify(2**22 + 1) is None
    gone = ProcessId(2**22 + 1, 1, "x")
    assert not processes.is_running(gone)
    assert not processes.kill(gone)


def test_a_name_with_blanks_and_brackets_does_not_move_the_fields(tmp_path: Path) -> None:
    own = Path("/proc/self/stat").read_text()
    fields = own.rpartition(")")[2]
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "stat").write_text(f"7 (a ) b (c){fields}")
    boot = tmp_path / "sys" / "kernel" / "random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("b\n")
    found = processes.identify(7, tmp_path)
    assert found == ProcessId(7, int(fields.split()[19]), "b")


PARENT = """
import subprocess, sys, threading

def start():
    command = [sys.executable, "-S", "-c", "input()"]
    return subprocess.Popen(command, stdin=subprocess.PIPE).pid

def start_and_stay():
    found.append(start())
    started.set()
    threading.Event().wait()

found, started = [start()], threading.Event()
threading.Thread(target=start_and_stay).start()
started.wait()
print("up", *found, flush=True)
"""


def test_children_of_every_thread_are_known(start: object) -> None:
    parent = start([sys.executable, "-S", "-c", PARENT])  # type: ignore[operator]
    until_up(parent)
    found = processes.children(parent.process)
    stale = msgspec.structs.replace(parent.process, boot_id="another")
    assert processes.children(stale) == []
    for child in found:
        assert processes.kill(child)
    assert sorted(child.pid for child in found) == sorted(map(int, parent.output().split()[1:]))
    assert len(found) == 2


def test_a_large_log_is_put_aside_at_the_next_start(
    start: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_text("old\n")
    first = start()  # type: ignore[operator]
    until_up(first)
    assert first.output() == "up\n"
    assert (tmp_path / "log").read_text() == "old\nup\n"
    monkeypatch.setattr(processes, "LOG_BYTES_MAX", 3)
    second = start()  # type: ignore[operator]
    until_up(second)
    assert (tmp_path / "log").read_text() == "up\n"
    assert (tmp_path / "log.1").read_text() == "old\nup\n"


def test_daemon_environment_has_absolute_paths_and_no_broker_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"PYTHONPATH": "python:/x", "PYRKLOG_BROKER_ID": "7", "HOME": "/h"}
    assert processes.daemon_environment(given) == {
        "PYTHONPATH": f"{tmp_path}/python:/x",
        "HOME": "/h",
    }
