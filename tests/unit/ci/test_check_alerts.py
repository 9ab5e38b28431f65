"""`make check-alerts` is not passed by leaving its tool out."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_without_promtool_it_fails_with_a_sentence(tmp_path: Path) -> None:
    make = shutil.which("make")
    assert make is not None
    for name in ("find", "sed", "grep"):
        tool = shutil.which(name)
        assert tool is not None
        (tmp_path / name).symlink_to(tool)
    done = subprocess.run(
        [make, "check-alerts"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "promtool is not on the PATH, so the alert rules were not checked"
    )
