"""Programs of Debian's packages: found, or missed with a sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci import debian_tools
from ci.debian_tools import MissingToolError, libraries, library_path, program

SCRIPT = Path(debian_tools.__file__)


@pytest.mark.parametrize(
    ("depends", "expected"),
    [
        ("libc6 (>= 2.28), libfuse2 (>= 2.8), fuse", ["libfuse2"]),
        ("libfuse3-3 (>= 3.2.3) | libfuse3-4, libc6", ["libfuse3-3"]),
        ("libc6", []),
    ],
)
def test_the_library_that_a_system_may_lack(depends: str, expected: list[str]) -> None:
    assert libraries(depends) == expected


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(folder: Path, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        env={**os.environ, "PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_apt_and_the_programs_it_fails_with_a_sentence(tmp_path: Path) -> None:
    done = run(tmp_path / "tools", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("prometheus and bindfs not found: without apt-get, put them on")


def test_without_apt_the_programs_of_the_path_do(tmp_path: Path) -> None:
    for name in ("prometheus", "bindfs"):
        executable(tmp_path / name)
    assert run(tmp_path / "tools", tmp_path).returncode == 0


def test_a_package_that_apt_does_not_have_is_named(tmp_path: Path) -> None:
    executable(tmp_path / "apt-get", "#!/bin/sh\necho 'E: no lists' >&2\nexit 100\n")
    executable(tmp_path / "dpkg-deb")
    done = run(tmp_path / "tools", tmp_path)
    assert done.returncode == 1
    assert done.stderr == ("apt-get has no prometheus: E: no lists; `apt-get update` may help\n")


def test_the_unpacked_program_comes_before_that_of_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = executable(tmp_path / "path" / "bindfs")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert program(tmp_path / "tools", "bindfs") == on_path
    unpacked = executable(tmp_path / "tools" / "usr" / "bin" / "bindfs")
    assert program(tmp_path / "tools", "bindfs") == unpacked
    with pytest.raises(MissingToolError, match="make test-alerts"):
        program(tmp_path / "tools", "prometheus")


def test_unpacked_libraries_are_found(tmp_path: Path) -> None:
    library = executable(tmp_path / "lib" / "x86_64-linux-gnu" / "libfuse.so.2")
    assert library_path(tmp_path) == str(library.parent)
    assert library_path(tmp_path / "nothing") == ""
