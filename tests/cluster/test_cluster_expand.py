"""``pyrklog cluster expand`` against real brokers."""

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.cli.throttles import FILL_RATE
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, in_sync
from tests.support.room import with_room
from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

NEW = 4
PARTITIONS = 4
RECORDS = 10
MAY_PASS = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT,
}


@pytest.fixture(scope="module")
def cluster(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    """Broker 4 has nothing but what tests move to it."""
    folder = tmp_path_factory.mktemp("expanded")
    # A busy machine passes for no dead broker, and the controller stays where clients found it.
    options: dict[str, Any] = {
        "pyrklog.expansion.rate": 0,
        "pyrklog.expansion.window.ms": 10_000,
        "zookeeper.session.timeout.ms": 30_000,
    }
    cluster = BrokerCluster(f"{zookeeper.address}/expand", folder, count=4, **options)
    yield cluster.start()
    cluster.close()


@pytest.fixture
def admin(cluster: BrokerCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


Make = Callable[..., None]


@pytest.fixture
def make(cluster: BrokerCluster, admin: AdminClient, topic: str) -> Iterator[Make]:
    """Makes the topic on the old brokers, with records."""

    def run(**options: str) -> None:
        assignment = [[1 + index % 3, 1 + (index + 1) % 3] for index in range(PARTITIONS)]
        config = {name.replace("_", "."): value for name, value in options.items()}
        new = NewTopic(topic, PARTITIONS, replica_assignment=assignment, config=config)
        admin.create_topics([new])[topic].result(30)
        members = {index: set(replicas) for index, replicas in enumerate(assignment)}
        wait_until(lambda: in_sync(admin, topic) == members, "not all are in sync")
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for index in range(PARTITIONS):
            for number in range(RECORDS):
                producer.produce(topic, b"x" * 1_000, str(number), index)
        assert producer.flush(30) == 0

    yield run
    command(cluster, "expand", "--broker", str(NEW), "--cancel")
    admin.delete_topics([topic])[topic].result(30)


def command(cluster: BrokerCluster, *arguments: str, code: int = 0) -> tuple[str, str]:
    """Standard output and error of a command that must end with ``code``."""
    words = with_room(["cluster", *arguments])
    done = CliRunner().invoke(app, ["-b", cluster.bootstrap, *words])
    assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}{done.exception}"
    return done.stdout, done.stderr


def items(cluster: BrokerCluster, *arguments: str) -> list[dict[str, Any]]:
    out, _ = command(cluster, *arguments, "-o", "json")
    found: list[dict[str, Any]] = json.loads(out)["items"]
    return found


def replicas(cluster: BrokerCluster, topic: str) -> dict[int, list[int]]:
    found = cluster.json(f"/brokers/topics/{topic}")["partitions"]
    return {int(index): members for index, members in found.items()}


def moving(cluster: BrokerCluster, topic: str) -> dict[int, dict[str, Any]]:
    found = items(cluster, "reassign", "status")
    return {one["partition"]: one for one in found if one["topic"] == topic}


def delete_all(cluster: BrokerCluster, topic: str) -> None:
    """Another replica may lead once the new ones are whole, while the answer waits for others. A
    client goes on to ask the leader that it knows."""
    places = [TopicPartition(topic, index, RECORDS) for index in range(PARTITIONS)]

    def is_done() -> bool:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        done = admin.delete_records(places).values()
        errors = [one.exception(30) for one in done]
        codes = {error.args[0].code() for error in errors if error is not None}
        assert codes <= MAY_PASS
        return not codes

    wait_until(is_done, "the records are not deleted")


def test_new_broker_starts_at_the_ends_and_joins_when_retention_has_passed(
    cluster: BrokerCluster, topic: str, make: Make, tmp_path: Path
) -> None:
    make()
    before = replicas(cluster, topic)
    plan = tmp_path / "plan.json"
    words = ["expand", "--broker", str(NEW), "-t", topic]
    out, _ = command(cluster, *words, "--dry-run")
    assert out.count("from the end (not done)\n") == 2
    assert " of older ones go by retention: whole in about " in out
    assert replicas(cluster, topic) == before
    out, told = command(cluster, *words, "--plan", str(plan))
    assert told == ""
    wanted = {
        one["partition"]: one["replicas"] for one in json.loads(plan.read_text())["partitions"]
    }
    assert len(wanted) == 2
    for index, members in wanted.items():
        old, new = (",".join(map(str, one)) for one in (before[index], members))
        assert f"{topic}-{index}: {old} -> {new} from the end\n" in out

    def has_started() -> bool:
        found = items(cluster, "expand", "--status", "-t", topic)
        return [one["mode"] for one in found] == ["tail"] * 2

    wait_until(has_started, "the new replicas do not start")
    for one in items(cluster, "expand", "--status", "--broker", str(NEW)):
        assert (one["broker"], one["start"], one["leader_start"]) == (NEW, RECORDS, 0)
        assert (one["records_left"], one["by"]) == (RECORDS, "retention")
        assert one["bytes_left"] > 0
    for index, one in moving(cluster, topic).items():
        assert index in wanted
        assert [lacks["records_left"] for lacks in one["partial"]] == [RECORDS]
        assert one["lacks"] == "4: 10 below 10, until retention deletes them"
    # Each record is there for who reads from the beginning.
    count = PARTITIONS * RECORDS
    assert len(consume(cluster, topic, count, f"of {topic}")) == count
    delete_all(cluster, topic)
    command(cluster, "expand", "--status", "-t", topic, "-w", "-q")
    assert replicas(cluster, topic) == before | wanted
    out, _ = command(cluster, "reassign", "status", str(plan))
    assert out.endswith("done: 2 partitions are where the plan wants them\n")

    def has_its_share() -> bool:
        # Some brokers hear of the new replicas later than others.
        out, _ = command(cluster, *words, "--dry-run")
        return out == "nothing to do: the brokers have their share\n"

    wait_until(has_its_share, "it has more to do")


def test_a_cancellation_leaves_the_earlier_replicas(
    cluster: BrokerCluster, topic: str, make: Make
) -> None:
    make()
    before = replicas(cluster, topic)
    command(cluster, "expand", "--broker", str(NEW), "-t", topic)
    assert len(moving(cluster, topic)) == 2
    out, _ = command(cluster, "expand", "--broker", str(NEW), "--cancel", "--dry-run")
    assert out.count("would be cancelled") == 2
    out, _ = command(cluster, "expand", "--broker", str(NEW), "--cancel")
    assert out.count("cancelled") == 2
    assert moving(cluster, topic) == {}
    found = replicas(cluster, topic)
    # In the order of the target, as Kafka's controller leaves them.
    assert {index: set(one) for index, one in found.items()} == {
        index: set(one) for index, one in before.items()
    }
    out, _ = command(cluster, "expand", "--broker", str(NEW), "--cancel")
    assert out == "nothing moves to broker 4\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cleanup_policy": "compact"}, "it is compacted"),
        (
            {"retention_ms": "-1"},
            "retention deletes nothing of it, and its new brokers back-fill nothing",
        ),
    ],
)
def test_what_retention_never_makes_whole_is_copied(
    cluster: BrokerCluster, topic: str, make: Make, options: dict[str, str], why: str
) -> None:
    make(**options)
    out, told = command(cluster, "expand", "--broker", str(NEW), "-t", topic, "-w")
    assert told == f"{topic} is copied: {why}\n"
    assert "from the end" not in out
    assert [NEW in members for members in replicas(cluster, topic).values()].count(True) == 2


