from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock_shim.c")
_BYTES = 8


class SteppedClock:
    """The clock of one broker; its process needs ``environment``."""

    def __init__(self, folder: Path, name: str) -> None:
        """Creates ``folder`` and two files in it. Needs a C compiler."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.clock"
        path.write_bytes(bytes(_BYTES))
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(_shim(folder)),
            "STEPPED_CLOCK_FILE": str(path),
        }
        with path.open("r+b") as file:
            self._step = mmap.mmap(file.fileno(), _BYTES)

    def step(self, seconds: float) -> None:
        """Sets the clock this far ahead of the machine's."""
        self._step[:] = struct.pack("=q", round(seconds * 1e9))


@cache
def _shim(folder: Path) -> Path:
    compiler = shutil.which("cc")
    assert compiler is not None, "a C compiler is needed (README)"
    shim = folder / "clock_shim.so"
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror"]
    subprocess.run([compiler, *flags, "-o", str(shim), str(_SOURCE), "-ldl"], check=True)
    return shim
