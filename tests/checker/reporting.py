"""Clients in processes of their own, which tell what they do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.checker.history import History, Op

ROOT = Path(__file__).parents[2]


class Printed(History):
    """Of such a process: prints operations at once, since it may be killed at any time."""

    def take(self, op: Op) -> None:
        print(json.dumps(asdict(op)), flush=True)


class ReportingProcess:
    """A process that prints its operations as lines of JSON; records them in the history."""

    def __init__(self, command: Sequence[str], name: str, history: History) -> None:
        self.name = name
        self._history = history
        self._errors: deque[str] = deque(maxlen=100)
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for target in (self._read, self._read_errors)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The last line of a killed process may be torn.
            if line.endswith("}\n"):
                self._history.take(Op(**json.loads(line)))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    @property
    def broke(self) -> str | None:
        """Its own error, if it ended by one."""
        if (self._process.poll() or 0) <= 0:
            return None
        for thread in self._threads:
            thread.join()
        return "".join(self._errors)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Asks it to end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As kill -9."""
        self._process.kill()
        self.join(0)

    def join(self, seconds: float) -> None:
        """Waits for its end; kills it if that takes too long."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
