"""``pyrklog cluster reassign`` against real brokers."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from tests.support import reassigning
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, produce
from tests.support.knowing import told_by
from tests.support.room import with_room
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.jvm

RATE = "leader.replication.throttled.rate"
SLOW = ("--throttle", "10kB/s")
BRIEF = {"zookeeper.session.timeout.ms": 10_000}
"""A busy machine passes for no dead broker; yet that of one that is stopped ends."""


@pytest.fixture(scope="module")
def shared(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    """A cluster that tests hardly change."""
    folder = tmp_path_factory.mktemp("shared")
    cluster = BrokerCluster(f"{zookeeper.address}/reassign-mistakes", folder, count=2)
    yield cluster.start()
    cluster.close()


def run(
    cluster: BrokerCluster, *arguments: str, code: int = 0, bootstrap: str = ""
) -> tuple[str, str]:
    """Standard output and error of a command that must end with ``code``."""
    words = with_room(["cluster", "reassign", *arguments])
    command = ["-b", bootstrap or cluster.bootstrap, *words]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}{done.exception}"
    return done.stdout, done.stderr


def replicas(cluster: BrokerCluster, topic: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = cluster.json(f"/brokers/topics/{topic}")["partitions"]
    return found


def test_a_broker_is_emptied_by_a_plan_and_filled_again(
    cluster: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    create(cluster, topic, 6, 2)
    produce(cluster, topic, 6, [b"x" * 1_000] * 20)
    before = replicas(cluster, topic)
    plan, told = run(cluster, "plan", "--topics", topic, "--brokers", "1,2")
    assert "moves 4 of 6 partitions" in told
    assert "nothing changed yet" in told
    assert replicas(cluster, topic) == before
    file, undo = tmp_path / "plan.json", tmp_path / "undo.json"
    file.write_text(plan)
    out, _ = run(cluster, "apply", str(file), "--dry-run")
    assert "(not done)" in out
    assert replicas(cluster, topic) == before
    arguments = ["apply", str(file), "--throttle", "500MB/s", "--rollback", str(undo), "-w"]
    out, _ = run(cluster, *arguments)
    assert out.startswith("each broker copies at most 500 MB/s\n")
    assert out.endswith("done: 4 partitions are where the plan wants them\n")
    for item in json.loads(plan)["partitions"]:
        shown = ",".join(map(str, item["replicas"]))
        assert f"{topic}-{item['partition']}: " in out
        assert f" -> {shown}\n" in out
    assert all(3 not in members for members in replicas(cluster, topic).values())
    assert RATE not in cluster.json("/config/brokers/1")["config"]
    run(cluster, "status", str(file))
    _, error = run(cluster, "status", str(undo), code=8)
    assert f"error[PK76]: {topic}-" in error
    run(cluster, "apply", str(undo), "--throttle", "500MB/s")
    assert cluster.json("/config/brokers/1")["config"][RATE] == "500000000"
    run(cluster, "status", "--watch")
    out, _ = run(cluster, "status", str(undo))
    assert out.endswith("partitions are where the plan wants them\n")
    assert replicas(cluster, topic) == before
    assert RATE not in cluster.json("/config/brokers/1")["config"]
    assert len(consume(cluster, topic, 120, "g")) == 120


def test_a_throttle_that_was_left_goes_with_cancel_all(
    cluster: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    create(cluster, topic, 1, 1)
    produce(cluster, topic, 1, [b"x"])
    (old,) = replicas(cluster, topic)["0"]
    other = next(number for number in cluster.brokers if number != old)
    file = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [other]}
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    run(cluster, "apply", str(file), "--throttle", "500MB/s")
    wait_until(lambda: replicas(cluster, topic) == {"0": [other]}, "it does not move")
    # The controller hears of its last write after ZooKeeper has it.
    controller = cluster.brokers[cluster.controller()].bootstrap
    wait_until(lambda: not reassigning.moving(controller), "it is under way still")

    def throttled() -> bool:
        config = cluster.json(f"/config/topics/{topic}")["config"]
        return any("throttled.replicas" in option for option in config)

    assert throttled()
    out, _ = run(cluster, "cancel", "--all")
    assert out == "nothing moves\n"
    assert not throttled()
    assert RATE not in cluster.json("/config/brokers/1")["config"]


def to_a_third_broker(
    cluster: BrokerCluster, topic: str, folder: Path
) -> tuple[int, int, int, Path]:
    """The broker of the only replica, the controller, a third broker, and the plan that moves the
    replica to the third, which takes minutes at SLOW: a first fetch may bring a megabyte."""
    create(cluster, topic, 1, 1)
    produce(cluster, topic, 1, [b"x" * 10_000] * 300)
    (old,) = replicas(cluster, topic)["0"]
    controller = cluster.controller()
    third = next(number for number in cluster.brokers if number not in (old, controller))
    file = folder / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [third]}
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return old, controller, third, file


def wait_for_another_controller(cluster: BrokerCluster, dead: int, asked: str) -> None:
    """Until the broker that is asked tells of it, too."""

    def is_told() -> bool:
        number = cluster.json("/controller").get("brokerid", dead)
        return bool(number != dead and told_by(asked).controller_id == number)

    wait_until(is_told, "no other controller")


def test_the_watch_outlives_the_controller_and_the_broker_that_was_named(
    new_cluster: Callable[..., BrokerCluster], topic: str, tmp_path: Path
) -> None:
    cluster = new_cluster(**BRIEF).start()
    old, controller, third, file = to_a_third_broker(cluster, topic, tmp_path)
    bootstrap = cluster.brokers[controller].bootstrap
    arguments = ["cluster", "reassign", "apply", str(file), "-w", "-b", bootstrap, *SLOW]
    with subprocess.Popen(
        [sys.executable, "-m", "pyrklog", *arguments], stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "each broker copies at most 10 kB/s\n"
        assert watching.stdout.readline() == f"{topic}-0: {old} -> {third}\n"
        assert watching.stdout.readline().startswith("TOPIC"), "it watches"
        alive = cluster.brokers[third].bootstrap
        if controller != old:
            cluster.brokers[controller].kill()
            wait_for_another_controller(cluster, controller, alive)
        out, _ = run(cluster, "apply", str(file), "--throttle", "500MB/s", bootstrap=alive)
        assert "each broker copies at most 500 MB/s\n" in out, "a second one at once"
        assert f"`pyrklog cluster reassign status {file}` shows how far it is" in out
        watching.communicate(timeout=2 * PATIENCE_S)
        assert watching.returncode == 0
    assert replicas(cluster, topic) == {"0": [third]}
    assert RATE not in cluster.json(f"/config/brokers/{third}")["config"]


def test_ongoing_reassignment_is_shown_and_cancelled(
    new_cluster: Callable[..., BrokerCluster], topic: str, tmp_path: Path
) -> None:
    cluster = new_cluster(**BRIEF).start()
    old, controller, still, file = to_a_third_broker(cluster, topic, tmp_path)
    bootstrap = cluster.brokers[controller].bootstrap
    run(cluster, "apply", str(file), *SLOW, bootstrap=bootstrap)
    cluster.brokers[still].signal(signal.SIGSTOP)
    try:
        wait_until(lambda: cluster.is_gone(still), "its session does not end")
        shown, _ = run(cluster, "status", "-o", "json", bootstrap=bootstrap)
        (item,) = json.loads(shown)["items"]
        assert (item["topic"], item["adding"], item["removing"]) == (topic, [still], [old])
        assert item["bytes_left"] > 50_000
        assert item["percent"] == 0
        listed = ["-b", bootstrap, "topic", "list", topic, "-o", "json"]
        (told,) = json.loads(CliRunner().invoke(app, listed).stdout)["items"]
        assert (told["replication_factor"], told["under_replicated"]) == (2, 0)
        out, _ = run(cluster, "cancel", "--all", "--dry-run", bootstrap=bootstrap)
        assert out == f"{topic}-0: would be cancelled\n"
        out, _ = run(cluster, "cancel", "--all", bootstrap=bootstrap)
        assert out == f"{topic}-0: cancelled\n"
        out, _ = run(cluster, "cancel", str(file), bootstrap=bootstrap)
        assert out == "nothing moves\n"
    finally:
        cluster.brokers[still].signal(signal.SIGCONT)
    assert replicas(cluster, topic) == {"0": [old]}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["plan", "--topics", "nothing"], 4, "topic nothing does not exist"),
        (["plan", "--topics", ","], 2, "no topic is named"),
        (["plan", "--brokers", "1,9"], 4, "broker 9 is not there"),
        (["plan", "--brokers", "one"], 2, "--brokers takes numbers"),
        (["plan", "--rate", "fast"], 2, "is no rate"),
        (["apply", "/nowhere/plan.json"], 4, "No such file"),
        (["cancel"], 2, "a plan or --all"),
    ],
)
def test_mistakes_are_told(
    shared: BrokerCluster, arguments: list[str], code: int, words: str
) -> None:
    _, error = run(shared, *arguments, code=code)
    assert words in error


def test_plan_with_missing_partitions_is_refused_whole(
    shared: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    create(shared, topic, 1, 1)
    file = tmp_path / "plan.json"

    def is_throttled(path: str) -> bool:
        return RATE in shared.json(path).get("config", {})

    def wants(*items: tuple[int, list[int]]) -> str:
        partitions = [{"topic": topic, "partition": p, "replicas": r} for p, r in items]
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return str(file)

    _, error = run(shared, "apply", wants((0, [1]), (7, [1])), code=4)
    assert f"topic {topic} has no partition 7" in error
    _, error = run(shared, "apply", wants((0, [9])), "--dry-run", code=4)
    assert "broker 9 is not there" in error
    _, error = run(shared, "apply", wants((0, [9])), "--throttle", "1MB/s", code=1)
    assert "not alive" in error
    throttled = [path for path in ("/config/brokers/1", "/config/brokers/2") if is_throttled(path)]
    assert throttled == [], "nothing was begun"
    out, _ = run(shared, "apply", wants(), "--throttle", "1MB/s")
    assert out == "nothing to do: the plan is empty\n"
