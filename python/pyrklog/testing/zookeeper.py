"""A ZooKeeper server for a cluster of a test."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from pyrklog.dev import zookeeper
from pyrklog.testing.guard import guard
from pyrklog.testing.ports import free_port

PAUSE_S = 0.02


class TestZooKeeper:
    """Needs Java and the server's jars, as `pyrklog dev` does (the extra `zookeeper`)."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = 60.0) -> None:
        """Returns once it serves. Raises DevError without Java or jars, RuntimeError if it ends,
        TimeoutError."""
        command = zookeeper.lone_command(self.folder, os.environ)
        zookeeper.write_lone_server(self.folder, self.port)
        with (self.folder / "zookeeper.log").open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=guard().environment(),
            )
        deadline = time.monotonic() + timeout_s
        while not zookeeper.serves(self.port):
            if self._process.poll() is not None:
                raise RuntimeError(f"ZooKeeper ended\n{self._output()}")
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"ZooKeeper does not serve\n{self._output()}")
            time.sleep(PAUSE_S)

    def pause(self) -> None:
        """Its connections stay open, and nobody is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("ZooKeeper is not running")
        return self._process

    def _output(self) -> str:
        return (self.folder / "zookeeper.log").read_text(errors="replace")[-4000:]
