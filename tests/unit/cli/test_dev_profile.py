"""The profile that ``pyrklog dev`` writes and removes."""

import os
from pathlib import Path

import pytest

from pyrklog.cli.dev_profile import remove, start_command, write
from pyrklog.cli.profiles import Profile, load
from pyrklog.dev import processes
from pyrklog.dev.state import Cluster, Node, Place


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "config.toml"
    monkeypatch.setenv("PYRKLOG_CONFIG", str(found))
    return found


def test_a_start_writes_and_uses_it_and_a_purge_removes_it(path: Path) -> None:
    assert write("default", "h:1,h:2", select=True) == [
        "profile dev is in use; `pyrklog profile use` chooses another"
    ]
    assert load(os.environ).chosen == "dev"
    assert load(os.environ).get("dev") == Profile("dev", ("h:1", "h:2"), dev="default")
    assert write("default", "h:1,h:2", select=True) == []
    assert remove("default") == ["profile dev removed; no profile is in use"]
    assert (load(os.environ).names(), load(os.environ).chosen) == ([], None)
    assert remove("default") == []


def test_what_was_in_use_is_told_and_what_the_user_added_stays(path: Path) -> None:
    path.write_text(
        'profile = "prod"\n[profiles.prod]\n[profiles.dev-x]\ndev = "x"\nread_only = true'
    )
    assert write("x", "h:1", select=False) == []
    assert load(os.environ).chosen == "prod"
    assert write("x", "h:1", select=True) == [
        "profile dev-x is in use instead of prod; `pyrklog profile use` chooses another"
    ]
    assert load(os.environ).get("dev-x") == Profile("dev-x", ("h:1",), read_only=True, dev="x")
    assert write("x", "h:1,h:2", select=False) == []
    assert load(os.environ).get("dev-x").brokers == ("h:1", "h:2")


def test_the_users_own_profile_of_that_name_is_left_alone(path: Path) -> None:
    text = '[profiles.dev]\nbrokers = ["mine:1"]\n'
    path.write_text(text)
    told = ["profile dev is yours and stays as it is: pyrklog -b h:1"]
    assert write("default", "h:1", select=True) == told
    assert remove("default") == []
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_stops_no_cluster(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYRKLOG_CONFIG", "/dev/null/config.toml")
    [told] = write("default", "h:1", select=True)
    assert told.startswith("no profile was written: the folder /dev/null cannot be used")
    path.write_text("[")
    monkeypatch.setenv("PYRKLOG_CONFIG", str(path))
    assert "is no TOML" in write("default", "h:1", select=True)[0]
    assert "was not removed" in remove("default")[0]


def test_what_brings_a_broker_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert start_command("x") == "pyrklog dev start --name x"
    place = Place(tmp_path / "pyrklog" / "dev", "x")
    place.folder.mkdir(parents=True)
    place.save(Cluster("x", 19092, [Node("broker", 1), Node("broker", 2)]))
    assert start_command("x", "127.0.0.1:19092") == "pyrklog dev start --name x"
    own = processes.identify(os.getpid())
    place.save(Cluster("x", 19092, [Node("broker", 1, process=own), Node("broker", 2)]))
    assert start_command("x") == "pyrklog dev restart 2 --name x"
    assert start_command("x", "127.0.0.1:19093") == "pyrklog dev restart 2 --name x"
    assert start_command("x", "127.0.0.1:19092") == "pyrklog dev status --name x"
