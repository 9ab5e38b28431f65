"""``pyrklog dev``: a cluster is started, broken in every way, and removed without a trace."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.cli.cluster_reading import read_state
from pyrklog.cli.connection import Connection
from pyrklog.cli.options import Settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

ALL = {1, 2, 3}
SHARED_MEMORY = Path("/dev/shm")


class Dev:
    """The command line, with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        hidden = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "PYRKLOG_BOOTSTRAP", "PYRKLOG_CONFIG")
        self._environment = {key: text for key, text in os.environ.items() if key not in hidden}
        self._environment["HOME"] = str(home)
        self.started: set[int] = set()

    def run(self, *arguments: str, code: int = 0) -> str:
        """Standard output of a command, which must end with this code."""
        done = subprocess.run(
            [sys.executable, "-m", "pyrklog", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stdout + done.stderr

    def status(self) -> dict[str, dict[str, Any]]:
        envelope = json.loads(self.run("dev", "status", "-o", "json"))
        assert envelope["schema"] == "pyrklog.dev/1"
        self.started |= {item["pid"] for item in envelope["items"] if item["pid"] is not None}
        return {item["node"]: item for item in envelope["items"]}

    def bootstrap(self) -> str:
        return ",".join(
            item["address"] for item in self.status().values() if item["role"] == "broker"
        )


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    made = Dev(tmp_path)
    yield made
    if any(tmp_path.glob(".local/share/pyrklog/dev/*/state.json")):
        made.run("dev", "purge")


class Client:
    """A stock producer with acks=all, and the brokers' metadata of the topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self._bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.acknowledged = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})

    def create(self) -> None:
        self.admin.create_topics([NewTopic(self.topic, 6, 3)])[self.topic].result(30)

    def produce(self, count: int) -> None:
        failed: list[KafkaError] = []
        for number in range(count):
            self._producer.produce(
                self.topic,
                f"{number}".encode(),
                partition=number % 6,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert self._producer.flush(60) == 0
        assert failed == []
        self.acknowledged += count

    def in_sync(self) -> list[set[int]]:
        """According to the most trusted broker: others may stand still, or be late."""
        state = read_state(Connection(Settings(self._bootstrap)))
        return [set(one.isr) for one in state.partitions if one.topic == self.topic]

    def all_in_sync_are(self, wanted: set[int]) -> Callable[[], bool]:
        def are() -> bool:
            found = self.in_sync()
            return bool(found) and all(one == wanted for one in found)

        return are


def test_a_cluster_on_a_laptop(dev: Dev, topic: str) -> None:
    shown = dev.run("dev", "start", "-n", "3")
    assert "ready in " in shown
    assert "NODE  KAFKA" in shown
    nodes = dev.status()
    assert {name: node["state"] for name, node in nodes.items()} == dict.fromkeys(
        ("1", "2", "3", "zk1", "network"), "running"
    )
    again = dev.run("dev", "start", code=5)
    assert "default runs already" in again
    assert dev.run("profile", "list", "-o", "name") == "dev\n"
    assert dev.run("topic", "list", "-o", "name") == "", "the profile has chosen the cluster"

    client = Client(dev.bootstrap(), topic)
    client.create()
    client.produce(600)
    assert dev.run("cluster", "restart-safe", "1", "-b", dev.bootstrap()) == "yes\n"

    _kill_and_restart(dev, client)
    _pause_and_resume(dev, client)
    _isolate_and_heal(dev, client)
    _stop_and_start(dev, client)

    dev.status()
    data = [Path(node["directory"]) for node in nodes.values()]
    dev.run("dev", "kill", "3")  # its shared memory goes, too
    dev.run("dev", "purge")
    assert list(dev.home.glob(".local/share/pyrklog/dev/*")) == []
    assert dev.run("profile", "list", "-o", "name") == ""
    assert not any(folder.exists() for folder in data)
    assert not [pid for pid in dev.started if _runs_here(pid, dev.home)]
    assert not [line for line in _arenas() if str(dev.home) in line]


def _kill_and_restart(dev: Dev, client: Client) -> None:
    pid = dev.status()["1"]["pid"]
    dev.run("dev", "kill", "1")
    dead = dev.status()["1"]
    assert (dead["state"], dead["pid"]) == ("dead", None)
    assert "broker 1 does not run" in dev.run("dev", "kill", "1", code=1)
    client.produce(600)
    wait_until(client.all_in_sync_are({2, 3}), "it is in sync still")
    two = dev.status()["2"]["address"]
    # The profile names all brokers.
    assert dev.run("topic", "list", "-o", "name") == f"{client.topic}\n"
    unhealthy = dev.run("cluster", "health", "-b", two, code=8)
    assert unhealthy.startswith("NOT SAFE  broker 1 is down")
    assert "missing from 6 partitions" in unhealthy
    unsafe = dev.run("cluster", "restart-safe", "2", "-b", two, code=8)
    assert unsafe.startswith("no, 6 partitions in the way")
    dev.run("dev", "restart", "1")
    back = dev.status()["1"]
    assert back["state"] == "running"
    assert back["pid"] not in (pid, None)
    shown = dev.run("cluster", "health", "--exit", "--for", "60s", "-b", two)
    assert "HEALTHY   3 brokers · 6 partitions" in shown
    wait_until(client.all_in_sync_are(ALL), "it is not in sync again")
    client.produce(600)


def _pause_and_resume(dev: Dev, client: Client) -> None:
    dev.run("dev", "pause", "2")
    assert dev.status()["2"]["state"] == "paused"
    one = dev.status()["1"]["address"]
    assert "broker 2 " in dev.run("cluster", "health", "-b", one, code=8)
    wait_until(client.all_in_sync_are({1, 3}), "it is in sync still")
    dev.run("dev", "resume", "2")
    assert dev.status()["2"]["state"] == "running"
    wait_until(client.all_in_sync_are(ALL), "it is not in sync again")
    client.produce(600)


def _isolate_and_heal(dev: Dev, client: Client) -> None:
    dev.run("dev", "isolate", "3")
    cut_off = dev.status()["3"]
    assert (cut_off["state"], cut_off["isolated"]) == ("isolated", True)
    wait_until(client.all_in_sync_are({1, 2}), "it is in sync still")
    # Clients still reach it, and it repeats old metadata; the cluster's verdict is right. After the
    # suspicion it is "behind" until its session has ended.
    ask = ("cluster", "health", "-b", cut_off["address"])
    missing = "and missing from 6 partitions"
    wait_until(lambda: missing in dev.run(*ask, code=8), "it is not missed")
    others = Client(dev.status()["1"]["address"], client.topic)
    assert "could not come back" in dev.run("dev", "restart", "3", code=1)
    others.produce(600)
    client.acknowledged += others.acknowledged
    dev.run("dev", "heal", "3")
    assert dev.status()["3"]["state"] == "running"
    wait_until(client.all_in_sync_are(ALL), "it is not in sync again")
    client.produce(600)


def _stop_and_start(dev: Dev, client: Client) -> None:
    assert dev.run("dev", "stop") == "default stopped\n", "nobody had to be killed"
    stopped = dev.status()
    assert {node["state"] for node in stopped.values()} == {"stopped"}
    assert not [pid for pid in dev.started if _runs_here(pid, dev.home)]
    dev.run("dev", "start", "-q")
    wait_until(client.all_in_sync_are(ALL), "not all are in sync after the stop")
    ask = ("topic", "describe", client.topic, "-o", "json", "-b", dev.status()["1"]["address"])

    def end_offsets() -> int:
        partitions = json.loads(dev.run(*ask))["items"][0]["partitions"]
        return sum(one["end_offset"] or 0 for one in partitions)

    # High watermarks follow the followers, a moment after these are in sync.
    wait_until(
        lambda: end_offsets() == client.acknowledged,
        lambda: f"{end_offsets()} of {client.acknowledged}",
    )
    sizes = json.loads(dev.run("cluster", "brokers", "-o", "json", "-b", dev.bootstrap()))
    assert [one["replicas"] for one in sizes["items"]] == [6, 6, 6]
    assert len({one["log_bytes"] for one in sizes["items"]} - {0, None}) == 1
    assert sum(one["controller"] for one in sizes["items"]) == 1


def _runs_here(pid: int, home: Path) -> bool:
    """Whether this is one of our processes: another may have its pid by now."""
    try:
        return str(home).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _arenas() -> list[str]:
    from pyrklog.plane.offline import list_arenas

    return [row.log_dir for row in list_arenas(str(SHARED_MEMORY))]


def test_a_cluster_that_is_only_for_now_grows_and_leaves_nothing(dev: Dev, topic: str) -> None:
    dev.run("dev", "start", "-n", "1", "--tmp", "--racks", "a,b", "--set", "num.partitions=2")
    before = dev.status()
    folder = Path(before["1"]["directory"])
    assert folder.is_dir()
    assert not folder.is_relative_to(dev.home)
    items = json.loads(dev.run("dev", "add", "-n", "2", "--racks", "c", "-o", "json"))["items"]
    assert [one["rack"] for one in items if one["role"] == "broker"] == ["a", "c", "c"]
    client = Client(dev.bootstrap(), topic)
    client.create()
    client.produce(60)
    wait_until(client.all_in_sync_are(ALL), "not all are in sync")
    dev.status()
    dev.run("dev", "restart", "zk1")
    dev.run("dev", "restart", "network")
    dev.run("cluster", "health", "--exit", "--for", "60s", "-b", before["1"]["address"])
    client.produce(60)
    lines = dev.run("dev", "logs", "2", "-n", "0").splitlines()
    assert any('"event": "ready"' in line for line in lines)
    dev.run("dev", "stop")
    assert not folder.parent.exists()
    assert "no dev cluster" in dev.run("dev", "status", code=4)
    assert not [pid for pid in dev.started if _runs_here(pid, folder.parent)]


def test_a_start_that_fails_leaves_no_process(dev: Dev) -> None:
    # A directory of another cluster's broker: the second broker refuses to start.
    folder = dev.home / ".local" / "share" / "pyrklog" / "dev" / "default" / "broker-2"
    (folder / "data" / "logs").mkdir(parents=True)
    (folder / "data" / "logs" / "meta.properties").write_text(
        "version=0\nbroker.id=7\ncluster.id=another\n"
    )
    said = dev.run("dev", "start", "-n", "2", code=1)
    assert "error[PK96]: broker 2 ended at its start (exit code 78): error[PK1" in said
    assert {node["state"] for node in dev.status().values()} == {"stopped"}
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert str(dev.home).encode() not in process.read_bytes()
        except OSError:
            continue  # it has ended meanwhile
