"""A time of day of a process's own, which can be set while it runs: a shim that is preloaded."""

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
    """The clock of one broker; ``environment`` is what its process needs."""

    def __init__(self, folder: Path, name: str) -> None:
        """Two files in ``folder``, which is made. Needs a C compiler."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.clock"
        path.write_bytes(bytes(_BYTES))
        self.environment = {
            **os.environ,
            "LD_PRELOAD": str(_shim(folder)),
            "PYRKLOG_TEST_CLOCK": str(path),
        }
        with path.open("r+b") as file:
            self._step = mmap.mmap(file.fileno(), _BYTES)

    def step(self, seconds: float) -> None:
        """From now on it is so much ahead of the machine's; 0 is right again."""
        self._step[:] = struct.pack("=q", round(seconds * 1e9))


@cache
def _shim(folder: Path) -> Path:
    compiler = shutil.which("cc")
    assert compiler is not None, "a C compiler is needed (README)"
    shim = folder / "clock_shim.so"
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Werror"]
    subprocess.run([compiler, *flags, "-o", str(shim), str(_SOURCE), "-ldl"], check=True)
    return shim
