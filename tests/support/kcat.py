"""kcat: the one on the PATH, or Debian's, which `make test` unpacks in .cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ci.debian_tools import library_path

_FOLDER = Path(__file__).parents[2] / ".cache" / "kcat"
_UNPACKED = _FOLDER / "usr" / "bin" / "kcat"
PROGRAM = shutil.which("kcat") or (str(_UNPACKED) if _UNPACKED.exists() else None)
needs_kcat = pytest.mark.skipif(
    PROGRAM is None, reason="kcat is not on the PATH, and without apt-get `make test` cannot get it"
)
TIMEOUT_S = 60


def run_kcat(*arguments: str, stdin: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
    assert PROGRAM is not None
    environment = dict(os.environ)
    if str(_UNPACKED) == PROGRAM:
        environment["LD_LIBRARY_PATH"] = library_path(_FOLDER)
    return subprocess.run(
        [PROGRAM, *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        env=environment,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
