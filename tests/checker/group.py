"""The consumer group of a round: members in their own processes that come and go."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

from tests.checker.clients import Client
from tests.checker.history import History, Op

ROOT = Path(__file__).parents[2]
_MEMBERS_MIN = 2


class MemberProcess:
    """Runs ``tests.checker.member`` and records its output in the history."""

    def __init__(self, bootstrap: str, topic: str, group: str, name: str, history: History) -> None:
        self.name = name
        self._history = history
        self._said = ""
        command = [sys.executable, "-m", "tests.checker.member", bootstrap, topic, group, name]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, name=name, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The last line of a killed process may be torn.
            if line.endswith("}\n"):
                self._history.take(Op(**json.loads(line)))

    @property
    def broke(self) -> str | None:
        """Its own error, if it ended by one."""
        return self._error() if (self._process.poll() or 0) > 0 else None

    def _error(self) -> str:
        assert self._process.stderr is not None
        if not self._process.stderr.closed:
            self._said = self._process.stderr.read()
            self._process.stderr.close()
        return self._said

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def join(self, seconds: float) -> None:
        """Waits for its end; kills it if that takes too long."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()
        self._error()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Group(Client):
    """Members that come and go; at least two, except while one is replaced."""

    def __init__(self, bootstrap: str, topic: str, group: str, history: History) -> None:
        super().__init__("group", history)
        self.members: list[MemberProcess] = []
        self._terms = (bootstrap, topic, group)
        self._left: list[MemberProcess] = []

    def step(self) -> None:
        while len(self.members) < _MEMBERS_MIN:
            self._join()
        if self._end.wait(random.uniform(0.4, 1.5)):
            return
        if random.random() < 0.5:
            self._join()
        else:
            leaving = self.members.pop(0)
            leaving.end()
            self._left.append(leaving)

    def _join(self) -> None:
        name = f"member-{len(self.members) + len(self._left) + 1}"
        self.members.append(MemberProcess(*self._terms, name, self.history))

    def finish(self) -> None:
        """The present members stay."""

    def everybody(self) -> list[MemberProcess]:
        return [*self._left, *self.members]
