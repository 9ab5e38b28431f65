"""Command lines of pyrklog, each run in this process, as standard input requests.

Clients that a command leaves behind end with its process. In the test's own process their threads
would pile up, so each child process runs a limited number of lines.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

LINES_MAX = 25
"""Lines of one process."""


class Ended(NamedTuple):
    exit_code: int
    output: str
    stderr: str
    failure: str
    """The traceback of an exception, or empty."""


class Commands:
    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._lines = 0
        self._last: list[str] = []
        self._complaints = folder / "complaints"

    def __call__(self, line: list[str]) -> Ended:
        if self._process is None or self._lines == LINES_MAX:
            self._begin()
        self._lines += 1
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(self._death(process, self._last)) from None
        answer = process.stdout.readline()
        assert answer, self._death(process, line)
        self._last = line
        return Ended(*json.loads(answer))

    def _death(self, process: subprocess.Popen[str], line: list[str]) -> str:
        said = self._complaints.read_bytes()[-1000:]
        return f"{line}, or what it left behind, ended the process: {process.wait()}; {said!r}"

    def _begin(self) -> None:
        self._end()
        self._lines = 0
        complaints = self._complaints.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            cwd=self._folder,
            env={**self._environment},
            text=True,
        )
        complaints.close()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


def _main() -> None:
    from typer.testing import CliRunner

    from pyrklog.cli.app import app

    asked, answers = sys.stdin, sys.stdout
    runner = CliRunner()
    for text in asked:
        result = runner.invoke(app, json.loads(text), input="")
        failure = ""
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            failure = "".join(traceback.format_exception(result.exception))
        ended = Ended(result.exit_code, result.output, result.stderr, failure)
        print(json.dumps(ended), file=answers, flush=True)


if __name__ == "__main__":
    _main()