def test_copy_mode_copies(cluster: BrokerCluster, topic: str, make: Make) -> None:
    make()
    words = ["--mode", "copy", "--throttle", "500MB/s", "-w"]
    out, _ = command(cluster, "expand", "--broker", str(NEW), "-t", topic, *words)
    assert "from the end" not in out
    assert [NEW in members for members in replicas(cluster, topic).values()].count(True) == 2
    rate = "leader.replication.throttled.rate"
    assert rate not in cluster.json("/config/brokers/1")["config"]


def test_a_plan_is_applied_from_the_end(
    cluster: BrokerCluster, topic: str, make: Make, tmp_path: Path
) -> None:
    make()
    file = tmp_path / "plan.json"
    target = {"topic": topic, "partition": 0, "replicas": [NEW, 1]}
    file.write_text(json.dumps({"version": 1, "partitions": [target]}))
    command(cluster, "reassign", "apply", str(file), "--from-end")
    wait_until(lambda: moving(cluster, topic)[0]["partial"], "it does not start at the end")
    delete_all(cluster, topic)
    command(cluster, "reassign", "status", str(file), "-w", "-q")
    assert replicas(cluster, topic)[0] == [NEW, 1]


def fill_rate(cluster: BrokerCluster) -> str | None:
    """As an administrator has set it at run time."""
    found: str | None = cluster.json(f"/config/brokers/{NEW}")["config"].get(FILL_RATE)
    return found


def set_fill_rate(cluster: BrokerCluster, rate: int) -> None:
    changed = ["alter", "broker", str(NEW), "--set", f"{FILL_RATE}={rate}"]
    done = CliRunner().invoke(app, ["-b", cluster.bootstrap, "config", *changed])
    assert done.exit_code == 0, done.stdout + done.stderr
    assert fill_rate(cluster) == str(rate)


@pytest.mark.parametrize("throttle", ["500MB/s", "auto"])
def test_throttle_is_that_of_back_fills_while_they_last(
    cluster: BrokerCluster, topic: str, make: Make, throttle: str
) -> None:
    make()
    set_fill_rate(cluster, 1)
    words = ["expand", "--broker", str(NEW), "-t", topic, "--throttle", throttle, "-w"]
    out, _ = command(cluster, *words)
    assert "from the end" in out
    assert "each broker copies at most" in out
    placed = replicas(cluster, topic)
    assert [NEW in members for members in placed.values()].count(True) == 2
    assert fill_rate(cluster) is None
    count = PARTITIONS * RECORDS
    assert len(consume(cluster, topic, count, f"of {topic}")) == count


