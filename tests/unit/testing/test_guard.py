"""What is removed at the end of a test process, and what stays."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pyrklog.testing.guard import Guard
from pyrklog.testing.guard_process import VARIABLE, _Directories, end_processes


def killed_broker(folder: Path) -> Path:
    """The data of one; returns its arena."""
    arena = folder.with_suffix(".arena")
    (folder / "logs").mkdir(parents=True)
    arena.write_bytes(b"x")
    (folder / "logs" / ".pyrklog-arena").write_text(f"version=1\npath={arena}\n")
    (folder / "logs" / ".pyrklog-reserve").write_bytes(b"x")
    return arena


def line(name: str, path: Path, *, is_temporary: bool = False) -> bytes:
    if name == "drop":
        return f'{{"drop": "{path}"}}\n'.encode()
    return f'{{"add": "{path}", "is_temporary": {str(is_temporary).lower()}}}\n'.encode()


def test_what_was_given_stays_unless_it_is_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = tmp_path / "tmp"
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(common))
    own, below, elsewhere, dropped = (
        common / "own",
        common / "below",
        tmp_path / "elsewhere",
        common / "dropped",
    )
    arenas = {one: killed_broker(one) for one in (own, below, elsewhere, dropped)}
    told = line("add", own, is_temporary=True) + line("add", below) + line("add", elsewhere)
    told += line("add", dropped) + line("drop", dropped)
    directories = _Directories()
    assert not directories.read(told[:7])
    assert not directories.read(told[7:])
    directories.remove()
    assert {one for one, arena in arenas.items() if arena.exists()} == {elsewhere, dropped}
    assert not own.exists()
    assert (below / "logs").exists()
    assert (elsewhere / "logs" / ".pyrklog-reserve").exists()
    assert directories.read(b'{"end": true}\n')


def test_processes_are_known_by_their_environment() -> None:
    with (
        subprocess.Popen(["sleep", "60"], env={VARIABLE: "mine"}) as mine,
        subprocess.Popen(["sleep", "60"], env={VARIABLE: "mine too"}) as other,
    ):
        end_processes("mine")
        assert mine.poll() == -9
        assert other.poll() is None
        other.kill()


def test_a_guard_that_was_killed_is_started_again(tmp_path: Path) -> None:
    guard = Guard()
    environment = guard.environment({"A": "b"})
    assert set(environment) == {"A", VARIABLE}
    guard.add(tmp_path, is_temporary=False)
    first = guard._process
    assert first is not None
    first.kill()
    first.wait()
    child = subprocess.Popen(["sleep", "60"], env=guard.environment())
    assert guard._process is not first
    guard._end()
    assert child.wait() == -9


def test_a_forked_process_has_a_guard_of_its_own() -> None:
    program = """
import os
from pyrklog.testing.guard import guard
before = guard()
before.environment()
child = os.fork()
if child == 0:
    assert guard() is not before
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
