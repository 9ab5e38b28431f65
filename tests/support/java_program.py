"""A Java program that runs beside a test, tells it something by lines, and can be killed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support import jvm
from tests.support.waiting import PATIENCE_S, wait_until


class JavaProgram:
    """Its output goes to ``NAME.out`` and ``NAME.err`` in ``folder``."""

    def __init__(self, folder: Path, name: str, main: str, *arguments: str, jars: Path) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                jvm.command(main, *arguments, jars=jars),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
            )

    def lines(self, word: str) -> list[list[str]]:
        """Of the lines that begin with this word, the others."""
        found = [line.split() for line in self._out.read_text().splitlines()]
        return [line[1:] for line in found if line[:1] == [word]]

    def wait_for(self, line: str) -> None:
        def is_told() -> bool:
            self.check()
            return line in self._out.read_text().splitlines()

        wait_until(is_told, lambda: f"no {line!r}: {self.told()}", 2 * PATIENCE_S)

    def check(self) -> None:
        """AssertionError with its output if it has ended."""
        assert self._process.poll() is None, self.told()

    def told(self) -> str:
        return f"{self._out.read_text()[-5000:]}\n{self._err.read_text()[-5000:]}"

    def kill(self) -> None:
        """As kill -9."""
        self._process.kill()
        self._process.wait()
