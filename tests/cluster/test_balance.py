"""Plans that are predicted, carried out in batches and undone: real brokers, and Apache Kafka's own
tool."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from typer.testing import CliRunner

from pyrklog.cli.app import app
from tests.support import kafka_tools, zookeeper_kafka
from tests.support.balancing import (
    PATIENT,
    RATE,
    SLOW,
    delete,
    fill,
    has_rate,
    is_throttled,
    killed_when_it_moves,
    large,
    moving_of,
    place,
    replicas,
    run,
    wait_until_told,
    write,
)
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, enlarge
from tests.support.knowing import leaders_of, wait_until_each
from tests.support.room import with_room
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]


@pytest.fixture
def four(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    return new_cluster(count=4, **PATIENT).start()


@pytest.fixture
def cluster(new_cluster: Callable[..., BrokerCluster]) -> BrokerCluster:
    return new_cluster(**PATIENT).start()


def test_a_plan_is_carried_out_in_batches_and_undone(
    four: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    before = [[1, 2], [2, 3], [3, 1]] * 4
    place(four, topic, before)
    file = tmp_path / "plan.json"
    shown, told = run(
        four, "reassign", "plan", "-t", topic, "--write", str(file), "-o", "json", "--batch", "2"
    )
    rows = {row["broker"]: row for row in json.loads(shown)["items"]}
    assert rows[4]["replicas"] == 0
    assert rows[4]["replicas_after"] == 6
    assert rows[4]["leaders_after"] == 3
    assert rows[4]["takes"] > 6 * 20_000
    assert "moves 6 of 12 partitions" in told
    assert "in 3 batches" in told or "in 4 batches" in told
    assert replicas(four, topic) == before

    arguments = ["reassign", "apply", str(file), "--batch", "2", "--throttle", "500MB/s", "-w"]
    out, _ = run(four, *arguments)
    assert "batch 1 of " in out
    assert f"{topic}-" in out
    assert "done: " in out
    assert "predicted " in out, "it says how well it was predicted"
    after = replicas(four, topic)
    assert sum(4 in one for one in after) == 6
    record = json.loads((tmp_path / "plan.json.progress.json").read_text())
    assert record["real"]["watched"] is True
    assert record["predicted"]["bytes"] == record["real"]["bytes"] == rows[4]["takes"]
    assert RATE not in four.json("/config/brokers/1")["config"]

    wait_until_told(four, topic, after)
    (verified,) = kafka_tools.run(
        four.bootstrap, [f"reassign-partitions --verify --reassignment-json-file {file}"]
    )
    moved = [line for line in verified.lines if line.startswith("Reassignment of partition")]
    assert len(moved) == len(json.loads(file.read_text())["partitions"])
    assert all(line.endswith("is completed.") for line in moved)

    shown, _ = run(four, "reassign", "status", str(file), "-o", "json")
    assert json.loads(shown)["summary"]["percent"] == 100.0
    out, _ = run(four, "reassign", "cancel", str(file), "--rollback", "--dry-run")
    assert "would go back" in out
    assert replicas(four, topic) == after
    out, _ = run(four, "reassign", "cancel", str(file), "--rollback", "-w")
    assert out.startswith("nothing moves\n")
    assert replicas(four, topic) == before
    wait_until_told(four, topic, before)
    assert len(consume(four, topic, 240, "g")) == 240


def test_a_move_that_stands_still_is_undone_with_one_that_is_done(
    four: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    place(four, topic, [[1], [2]])
    fill(four, topic, 1)
    file = write(tmp_path / "plan.json", topic, [[3], [4]])
    run(four, "reassign", "apply", file, "--throttle", SLOW)
    wait_until(lambda: replicas(four, topic)[0] == [3], "the first does not move")

    def one_is_done() -> dict[str, Any] | None:
        # The controller hears of its last write after ZooKeeper has it, the others later.
        out, _ = run(four, "reassign", "status", file, "-o", "json")
        told: dict[str, Any] = json.loads(out)["summary"]
        return told if told["partitions_done"] == 1 else None

    summary = wait_until(one_is_done, "it is not told")
    assert summary["partitions"] == 2
    assert 0 < summary["percent"] < 100
    assert summary["bytes_left"] > 0
    out, _ = run(four, "reassign", "status", file)
    assert "1 of 2 partitions done · " in out
    wait_until_each(
        four.bootstrap,
        lambda told: leaders_of(told, topic) == {0: 3, 1: 2},
        "not every broker knows the new leader",
    )
    out, _ = run(four, "reassign", "cancel", file, "--rollback")
    assert f"{topic}-1: cancelled\n" in out
    assert f"{topic}-0: 3 -> 1\n" in out
    wait_until(lambda: replicas(four, topic) == [[1], [2]], "it is not undone")
    assert not is_throttled(four, topic)
    _, error = run(four, "reassign", "cancel", "--all", "--rollback", code=2)
    assert "--rollback needs the plan" in error
    Path(file + ".progress.json").unlink()
    _, error = run(four, "reassign", "cancel", file, "--rollback", code=4)
    assert "nothing is known of how replicas were before" in error


def test_an_apply_that_is_killed_goes_on_and_so_does_its_rollback(
    four: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    before, after = [[1], [2]], [[3], [4]]
    large(four, topic, before)
    file = write(tmp_path / "plan.json", topic, after)
    slow = ["--throttle", SLOW, "--batch", "1"]
    with killed_when_it_moves(four, topic, 1, "reassign", "apply", file, *slow):
        pass
    assert has_rate(four)
    assert is_throttled(four, topic)
    (first,) = moving_of(four, topic)
    out, _ = run(four, "reassign", "apply", file, "-w", "--throttle", "500MB/s")
    assert f"{topic}-{1 - first}: {before[1 - first][0]} -> {after[1 - first][0]}\n" in out
    assert f"{topic}-{first}: " not in out, "it was on its way"
    assert replicas(four, topic) == after
    assert not is_throttled(four, topic)
    assert not has_rate(four)
    back = ["reassign", "cancel", file, "--rollback"]
    with killed_when_it_moves(four, topic, 2, *back, "--throttle", SLOW, "-w"):
        pass
    out, _ = run(four, *back)
    assert out.startswith("nothing moves\n2 partitions there already, or on the way\n")
    assert moving_of(four, topic) == {0, 1}
    assert has_rate(four), "what is on its way stays throttled"
    run(four, *back, "-w", "--throttle", "500MB/s")
    assert replicas(four, topic) == before
    assert not is_throttled(four, topic)
    assert not has_rate(four)
    assert len(consume(four, topic, 640, "g")) == 640


def test_what_another_plan_moves_and_its_throttle_stay(
    four: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    large(four, topic, [[1, 2]])
    first = write(tmp_path / "first.json", topic, [[1, 3]])
    other = write(tmp_path / "other.json", topic, [[1, 4]])
    with killed_when_it_moves(four, topic, 1, "reassign", "apply", first, "--throttle", SLOW, "-w"):
        # The end of another plan, or a hand, takes names and rates away: they are set again. The
        # follower's stay, else the copy would end first.
        admin = AdminClient({"bootstrap.servers": four.bootstrap})
        option, named = "leader.replication.throttled.replicas", f"/config/topics/{topic}"
        _unset(admin, ResourceType.TOPIC, topic, option)
        for number in four.brokers:
            _unset(admin, ResourceType.BROKER, str(number), RATE)
        wait_until(lambda: has_rate(four), "the rate stays away")
        wait_until(lambda: option in four.json(named)["config"], "the names stay away")
    _, error = run(four, "reassign", "apply", other, code=1)
    assert f"error[PK78]: {topic}-0 moves to 1,3 already" in error
    _, error = run(four, "drain", "--broker", "1", "-y", code=8)
    assert f"1 partition left out, such as {topic}-0: another plan moves them" in error
    assert moving_of(four, topic) == {0}
    run(four, "reassign", "apply", other, "--additional", "-w", "--throttle", "500MB/s")
    assert replicas(four, topic) == [[1, 4]]
    wait_until_told(four, topic, [[1, 4]])
    _, error = run(four, "reassign", "cancel", first, "--rollback", code=8)
    assert f"{topic}-0 stays: it is 1,4, as the plan never left it" in error
    # A topic that was made anew is another one.
    delete(four, topic)
    place(four, topic, [[1, 4]])
    _, error = run(four, "reassign", "cancel", other, "--rollback", code=8)
    assert f"{topic}-0 stays: its topic was deleted and created anew" in error
    assert replicas(four, topic) == [[1, 4]]


def _unset(admin: AdminClient, kind: ResourceType, name: str, option: str) -> None:
    entry = ConfigEntry(option, None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_plans_at_once_and_a_topic_that_is_deleted(
    four: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    other = f"{topic}-other"
    large(four, topic, [[1]])
    enlarge(AdminClient({"bootstrap.servers": four.bootstrap}), topic, 2)
    place(four, other, [[2]])
    small = replicas(four, topic)[1]
    wait_until_told(four, topic, [[1], small])
    target = next(number for number in (2, 3, 4) if [number] != small)
    first = write(tmp_path / "first.json", topic, [[4]])
    second = tmp_path / "second.json"
    partition = {"topic": topic, "partition": 1, "replicas": [target]}
    second.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    run(four, "reassign", "apply", first, "--throttle", SLOW)
    _, error = run(four, "reassign", "apply", str(second), "--throttle", SLOW, "-w")
    assert "other moves are throttled still" in error
    named = four.json(f"/config/topics/{topic}")["config"][
        "follower.replication.throttled.replicas"
    ]
    assert named == "0:4"
    assert has_rate(four)
    # A third plan waits for the first one's move as its first batch. Then its other topic is gone.
    both = json.loads(Path(first).read_text())
    both["partitions"].append({"topic": other, "partition": 0, "replicas": [3]})
    third = tmp_path / "third.json"
    third.write_text(json.dumps(both))
    arguments = ["reassign", "apply", str(third), "--throttle", SLOW, "--batch", "1", "-w"]
    command = [sys.executable, "-m", "pyrklog", "-b", four.bootstrap, "cluster", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        progress = tmp_path / "third.json.progress.json"
        wait_until(progress.exists, "it does not begin", 2 * PATIENCE_S)
        delete(four, other)
        run(four, "reassign", "cancel", first)
        _, told = started.communicate(timeout=2 * PATIENCE_S)
    assert started.returncode == 4, told
    assert f"{other}-0: " in told
    assert not is_throttled(four, topic)
    assert not has_rate(four)
    out, error = run(four, "reassign", "apply", str(third), code=9)
    assert f"{topic}-0: 1 -> 4\n" in out
    assert f"{other}-0: " in error
    out, _ = run(four, "reassign", "status", str(third), "-o", "json", "-w", code=8)
    assert replicas(four, topic)[0] == [4]


def test_a_broker_that_hangs_stops_no_throttled_plan(
    four: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    controller = four.controller()
    still, old, new = (number for number in (1, 2, 3, 4) if number != controller)
    place(four, topic, [[old]])
    file = write(tmp_path / "plan.json", topic, [[new]])
    bootstrap = four.brokers[controller].bootstrap
    four.brokers[still].signal(signal.SIGSTOP)
    try:
        arguments = ["reassign", "apply", file, "--throttle", "500MB/s", "-w", "--timeout", "10"]
        run(four, *arguments, bootstrap=bootstrap)
    finally:
        four.brokers[still].signal(signal.SIGCONT)
    assert replicas(four, topic) == [[new]]
    assert not is_throttled(four, topic)


def test_a_throttle_that_follows_the_brokers(
    four: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    place(four, topic, [[1]] * 3)
    file = write(tmp_path / "plan.json", topic, [[2], [3], [4]])
    out, _ = run(four, "reassign", "apply", file, "--throttle", "auto", "--batch", "1")
    assert out.startswith("each broker copies at most 20 MB/s for a start\n")
    assert "batch 3 of 3" in out
    assert replicas(four, topic) == [[2], [3], [4]]
    assert RATE not in four.json("/config/brokers/1")["config"]


def test_a_plan_names_directories_and_moves_between_them(
    new_cluster: Callable[..., BrokerCluster], topic: str, tmp_path: Path
) -> None:
    first, second = str(tmp_path / "disk1"), str(tmp_path / "disk2")
    cluster = new_cluster(count=3, **PATIENT)
    cluster.brokers[3].options["log.dirs"] = f"{first},{second}"
    cluster.start()
    place(cluster, topic, [[1], [1], [2], [2]])
    file = tmp_path / "plan.json"
    text, _ = run(cluster, "reassign", "plan", "-t", topic, "--exclude", "1,2")
    partitions = json.loads(text)["partitions"]
    assert sorted(one["log_dirs"] for one in partitions) == [[first]] * 2 + [[second]] * 2
    file.write_text(text)
    out, _ = run(cluster, "reassign", "apply", str(file), "-w")
    assert out.endswith("done: 4 partitions are where the plan wants them\n")
    folders = {path.parent.name for path in tmp_path.glob(f"disk?/{topic}-*")}
    assert folders == {"disk1", "disk2"}
    for one in partitions:
        one["log_dirs"] = [second]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    _, error = run(cluster, "reassign", "status", str(file), code=8)
    assert f"is not in {second} of broker 3" in error
    run(cluster, "reassign", "apply", str(file), "-w")
    run(cluster, "reassign", "status", str(file))
    assert len(list(Path(second).glob(f"{topic}-[0-9]"))) == 4
    partitions[0]["log_dirs"] = ["/nowhere"]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    _, error = run(cluster, "reassign", "apply", str(file), code=1)
    assert "LOG_DIR_NOT_FOUND" in error


def test_plans_of_kafkas_tool_and_ours_for_it(
    cluster: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    place(cluster, topic, [[1], [1], [2], [2]])
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    (generated,) = kafka_tools.run(
        cluster.bootstrap,
        [f"reassign-partitions --generate --topics-to-move-json-file {topics} --broker-list 2,3"],
    )
    theirs, ours = tmp_path / "theirs.json", tmp_path / "ours.json"
    theirs.write_text(generated.lines[-1])
    run(cluster, "reassign", "apply", str(theirs), "-w")
    wanted = {
        one["partition"]: one["replicas"] for one in json.loads(theirs.read_text())["partitions"]
    }
    assert dict(enumerate(replicas(cluster, topic))) == wanted
    wait_until_told(cluster, topic, replicas(cluster, topic))
    run(cluster, "reassign", "plan", "-f", str(topics), "--exclude", "3", "--write", str(ours))
    (executed,) = kafka_tools.run(
        cluster.bootstrap,
        [f"reassign-partitions --execute --reassignment-json-file {ours}"],
    )
    assert "Successfully started partition reassignment" in executed.text
    _, _ = run(cluster, "reassign", "status", str(ours), "-w")
    assert all(3 not in one for one in replicas(cluster, topic))


def test_a_skew_is_balanced_without_being_asked(cluster: BrokerCluster, topic: str) -> None:
    place(cluster, topic, [[1], [1], [1], [1], [1], [2]])
    rules = ["reassign", "auto", "--over", "1.3", "--every", "1s"]
    out, _ = run(cluster, *rules, "--for", "1h", "--rounds", "2")
    assert out.startswith("waits: ")
    assert out.count("\n") == 1, "the same is said once"
    out, _ = run(cluster, *rules, "--for", "0s", "--rounds", "1", "--dry-run")
    assert out.endswith("nothing changed\n")
    before = [[1], [1], [1], [1], [1], [2]]
    assert replicas(cluster, topic) == before
    out, _ = run(cluster, *rules, "--for", "0s", "--rounds", "1", "--most", "2")
    assert out.endswith("done\n")
    assert out.count(" of the mean of ") == 2, "each move has its reason"
    moved = [index for index, one in enumerate(replicas(cluster, topic)) if one != before[index]]
    assert len(moved) == 2
    wait_until_told(cluster, topic, replicas(cluster, topic))
    out, _ = run(cluster, *rules, "--for", "0s", "--rounds", "2")
    assert sorted(one for (one,) in replicas(cluster, topic)) == [1, 1, 2, 2, 3, 3]
    assert out.endswith("balanced\n")


def test_apache_kafkas_brokers(zookeeper: ZooKeeperServer, topic: str, tmp_path: Path) -> None:
    address = f"{zookeeper.address}/{topic}"
    runner = CliRunner()
    with contextlib.ExitStack() as stack:
        started = []
        for number in (1, 2, 3):
            (tmp_path / str(number)).mkdir()
            broker = zookeeper_kafka.kafka(tmp_path / str(number), address, number, [])
            started.append(stack.enter_context(broker).bootstrap)
        bootstrap = ",".join(started)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        new = NewTopic(topic, 4, replica_assignment=[[1, 2], [2, 1], [1, 2], [2, 1]])
        admin.create_topics([new])[topic].result(30)
        producer = Producer({"bootstrap.servers": bootstrap})
        for index in range(40):
            producer.produce(topic, b"x" * 10_000, partition=index % 4)
        assert producer.flush(60) == 0

        def told(*arguments: str) -> str:
            done = runner.invoke(app, ["-b", bootstrap, *with_room(["cluster", *arguments])])
            assert done.exit_code == 0, f"{arguments}: {done.stdout}{done.stderr}{done.exception}"
            return done.stdout

        def placed() -> list[tuple[int, ...]]:
            partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
            return [tuple(partitions[index].replicas) for index in range(4)]

        file = str(tmp_path / "plan.json")
        told("reassign", "plan", "-t", topic, "--write", file)
        out = told("reassign", "apply", file, "--throttle", "auto", "--batch", "1", "-w")
        assert out.startswith(
            "these brokers do not tell how they bear it: each copies at most 50 MB/s"
        )
        wait_until(
            lambda: sum(3 in replicas for replicas in placed()) in (2, 3), "it has no replicas"
        )
        told("reassign", "status", file)
        out = told("drain", "--broker", "1", "-y", "-w")
        assert out.endswith("broker 1 has no replicas any more\n")
        wait_until(lambda: all(set(one) == {2, 3} for one in placed()), "a replica is elsewhere")
        told("replace", "2", "--with", "1", "-y", "-w")
        wait_until(lambda: all(set(one) == {1, 3} for one in placed()), "a replica is elsewhere")
