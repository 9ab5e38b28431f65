"""Saved clusters, and messages about damaged files."""

import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import render
from pyrklog.dev import processes
from pyrklog.dev.errors import DevError
from pyrklog.dev.processes import Daemon, ProcessId
from pyrklog.dev.state import Cluster, Node, Place, dev_root
from tests.support.waiting import wait_until


def cluster(name: str = "a", base: int = 19092) -> Cluster:
    nodes = [Node("broker", 2), Node("broker", 1, "r"), Node("zookeeper", 1), Node("network", 1)]
    return Cluster(name, base, nodes, ["num.partitions=3"], [2])


def saved(root: Path, one: Cluster) -> Place:
    place = Place(root, one.name)
    place.folder.mkdir(parents=True)
    place.save(one)
    return place


def test_saved_state_is_loaded(tmp_path: Path) -> None:
    one = cluster()
    one.nodes[0].process = ProcessId(7, 99, "boot")
    place = saved(tmp_path, one)
    assert place.exists()
    found = place.load()
    assert found == one
    assert [node.name for node in found.brokers] == ["1", "2"]
    assert found.address_of(found.node("2")) == "127.0.0.1:19093"
    assert found.address_of(found.node("zk1")) == "127.0.0.1:19142"
    assert [file.name for file in place.folder.iterdir()] == ["state.json"], "nothing else is left"


def test_a_cluster_or_node_that_is_not_there(tmp_path: Path) -> None:
    place = Place(tmp_path, "a")
    with pytest.raises(DevError, match="there is no dev cluster a") as caught:
        place.load()
    assert (caught.value.problem, caught.value.fix) == (
        Problem.DEV_NOT_FOUND,
        "`pyrklog dev start --name a`",
    )
    saved(tmp_path, cluster("b"))
    with pytest.raises(DevError, match="there is no dev cluster a") as caught:
        place.load()
    assert caught.value.fix == "there is b (--name); or `pyrklog dev start --name a`"
    with pytest.raises(DevError, match="a has no node 3") as caught:
        cluster().node("3")
    assert caught.value.fix == "one of 2, 1, zk1, network"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"name": 1}', b'{"name":"a","base_port":1,"nodes":[],"version":9}'],
)
def test_a_damaged_file_is_told_and_kept(tmp_path: Path, content: bytes) -> None:
    place = saved(tmp_path, cluster())
    place.state_file.write_bytes(content)
    with pytest.raises(DevError, match=r"state\.json cannot be read") as caught:
        place.load()
    assert "by hand" in str(caught.value.fix)
    assert place.state_file.read_bytes() == content
    assert Place(tmp_path, "other").others() == []


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-n", "a b", "x" * 65, "a\n"])
def test_illegal_cluster_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DevError) as caught:
        Place(tmp_path, name)
    assert caught.value.problem is Problem.ARGUMENT_VALUE


def test_state_root_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    assert dev_root({}) == Path("/home/x/.local/share/pyrklog/dev")
    assert dev_root({"XDG_DATA_HOME": ""}) == Path("/home/x/.local/share/pyrklog/dev")
    assert dev_root({"XDG_DATA_HOME": "/d"}) == Path("/d/pyrklog/dev")
    # XDG requires ignoring relative ones.
    assert dev_root({"XDG_DATA_HOME": "d"}) == Path("/home/x/.local/share/pyrklog/dev")


def test_the_state_of_a_node_is_that_of_its_very_process(tmp_path: Path) -> None:
    one = cluster()
    node = one.node("1")
    assert one.state_of(node) == "stopped"
    daemon = Daemon(
        [sys.executable, "-S", "-c", "input()"], tmp_path, tmp_path / "log", dict(os.environ)
    )
    # It ends by itself with its empty input, and stays in /proc until it is reaped.
    assert processes.wait_ended(daemon.process, 30)
    node.process = daemon.process
    assert one.state_of(node) == "dead"
    own = processes.identify(os.getpid())
    assert own is not None
    node.process = own
    assert one.state_of(node) == "running"
    assert one.running() == [node]
    one.isolated = [1]
    assert one.state_of(node) == "isolated"
    node.process = ProcessId(own.pid, own.started_ticks + 1, own.boot_id)
    assert one.state_of(node) == "dead"
    assert not node.is_running
    daemon.exit_code()


