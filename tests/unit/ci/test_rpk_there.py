"""`make test-rpk` says that it was given no program, and is not passed without one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import rpk

ROOT = Path(__file__).parents[3]


def make(named: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("make")
    assert program is not None
    return subprocess.run(
        [program, "--no-print-directory", "rpk-there", f"RPK={named}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_a_program_it_fails_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    assert make("").stderr.startswith(
        "RPK is not set, so rpk was not tried: make test-rpk RPK=PATH"
    )
    for named in (tmp_path, tmp_path / "text", tmp_path / "none"):
        done = make(str(named))
        assert done.returncode == 2
        assert done.stderr.startswith(f"RPK={named} is no program, so rpk was not tried")


def test_a_program_is_taken_by_its_path_and_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "rpk").touch(0o755)
    assert make(str(tmp_path / "rpk")).returncode == 0
    assert make("sh").returncode == 0


def test_the_tests_themselves_say_so(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="RPK is not set, no program: `make test-rpk"):
        rpk.program("")
    with pytest.raises(AssertionError, match=r"RPK is .*/none, no program"):
        rpk.program(str(tmp_path / "none"))
