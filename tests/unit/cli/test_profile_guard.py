"""Profiles that refuse changes, or ask for their name first."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pyrklog.cli import profile_guard
from pyrklog.cli.app import app
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.profiles import Profile

CHANGES = [
    "produce a v",
    "topic create a",
    "topic alter a --set b=c",
    "topic delete a -y",
    "topic add-partitions a --to 3",
    "topic trim a --before 5 -y",
    "topic copy a b",
    "redrive a",
    "group seek g --to start",
    "group delete g -y",
    "group delete-offsets g -t a",
    "config alter topic a --set b=c",
    "cluster elect-leaders --preferred",
    "cluster reassign apply file",
    "cluster reassign cancel",
    "cluster reassign auto --rounds 1",
    "cluster drain --broker 1 -y",
    "cluster replace 1 --with 2 -y",
    "cluster expand --broker 4",
    "cluster expand --broker 4 --cancel",
    "cluster txns abort a",
    "consume a -g g",
    "mirror run --from 127.0.0.1:1 --to 127.0.0.1:2 --topics a",
]
READS = [
    "topic list",
    "consume a -e",
    "group list",
    "config describe topic a",
    "cluster health",
    "cluster expand --status",
]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "config.toml"
    monkeypatch.setenv("PYRKLOG_CONFIG", str(found))
    return found


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def guarded(path: Path, line: str) -> None:
    path.write_text(f'profile = "prod"\n[profiles.prod]\nbrokers = "127.0.0.1:1"\n{line}\n')


@pytest.mark.parametrize("command", CHANGES)
def test_a_read_only_profile_refuses_every_change(
    command: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded(path, "read_only = true")
    code, out, err = invoke(*command.split())
    assert (code, out) == (6, "")
    assert err.startswith("error[PK57]: profile prod is read-only, and `pyrklog ")
    assert err.count("\n") == 2
    elsewhere = [] if command.startswith("mirror") else ["-b", "127.0.0.1:1"]
    assert invoke(*command.split(), *elsewhere)[0] == 6, "another broker changes nothing"
    # Nor the broker that may run on this machine.
    monkeypatch.setenv("PYRKLOG_BOOTSTRAP", "127.0.0.1:1")
    assert invoke("-p", "none", *command.split())[0] != 6


def test_what_makes_a_reading_command_change_is_named(path: Path) -> None:
    guarded(path, "read_only = true")
    _, _, err = invoke("consume", "a", "-g", "b", "-e")
    assert "`pyrklog consume -g` changes a cluster\n" in err
    assert "fix: leave -g out, choose another profile" in err


@pytest.mark.parametrize("command", READS)
def test_reading_is_never_refused(command: str, path: Path) -> None:
    for line in ("read_only = true", 'confirm = "name"'):
        guarded(path, line)
        assert invoke(*command.split())[0] == 3  # nobody answers


def test_what_only_says_what_it_would_do_is_no_change(path: Path) -> None:
    guarded(path, "read_only = true")
    assert invoke("topic", "create", "a", "--dry-run")[0] == 3


def test_the_name_is_wanted_before_a_change(path: Path) -> None:
    guarded(path, 'confirm = "name"')
    code, _, err = invoke("topic", "create", "a")
    assert code == 2
    assert err.endswith("\n  fix: give `pyrklog --confirm prod topic create ...`\n")
    assert invoke("--confirm", "prod", "topic", "create", "a")[0] == 3
    code, _, err = invoke("--confirm", "prd", "topic", "delete", "a", "-y")
    assert code == 6
    assert err.startswith("error[PK57]: profile prod was not confirmed; nothing was changed")


class _Terminal:
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "code"), [("prod", None), ("pord", Exit.DENIED), (None, 130)])
def test_on_a_terminal_it_is_typed(
    typed: str | None, code: Exit | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prompt(text: str, **_: Any) -> str:
        assert text == "Type prod to run `pyrklog topic create` on it"
        if typed is None:
            raise typer.Abort
        return typed

    monkeypatch.setattr("sys.stdin", _Terminal())
    monkeypatch.setattr(typer, "prompt", prompt)
    profile = Profile("prod", confirm=True)
    if code is None:
        profile_guard.check("topic create", {}, profile, None)
        return
    with pytest.raises(CliError) as caught:
        profile_guard.check("topic create", {}, profile, None)
    assert caught.value.code == code


def test_commands_that_nobody_has_looked_at_count_as_changes() -> None:
    assert profile_guard.is_changing("topic improve", {})
    assert profile_guard.is_changing("cluster reassign status", {"file": "plan.json"})
    assert not profile_guard.is_changing("cluster reassign status", {"file": None})
