"""Command lines of pyrklog, each run in this process, as their caller asks on the standard input.

A command ends with its process, and so do the clients that it leaves behind. Many commands in a
process of a test would leave many of them, whose threads go on: so they run here, and a process
is asked for some lines only.
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
"""Before the next process."""


class Ended(NamedTuple):
    """How a command ended."""

    exit_code: int
    output: str
    stderr: str
    failure: str
    """The traceback of an exception that came out; empty where there was none."""


class Commands:
    """Runs command lines in processes of their own."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._lines = 0

    def __call__(self, line: list[str]) -> Ended:
        if self._process is None or self._lines == LINES_MAX:
            self._begin()
        self._lines += 1
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"{line} ended the process: {process.wait()}"
        return Ended(*json.loads(answer))

    def _begin(self) -> None:
        self._end()
        self._lines = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.command_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env={**self._environment},
            text=True,
        )

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
