"""``pyrklog dev`` and ``cluster`` without anything to work on, or with senseless input."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.dev import processes
from pyrklog.dev.state import Cluster, Node, Place


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "pyrklog" / "dev"


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def save(root: Path, *nodes: Node, name: str = "default") -> Place:
    place = Place(root, name)
    place.folder.mkdir(parents=True)
    place.save(Cluster(name, 19092, [*nodes, Node("zookeeper", 1), Node("network", 1)]))
    return place


@pytest.mark.parametrize(
    "command",
    ["status", "logs", "stop", "purge", "kill 1", "pause 1", "resume 1", "restart 1", "isolate 1",
     "heal 1", "add"],
)  # fmt: skip
def test_without_a_cluster_each_command_says_how_to_start_one(root: Path, command: str) -> None:
    code, out, err = invoke("dev", *command.split())
    assert (code, out) == (4, "")
    assert err == "error[PK93]: there is no dev cluster default\n  fix: `pyrklog dev start`\n"


@pytest.mark.parametrize("command", ["kill", "pause", "resume", "restart", "isolate", "heal"])
def test_a_node_that_is_not_there(root: Path, command: str) -> None:
    save(root, Node("broker", 1))
    code, _, err = invoke("dev", command, "2")
    assert code == 4
    assert err == "error[PK93]: default has no node 2\n  fix: one of 1, zk1, network\n"


@pytest.mark.parametrize("above", ["", "pyrklog"])
def test_a_folder_that_cannot_be_made_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: str
) -> None:
    place = tmp_path / "home"
    file = place / above
    file.parent.mkdir(exist_ok=True)
    file.write_text("no folder")
    monkeypatch.setenv("XDG_DATA_HOME", str(place))
    code, out, err = invoke("dev", "start")
    assert (code, out) == (1, "")
    assert err.startswith(f"error[PK98]: the folder {place / 'pyrklog' / 'dev'} cannot be made: ")
    assert err.endswith("\n  fix: name a folder of your own in the environment's XDG_DATA_HOME\n")


@pytest.mark.parametrize("command", ["kill", "pause", "resume"])
def test_stopping_a_node_that_does_not_run_changes_nothing(root: Path, command: str) -> None:
    own = processes.identify(os.getpid())
    assert own is not None
    stale = processes.ProcessId(own.pid, own.started_ticks - 1, own.boot_id)
    place = save(root, Node("broker", 1, process=stale), Node("broker", 2))
    for number in ("1", "2"):
        code, _, err = invoke("dev", command, number)
        assert code == 1
        assert (
            err
            == f"error[PK94]: broker {number} does not run\n  fix: `pyrklog dev restart {number}`\n"
        )
    assert invoke("dev", "stop") == (0, "default did not run\n", "")
    assert [node.process for node in place.load().brokers] == [None, None]


def test_a_name_that_runs_is_not_started_again(root: Path) -> None:
    save(root, Node("broker", 1, process=processes.identify(os.getpid())))
    code, out, err = invoke("dev", "start")
    assert (code, out) == (5, "")
    assert err == (
        "error[PK95]: default runs already (broker 1)\n"
        "  fix: `pyrklog dev stop` first, or restart each that does not run: see `pyrklog dev "
        "status`\n"
    )


def test_a_proposed_command_names_the_cluster(root: Path) -> None:
    save(
        root,
        Node("broker", 1),
        Node("broker", 2, process=processes.identify(os.getpid())),
        name="x",
    )
    code, _, err = invoke("dev", "kill", "1", "--name", "x")
    assert (code, err) == (
        1,
        "error[PK94]: broker 1 does not run\n  fix: `pyrklog dev restart 1 --name x`\n",
    )
    assert "`pyrklog dev stop --name x` first" in invoke("dev", "start", "--name", "x")[2]


def test_starting_an_existing_cluster_with_another_shape_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(root, Node("broker", 1, "a"), Node("broker", 2, "b"))
    other = ["-n", "5", "--racks", "b", "--zk", "3", "--base-port", "2000", "--set", "a=b", "--tmp"]
    code, _, err = invoke("dev", "start", *other)
    assert code == 5
    assert "other values of -n, --racks, --zk, --base-port, --set, --tmp\n  fix: leave them" in err
    monkeypatch.setenv("JAVA_HOME", str(root))  # it gets as far as this
    same = ["-n", "2", "--racks", "a,b", "--zk", "1", "--base-port", "19092"]
    code, _, err = invoke("dev", "start", *same)
    assert (code, "no program" in err) == (1, True)


@pytest.mark.parametrize(
    ("options", "code", "number", "said"),
    [
        (["-n", "0"], 2, "41", "-n is 1 to 50, not 0"),
        (["--zk", "2"], 2, "41", "--zk is 1 or 3, not 2"),
        (["--base-port", "80"], 2, "41", "--base-port is 1024 to"),
        (["--racks", "a,,b"], 2, "41", "racks are names"),
        (["--set", "x"], 2, "41", "--set takes KEY=VALUE"),
        (["--set", "num.partitoins=3"], 78, "02", "num.partitions"),
        (["--set", "broker.id=7"], 78, "04", "--set broker.id"),
        (["--set", "zookeeper.connect="], 78, "04", "--set zookeeper.connect"),
        (["--name", "a/b"], 2, "41", "--name takes"),
    ],
)
def test_mistakes_leave_nothing_behind(
    root: Path, options: list[str], code: int, number: str, said: str
) -> None:
    found, out, err = invoke("dev", "start", *options)
    assert (found, out) == (code, "")
    assert said in err
    assert err.startswith(f"error[PK{number}]: ")
    assert not root.exists() or list(root.iterdir()) == []


def test_without_java_nothing_is_begun(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(root))
    code, _, err = invoke("dev", "start")
    assert code == 1
    assert f"no program {root}/bin/java" in err
    assert list(root.iterdir()) == []


def test_only_brokers_can_be_isolated(root: Path) -> None:
    save(root, Node("broker", 1))
    code, _, err = invoke("dev", "isolate", "zk1")
    assert (code, err) == (
        2,
        "error[PK41]: zookeeper 1 is no broker\n  fix: `pyrklog dev pause zk1`\n",
    )


def test_cluster_without_its_network_process_says_how_to_repair_it(root: Path) -> None:
    save(root, Node("broker", 1, process=processes.identify(os.getpid())))
    code, _, err = invoke("dev", "isolate", "1")
    assert (code, err) == (
        1,
        "error[PK94]: the network does not run\n  fix: `pyrklog dev restart network`\n",
    )


def test_purge_removes_a_stopped_cluster(root: Path) -> None:
    save(root, Node("broker", 1))
    save(root, Node("broker", 1), name="other")
    assert invoke("dev", "purge") == (0, "default purged\n", "")
    assert [folder.name for folder in root.iterdir()] == ["other"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which election?"),
        (["--preferred", "--unclean"], "which election?"),
        (["--unclean"], "name the topics or partitions"),
        (["--unclean", "a"], "give -y"),
    ],
)
def test_an_election_is_said_in_full(arguments: list[str], said: str) -> None:
    code, out, err = invoke("cluster", "elect-leaders", *arguments)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize(
    "command", ["health", "brokers", "restart-safe 1", "elect-leaders --preferred"]
)
def test_a_cluster_that_is_not_there(command: str) -> None:
    code, out, err = invoke("cluster", *command.split(), "-b", "127.0.0.1:1")
    assert (code, out) == (3, "")
    assert err.startswith("error[PK30]: no broker reached")


def test_waiting_for_health_waits_for_a_reachable_broker() -> None:
    code, out, err = invoke("cluster", "health", "-e", "--for", "100ms", "-b", "127.0.0.1:1")
    assert (code, err) == (8, "")
    assert out.startswith("NOT SAFE  no broker reached (127.0.0.1:1: ")
    assert out.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("start", None),
        ("stop", "default did not run (not done)"),
        ("purge", "default purged: {folder} (not done)"),
        ("kill 1", "broker 1 killed (not done)"),
        ("pause zk1", "zk1 paused (not done)"),
        ("resume 1", "1 goes on (not done)"),
        ("restart 1", "broker 1 restarted (not done)"),
        ("isolate 1", "broker 1 is cut off (not done)"),
        ("heal 1", "broker 1 is connected (not done)"),
    ],
)
def test_a_dry_run_changes_nothing(
    root: Path, command: str, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyrklog.dev import java

    monkeypatch.setattr(java, "require", lambda _environment: None)
    place = save(root, Node("broker", 1))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    code, out, err = invoke("dev", *command.split(), "--dry-run")
    assert code == 0, err
    if told is None:
        told = "default started: 1 broker and 1 ZooKeeper server, from 127.0.0.1:19092 (not done)"
    assert out == told.format(folder=place.folder) + "\n"
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    code, out, _ = invoke("dev", *command.split(), "--dry-run", "-o", "json")
    (item,) = json.loads(out)["items"]
    assert (code, item["kind"], item["done"]) == (0, "dev", False)


def test_a_dry_run_of_a_new_cluster_makes_no_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyrklog.dev import java

    monkeypatch.setattr(java, "require", lambda _environment: None)
    code, out, err = invoke("dev", "start", "-n", "2", "--name", "x", "--dry-run")
    assert code == 0, err
    assert out.startswith("x started: 2 brokers and 1 ZooKeeper server, from 127.0.0.1:")
    assert not root.exists()
    assert invoke("dev", "start", "-n", "0", "--dry-run")[0] == 2
    assert invoke("dev", "kill", "1", "--dry-run")[0] == 4


def test_a_dry_run_refuses_what_the_command_refuses(root: Path) -> None:
    save(root, Node("broker", 1))
    assert invoke("dev", "kill", "7", "--dry-run")[0] == 4
    code, _, err = invoke("dev", "add", "--dry-run")
    assert code == 1
    assert "does not run" in err or "not running" in err
