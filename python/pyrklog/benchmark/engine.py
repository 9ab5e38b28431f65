"""Starts engines, and reads what they tell."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from types import TracebackType

from pyrklog.benchmark import native
from pyrklog.benchmark.librdkafka import to_line
from pyrklog.benchmark.load import Engine, Load
from pyrklog.benchmark.result import LoadError, Progress, Result, parse, parse_progress

_SAID_MAX = 20


class Running:
    """A load under way. Leaving the ``with`` block kills what is still running."""

    def __init__(self, engine: Engine, load: Load, kafka_home: Path | None = None) -> None:
        """``kafka_home``: for :attr:`.Engine.JAVA`."""
        self.load = load
        self.progress: list[Progress] = []
        """Only grows; each is newer than the one before."""
        self._said: deque[str] = deque(maxlen=_SAID_MAX)
        words = native.arguments(load) if engine is Engine.NATIVE else []
        if engine is Engine.JAVA:
            words.append(str(kafka_home))
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"pyrklog.benchmark.{engine.value}", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
            # Ctrl-C is for the command, which ends the load and shows what it measured.
            start_new_session=True,
        )
        if engine is not Engine.NATIVE:
            assert self._process.stdin is not None
            self._process.stdin.write(to_line(load) + "\n")
            self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            progress = parse_progress(line)
            if progress is None:
                self._said.append(line.strip())
            else:
                self.progress.append(progress)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """Ends the load orderly: what was measured is its result."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            return  # it has ended

    def result(self) -> Result:
        """Waits for the end. Raises :class:`.LoadError` if the load failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.read()
        self._process.wait()
        self._reader.join()
        if not line.strip():
            said = " / ".join(filter(None, self._said)) or "it said nothing"
            raise LoadError(f"{self.load.mode} on {self.load.topic}: {said}")
        return parse(line)


def _environment() -> dict[str, str]:
    """With this package where it was found, also from a checkout."""
    package = str(Path(__file__).parents[2])
    paths = [package, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
