"""Empty names, as from an unset variable of a shell: none stands for a default."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app

SIDES = ("--from", "east=127.0.0.1:1", "--to", "west=127.0.0.1:2")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither profiles nor clusters of the user."""
    monkeypatch.setenv("PYRKLOG_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["mirror", "status", *SIDES, "--name", ""], "--name takes the name of a mirror"),
        (
            ["mirror", "run", *SIDES, "--topics", "a", "--name", ""],
            "--name takes the name of a mirror",
        ),
        (["profile", "use", ""], "NAME takes the name of a profile"),
        (["profile", "show", ""], "NAME takes the name of a profile"),
        (["profile", "delete", "", "-y"], "NAME takes the name of a profile"),
        (["profile", "edit", "", "--read-only"], "NAME takes the name of a profile"),
        (["profile", "import", "kaf", "f", "--name", ""], "--name takes the name of a profile"),
        (["--profile", "", "topic", "list"], "--profile takes the name of a profile"),
        (["topic", "list", "--profile", ""], "--profile takes the name of a profile"),
    ],
)
def test_an_empty_name_is_refused(command: list[str], told: str) -> None:
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert f"{told}, not an empty text" in done.stderr


@pytest.mark.parametrize("command", ["start", "status", "stop", "purge"])
def test_an_empty_name_of_a_dev_cluster_is_refused(command: str) -> None:
    done = CliRunner().invoke(app, ["dev", command, "--name", ""])
    assert done.exit_code == 2
    assert "hyphens and underscores, not ''" in done.stderr
    assert "fix: leave --name out for the cluster default" in done.stderr