def test_paused_node_is_shown_as_paused(tmp_path: Path) -> None:
    one = cluster()
    daemon = Daemon(
        [sys.executable, "-S", "-c", "import time; time.sleep(600)"],
        tmp_path,
        tmp_path / "log",
        dict(os.environ),
    )
    try:
        one.node("2").process = daemon.process
        processes.send(daemon.process, signal.SIGSTOP)
        wait_until(lambda: processes.is_paused(daemon.process), "it goes on")
        assert one.state_of(one.node("2")) == "paused"
    finally:
        processes.kill(daemon.process)
        daemon.exit_code()


def test_commands_that_change_something_wait_for_one_another(tmp_path: Path) -> None:
    place = Place(tmp_path / "root", "a")
    with place.locked():
        descriptor = os.open(place.root, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_cluster_tables_show_nodes_and_states(tmp_path: Path) -> None:
    from pyrklog.cli.dev_tables import listing, started_listing

    one = cluster()
    own = processes.identify(os.getpid())
    one.node("1").process = own
    one.node("2").process = ProcessId(os.getpid(), 1, "earlier")
    place = saved(tmp_path, one)
    items = listing(place, one).items
    assert [item["node"] for item in items] == ["1", "2", "zk1", "network"]
    assert items[0] == {
        "node": "1",
        "role": "broker",
        "address": "127.0.0.1:19092",
        "http": "127.0.0.1:19192",
        "pid": os.getpid(),
        "state": "running",
        "isolated": False,
        "rack": "r",
        "directory": f"{tmp_path}/a/broker-1",
        "log": f"{tmp_path}/a/broker-1/broker.log",
    }
    assert (items[1]["state"], items[1]["pid"], items[1]["isolated"]) == ("dead", None, True)
    assert (items[2]["state"], items[2]["pid"]) == ("stopped", None)
    shown = render(started_listing(place, one), OutputFormat.TABLE).splitlines()
    assert shown[0].split() == ["NODE", "KAFKA", "HTTP", "PID", "DATA"]
    assert shown[1].split() == [
        *("1", "127.0.0.1:19092", "127.0.0.1:19192"),
        *(str(os.getpid()), f"{tmp_path}/a/broker-1"),
    ]
    assert shown[3].split() == ["zk1", "-", "-", "-", f"{tmp_path}/a/zookeeper-1"]
    assert len(shown) == 4


def test_the_folders_of_a_temporary_cluster_are_elsewhere(tmp_path: Path) -> None:
    one = cluster()
    one.temporary = "/tmp/elsewhere"
    place = Place(tmp_path, "a")
    assert place.node_folder(one, one.node("1")) == Path("/tmp/elsewhere/broker-1")
    assert place.log_of(one, one.network) == tmp_path / "a" / "network.log"


@pytest.mark.parametrize(
    ("settings", "http"),
    [
        ([], "127.0.0.1:19093"),
        (["pyrklog.http.listener=none"], None),
        (["pyrklog.http.listener=127.0.0.1:0"], None),
        (["pyrklog.http.listener=none", "pyrklog.http.listener = 10.0.0.1:7"], "10.0.0.1:7"),
    ],
)
def test_http_is_where_the_options_say(settings: list[str], http: str | None) -> None:
    one = Cluster("a", 18992, [Node("broker", 2), Node("zookeeper", 1)], settings)
    assert one.http_of(one.node("2")) == http
    assert one.http_of(one.node("zk1")) is None


def test_clients_begin_with_any_broker() -> None:
    one = Cluster("a", 19092, [Node("broker", 2), Node("zookeeper", 1), Node("broker", 1)])
    assert one.bootstrap == "127.0.0.1:19092,127.0.0.1:19093"