def test_a_stopped_command_goes_on_and_a_look_takes_a_throttle_away(
    cluster: BrokerCluster, topic: str, make: Make
) -> None:
    make()
    set_fill_rate(cluster, 1)
    words = ["expand", "--broker", str(NEW), "-t", topic, "-w", "--throttle"]
    arguments = with_room(["cluster", *words, "10kB/s", "-b", cluster.bootstrap])
    command_line = [sys.executable, "-m", "pyrklog", *arguments]
    with subprocess.Popen(command_line, stderr=subprocess.PIPE, text=True) as started:
        wait_until(lambda: fill_rate(cluster) == "10000", "it sets no rate", 2 * PATIENCE_S)
        started.send_signal(signal.SIGINT)
        _, told = started.communicate(timeout=2 * PATIENCE_S)
    assert started.returncode == 130, told
    assert f"`pyrklog cluster expand --broker {NEW} --cancel` ends it" in told
    assert fill_rate(cluster) == "10000"
    out, _ = command(cluster, *words, "500MB/s")
    assert "each broker copies at most 500 MB/s\n" in out
    assert [NEW in members for members in replicas(cluster, topic).values()].count(True) == 2
    assert fill_rate(cluster) is None
    # As a command leaves it that was killed when its moves had ended.
    set_fill_rate(cluster, 1)

    def is_told() -> bool:
        out, _ = command(cluster, "expand", "--broker", str(NEW), "--status")
        return f"{FILL_RATE} of broker {NEW} is that of its own options again\n" in out

    wait_until(is_told, "the broker does not tell its rate")
    assert fill_rate(cluster) is None


def test_promotion_is_refused_with_reasons_until_nobody_needs_the_records(
    cluster: BrokerCluster, topic: str, make: Make
) -> None:
    make()
    words = ["expand", "--broker", str(NEW), "-t", topic]
    command(cluster, *words)
    places = [TopicPartition(topic, index, 3) for index in range(PARTITIONS)]
    group = f"old-{topic}"
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group}
    consumer = Consumer(settings)
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    wait_until(lambda: len(partial(cluster, topic)) == 2, "the new replicas do not start")
    promote = [*words, "--promote"]
    _, told = command(cluster, *promote, "-y", code=8)
    why = f"group {group} has committed 3, 7 below 10; nobody is in it: --without-group {group}"
    assert told.count(why) == 2
    promote += ["--without-group", group]
    look = ["-b", cluster.bootstrap, "cluster", *promote, "--dry-run"]
    readers = itertools.count()

    def is_refused_for_a_fetch() -> bool:
        # On a busy machine the fetch may be forgotten before the command looks.
        consume(cluster, topic, PARTITIONS * RECORDS, f"of {topic} {next(readers)}")
        done = CliRunner().invoke(app, look)
        assert group not in done.stderr
        return done.exit_code == 8 and "a consumer has fetched 0 from broker" in done.stderr

    wait_until(is_refused_for_a_fetch, "nobody tells of the fetches")
    assert len(partial(cluster, topic)) == 2

    def is_clear() -> bool:
        return CliRunner().invoke(app, look).exit_code == 0

    wait_until(is_clear, "the fetches are not forgotten", 2 * PATIENCE_S)
    assert len(partial(cluster, topic)) == 2, "a dry run deletes nothing"
    out, _ = command(cluster, *promote, "-y")
    assert out.count(f"{RECORDS} records below {RECORDS} deleted") == 2
    command(cluster, "expand", "--status", "-t", topic, "-w", "-q")
    assert [NEW in members for members in replicas(cluster, topic).values()].count(True) == 2
    out, _ = command(cluster, *promote, "-y")
    assert out == "nothing to promote: no new replica lacks records\n"


def partial(cluster: BrokerCluster, topic: str) -> list[dict[str, Any]]:
    found = items(cluster, "expand", "--status", "-t", topic)
    return [one for one in found if one["mode"] == "tail"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--broker", "9"], 4, "broker 9 is not there"),
        (["--broker", "9", "--status"], 4, "broker 9 is not there"),
        (["--broker", "9", "--cancel"], 4, "broker 9 is not there"),
        (["--broker", "4", "--max-fill", "0.9"], 2, "--max-fill takes percents"),
        (["--broker", "x"], 2, "--broker takes numbers, not 'x'"),
        ([], 2, "no broker is named"),
        (["--cancel"], 2, "no broker is named"),
        (["--broker", "4", "-t", "none-such"], 4, "none-such"),
        (["--broker", "4", "--status", "--cancel"], 2, "exclude each other"),
        (["--status", "--mode", "copy"], 2, "--status takes neither"),
        (["--broker", "4", "--cancel", "--promote"], 2, "exclude each other"),
        (["--promote"], 2, "no broker is named"),
        (["--broker", "4", "--without-group", "g"], 2, "goes with --promote alone"),
        (["--broker", "4", "--throttle", "5MB/s"], 2, "--throttle needs --plan FILE, or -w"),
        (["--broker", "4", "--mode", "both"], 2, "both"),
    ],
)
def test_mistakes(cluster: BrokerCluster, arguments: list[str], code: int, told: str) -> None:
    _, error = command(cluster, "expand", *arguments, code=code)
    assert told in error
