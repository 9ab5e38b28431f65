"""Programs of Debian's packages: found, or missed with a sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci import debian_tools
from ci.debian_tools import Apt, MissingToolError, library_path, program

SCRIPT = Path(debian_tools.__file__)


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(folder: Path, path: Path, *packages: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *packages],
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


FAKE_APT = """#!/bin/sh
case "$*" in
  *update*) exit 0 ;;
  *depends*) printf 'kcat\\n  Depends: libyajl2\\nlibyajl2\\nlibrdkafka1\\nlibc6\\nlibgcc-s1\\n' ;;
  *) echo 'E: no such package' >&2; exit 100 ;;
esac
"""


def fake_apt(folder: Path, apt: str = FAKE_APT) -> Path:
    """dpkg has installed libyajl2 only."""
    for name in ("apt-get", "apt-cache"):
        executable(folder / name, apt)
    executable(folder / "dpkg-deb")
    installed = 'case "$*" in *libyajl2*) printf installed ;; *) exit 1 ;; esac'
    executable(folder / "dpkg-query", f"#!/bin/sh\n{installed}\n")
    return folder


def test_libraries_are_those_that_the_system_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake_apt(tmp_path / "path")))
    assert Apt(tmp_path / "lists").libraries("kcat") == ["librdkafka1"]


def test_a_package_that_apt_does_not_have_is_named(tmp_path: Path) -> None:
    done = run(tmp_path / "tools", fake_apt(tmp_path / "path"))
    assert done.returncode == 1
    assert done.stderr == "apt-get has no prometheus: E: no such package\n"


def test_an_apt_without_network_says_so(tmp_path: Path) -> None:
    failing = "#!/bin/sh\necho 'E: no network' >&2\nexit 100\n"
    done = run(tmp_path / "tools", fake_apt(tmp_path / "path", failing), "kcat")
    assert done.returncode == 1
    assert done.stderr == "apt-get update failed: E: no network\n"


def test_one_missing_program_is_named(tmp_path: Path) -> None:
    done = run(tmp_path / "tools", tmp_path, "kcat")
    assert done.stderr == "kcat not found: without apt-get, put it on the PATH\n"


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
