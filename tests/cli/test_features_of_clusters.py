"""Rows of the feature table (docs/using/compared.md) about clusters, on one that `pyrklog dev` has
started: three brokers and a ZooKeeper."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from pyrklog.base.exit_codes import Exit
from pyrklog.cli.app import app
from pyrklog.dev import ports
from pyrklog.dev.errors import DevError
from tests.support import kafka_tools
from tests.support.feature_claims import Claims, OtherTools, kcat
from tests.support.feature_table import NO, PARTLY, YES
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_tools import KafkaTools
from tests.support.kcat import needs_kcat
from tests.support.room import with_room
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.jvm, needs_kcat]
ALL = {1, 2, 3}
RECORDS = 200
THROTTLE = "20kB/s"
MANY_RECORDS = 5_000
"""They need minutes at that rate."""
KAFKA_S = 300
"""Three nodes of Kafka may each need a minute and a half to start."""


class Dev:
    """The command line in this process, with a home of its own and the cluster's profile."""

    def __init__(self, home: Path) -> None:
        hidden = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "PYRKLOG_BOOTSTRAP", "PYRKLOG_CONFIG")
        self._environment = {**dict.fromkeys(hidden), "HOME": str(home)}

    def __call__(self, *words: str, code: int = 0) -> str:
        done = self.full(*words)
        assert done.exit_code == code, f"{words}: {done.stdout}{done.stderr}{done.exception}"
        return str(done.stdout)

    def full(self, *words: str) -> Any:
        return CliRunner(env=self._environment).invoke(app, with_room(words))

    def items(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self(*words, "-o", "json"))["items"]
        return found

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {one["node"]: one for one in self.items("dev", "status")}

    @property
    def bootstrap(self) -> str:
        return ",".join(one["address"] for one in self.nodes().values() if one["role"] == "broker")


def free_base() -> int:
    """Not what a cluster gets by default, since test_dev.py has one at the same time."""
    first = ports.BASE_PORT + ports.BLOCK_PORTS
    for base in random.sample(range(first, 31_000, ports.BLOCK_PORTS), 10):
        try:
            ports.check_free(range(base, base + ports.USED_PORTS), "")
        except DevError:
            continue
        return base
    raise AssertionError("other processes have ports of all blocks")


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    run = Dev(tmp_path_factory.mktemp("home"))
    words = ("--set", "auto.leader.rebalance.enable=false", "--base-port", str(free_base()))
    run("dev", "start", "-n", "3", *words, "-q")
    yield run
    run("dev", "purge")


@pytest.fixture(autouse=True)
def whole(dev: Dev) -> None:
    """A test that fails may leave a broker dead, paused or cut off: the next one has all."""
    for name, node in dev.nodes().items():
        match node["state"]:
            case "paused":
                dev("dev", "resume", name)
            case "isolated":
                dev("dev", "heal", name)
            case "dead":
                dev("dev", "restart", name)


@pytest.fixture
def at(dev: Dev) -> tuple[str, str]:
    """Where Apache's tools look."""
    return "--bootstrap-server", dev.bootstrap


Make = Callable[..., None]


@pytest.fixture
def make(dev: Dev, topic: str) -> Iterator[Make]:
    """Creates the topic with records in each partition. It goes with the test: another one asks
    whether all topics bear a restart."""

    def create(partitions: int, replicas: int, records: int = RECORDS) -> None:
        dev("topic", "create", topic, "-p", str(partitions), "-r", str(replicas))
        producer = Producer({"bootstrap.servers": dev.bootstrap, "acks": "all"})
        for number in range(records):
            producer.produce(topic, b"%d" % number * 200, partition=number % partitions)
        assert producer.flush(60) == 0

    yield create
    deleted = dev.full("topic", "delete", topic, "-y")
    assert deleted.exit_code in (Exit.OK, Exit.NOT_FOUND), deleted.stderr


def partitions_of(dev: Dev, topic: str) -> dict[int, dict[str, Any]]:
    [found] = dev.items("topic", "describe", topic)
    return {one["partition"]: one for one in found["partitions"]}


def wait_for_isr(dev: Dev, topic: str, wanted: set[int]) -> None:
    """Brokers come and go: until they have settled, a question may fail."""

    def is_so() -> bool:
        done = dev.full("topic", "describe", topic, "-o", "json")
        if done.exit_code:
            return False
        [found] = json.loads(done.stdout)["items"]
        return all(set(one["isr"]) == wanted for one in found["partitions"])

    # A session ends only some 20 s after its broker.
    what = f"its replicas in sync are not {wanted}"
    wait_until(is_so, lambda: f"{what}: {partitions_of(dev, topic)}", 2 * PATIENCE_S)


# --- the cluster itself --------------------------------------------------------------------------


def test_multi_broker_one_command(claim: Claims, dev: Dev, others: OtherTools) -> None:
    """Other kcats have mock clusters; Debian's does not say so."""
    assert {int(one["node"]) for one in dev.nodes().values() if one["role"] == "broker"} == ALL
    told = json.loads(kcat("-b", dev.bootstrap, "-L", "-J"))
    assert {one["id"] for one in told["brokers"]} == ALL
    others.kcat_lacks("mock cluster")
    others.kafka_lacks("start a cluster")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


@pytest.mark.timeout(KAFKA_S)
def test_multi_broker_real_no_docker(
    claim: Claims, dev: Dev, topic: str, make: Make, tmp_path: Path
) -> None:
    make(3, 3)
    nodes = dev.nodes()
    for name in ("1", "2", "3", "zk1"):
        words = Path(f"/proc/{nodes[name]['pid']}/cmdline").read_bytes().split(b"\0")
        assert (b"serve" in words) == (name != "zk1")
    for name in ("1", "2", "3"):
        files = Path(nodes[name]["directory"])
        # A broker writes a while after it has acknowledged.
        wait_until(partial(_has_some, files, f"{topic}-0/*.log"), f"nothing in {files}")
    controls = {Path(f"/proc/{one['pid']}/cgroup").read_text() for one in nodes.values()}
    assert len(controls) == 1, "no containers"
    # For Kafka's nodes the test does what their operator does: a file of options and a formatted
    # directory for each.
    with KafkaCluster.running(tmp_path / "kafka") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
        for node in kafka.brokers.values():
            wait_until(partial(_has_some, node.data, f"{topic}-0/*.log"), f"nothing in {node.data}")
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)


def _is_in(dev: Dev, state: str) -> bool:
    """The third broker."""
    return bool(dev.nodes()["3"]["state"] == state)


def _has_some(folder: Path, pattern: str) -> bool:
    return any(folder.rglob(pattern))


def test_chaos_verbs(claim: Claims, dev: Dev, topic: str, make: Make, others: OtherTools) -> None:
    """More of it is in tests/cluster/test_dev.py."""
    make(3, 3)
    for stop, state, go_on in (("pause", "paused", "resume"), ("isolate", "isolated", "heal")):
        dev("dev", stop, "3")
        # A signal reaches a process of many threads a moment later.
        wait_until(partial(_is_in, dev, state), f"it is not {state}")
        dev("dev", go_on, "3")
        wait_until(partial(_is_in, dev, "running"), "it does not run again")
    dev("dev", "kill", "3")
    assert dev.nodes()["3"]["state"] == "dead"
    wait_for_isr(dev, topic, {1, 2})
    dev("dev", "restart", "3")
    wait_for_isr(dev, topic, ALL)
    others.lack("pause", "isolate", "sigkill")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


# --- partitions and their replicas ---------------------------------------------------------------


def plan_file(folder: Path, topic: str, replicas: Sequence[Sequence[int]]) -> str:
    """As one writes it by hand for Kafka's tool."""
    file = folder / "by-hand.json"
    partitions = [
        {"topic": topic, "partition": number, "replicas": members}
        for number, members in enumerate(replicas)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


def replicas_of(dev: Dev, topic: str) -> list[list[int]]:
    return [one["replicas"] for _, one in sorted(partitions_of(dev, topic).items())]


def test_change_replication_factor(
    claim: Claims,
    dev: Dev,
    at: tuple[str, str],
    topic: str,
    make: Make,
    tools: KafkaTools,
    others: OtherTools,
    tmp_path: Path,
) -> None:
    make(2, 1)
    plan = tmp_path / "plan.json"
    plan.write_text(dev("cluster", "reassign", "plan", "-t", topic, "--rf", "3", "-q"))
    dev("cluster", "reassign", "apply", str(plan), "-w", "-q")
    # Any broker tells; one may hear of the end a moment later.
    wait_until(
        lambda: [set(members) for members in replicas_of(dev, topic)] == [ALL, ALL],
        lambda: f"not everywhere: {replicas_of(dev, topic)}",
    )
    # Kafka's takes a plan, and makes none that changes their number.
    file = plan_file(tmp_path, topic, [[1, 2], [2, 3]])
    words = ("--reassignment-json-file", file)
    assert tools("reassign-partitions", *at, "--execute", *words).status == 0
    wait_until(lambda: replicas_of(dev, topic) == [[1, 2], [2, 3]], "it does not change")
    assert "replication-factor" not in others.kafka["reassign-partitions"]
    others.kcat_has_only_its_modes()
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)


def test_count_skew(
    claim: Claims,
    dev: Dev,
    at: tuple[str, str],
    topic: str,
    make: Make,
    tools: KafkaTools,
    others: OtherTools,
) -> None:
    make(4, 2)
    [found] = dev.items("topic", "skew", topic, "--by", "leaders")
    ours = {one["broker"]: one["leaders"] for one in found["brokers"]}
    lines = tools("topics", *at, "--describe", "--topic", topic).lines
    leaders = [int(led[1]) for line in lines if (led := re.search(r"Leader: (\d)", line))]
    assert ours == {number: leaders.count(number) for number in ALL}
    assert "max/mean" in dev("topic", "skew", topic, "--by", "replicas")
    others.lack("skew")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_byte_rate_skew(
    claim: Claims, dev: Dev, topic: str, make: Make, others: OtherTools
) -> None:
    make(3, 1)
    leader = partitions_of(dev, topic)[0]["leader"]
    producer = Producer({"bootstrap.servers": dev.bootstrap})
    has_begun, is_over = threading.Event(), threading.Event()

    def go_on() -> None:
        while not is_over.is_set():
            producer.produce(
                topic, bytes(1_000), partition=0, on_delivery=lambda *_: has_begun.set()
            )
            producer.poll(0.005)

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        # A producer looks for the leader first, which may take the second that is measured.
        assert has_begun.wait(PATIENCE_S)
        [found] = dev.items("topic", "skew", topic, "--by", "rate", "--over", "1")
    finally:
        is_over.set()
        writing.join()
    rates = {one["broker"]: one["rate"] for one in found["brokers"]}
    assert rates[leader] > 0
    assert {rate for number, rate in rates.items() if number != leader} == {0}
    others.lack("skew", "bytes per second of")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_reassignment_plan(
    claim: Claims,
    dev: Dev,
    at: tuple[str, str],
    topic: str,
    make: Make,
    tools: KafkaTools,
    tmp_path: Path,
    others: OtherTools,
) -> None:
    """Each makes plans that the other takes."""
    make(3, 2)
    ours = tmp_path / "ours.json"
    ours.write_text(dev("cluster", "reassign", "plan", "-t", topic, "--brokers", "1,2", "-q"))
    move = tmp_path / "topics.json"
    move.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    words = ("--generate", "--broker-list", "1,2", "--topics-to-move-json-file", str(move))
    told = tools("reassign-partitions", *at, *words)
    theirs = tmp_path / "theirs.json"
    theirs.write_text(told.lines[-1])
    for plan in (ours, theirs):
        items = json.loads(plan.read_text())["partitions"]
        assert {one for item in items for one in item["replicas"]} <= {1, 2}
    assert "(not done)" in dev("cluster", "reassign", "apply", str(theirs), "--dry-run")
    execute = ("--execute", "--reassignment-json-file", str(ours))
    assert tools("reassign-partitions", *at, *execute).status == 0
    wait_until(
        lambda: all(set(one) == {1, 2} for one in replicas_of(dev, topic)), "it does not move"
    )
    others.kcat_has_only_its_modes()
    claim(pyrklog=YES, kafka=YES, kcat=NO)


def test_plan_with_bytes_and_time(
    claim: Claims,
    dev: Dev,
    at: tuple[str, str],
    topic: str,
    make: Make,
    tools: KafkaTools,
    tmp_path: Path,
) -> None:
    make(3, 2)
    told = dev.full("cluster", "reassign", "plan", "-t", topic, "--brokers", "1,2").stderr
    wanted = r"moves \d of 3 partitions · copies \d+ \w*B · about .* at 50 MB/s"
    assert re.search(wanted, told), told
    move = tmp_path / "topics.json"
    move.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    words = ("--generate", "--broker-list", "1,2", "--topics-to-move-json-file", str(move))
    theirs = tools("reassign-partitions", *at, *words).text
    assert "Proposed partition reassignment" in theirs
    assert not re.search(r"\d [kMG]?B\b|\d (s|min)\b", theirs)
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_progress_in_percent_cancel(
    claim: Claims,
    dev: Dev,
    at: tuple[str, str],
    topic: str,
    make: Make,
    tools: KafkaTools,
    tmp_path: Path,
    others: OtherTools,
) -> None:
    make(1, 1, MANY_RECORDS)
    before = replicas_of(dev, topic)
    [[old]] = before
    new = min(ALL - {old})
    file = plan_file(tmp_path, topic, [[new]])
    dev("cluster", "reassign", "apply", file, "--throttle", THROTTLE)
    [moving] = [one for one in dev.items("cluster", "reassign", "status") if one["topic"] == topic]
    assert 0 <= moving["percent"] < 100
    assert moving["bytes_left"] > 0
    words = ("--reassignment-json-file", file)
    told = tools("reassign-partitions", *at, "--verify", *words, "--preserve-throttles").text
    assert "still in progress" in told
    assert "%" not in told
    assert tools("reassign-partitions", *at, "--cancel", *words).status == 0
    wait_until(lambda: replicas_of(dev, topic) == before, "it is not cancelled")
    dev("cluster", "reassign", "apply", file, "--throttle", THROTTLE)
    dev("cluster", "reassign", "cancel", file)
    wait_until(lambda: replicas_of(dev, topic) == before, "it is not cancelled")
    others.kcat_has_only_its_modes()
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)


def first_offset(dev: Dev, topic: str, number: int) -> int | None:
    """Where the first file with records of broker 3's replica begins. A broker writes a while after
    it has acknowledged."""
    files = Path(dev.nodes()["3"]["directory"]).rglob(f"{topic}-{number}/*.log")
    return min((int(path.stem) for path in files if path.stat().st_size), default=None)


def test_expand_without_bulk_copy(
    claim: Claims,
    dev: Dev,
    at: tuple[str, str],
    topic: str,
    make: Make,
    tools: KafkaTools,
    tmp_path: Path,
    others: OtherTools,
) -> None:
    """More of it is in tests/cluster/test_cluster_expand.py."""
    make(3, 1)
    without = [[1], [2], [1]]
    dev("cluster", "reassign", "apply", plan_file(tmp_path, topic, without), "-w", "-q")
    wait_until(lambda: replicas_of(dev, topic) == without, "broker 3 has something")
    rate = "pyrklog.expansion.rate"
    dev("config", "alter", "broker", "3", "--set", f"{rate}=0")
    try:
        dev("cluster", "expand", "--broker", "3", "-t", topic)

        def started() -> list[dict[str, Any]]:
            found = dev.items("cluster", "expand", "--status", "-t", topic)
            return [one for one in found if one["mode"] == "tail"]

        [new] = wait_until(started, "no replica starts at the end")
        number, start = new["partition"], len(range(new["partition"], RECORDS, 3))
        assert (new["broker"], new["start"], new["records_left"]) == (3, start, start)
        producer = Producer({"bootstrap.servers": dev.bootstrap, "acks": "all"})
        for _ in range(RECORDS):
            producer.produce(topic, bytes(1_000), partition=number)
        assert producer.flush(60) == 0
        first = wait_until(lambda: first_offset(dev, topic, number), "it gets no new record")
        assert first == start, "an old record was copied"
        # What retention does in the end.
        dev("topic", "trim", f"{topic}:{number}", "--before", str(start), "-y")
        dev("cluster", "expand", "--status", "-t", topic, "-w", "-q")
        wait_until(lambda: replicas_of(dev, topic)[number] == [3], "it does not take over")
    finally:
        dev("config", "alter", "broker", "3", "--unset", rate)
    # A move by Kafka's tool copies everything.
    words = ("--execute", "--reassignment-json-file", plan_file(tmp_path, topic, [[3]] * 3))
    assert tools("reassign-partitions", *at, *words).status == 0
    wait_until(lambda: replicas_of(dev, topic) == [[3]] * 3, "it does not move")
    others_of = {0, 1, 2} - {number}
    wait_until(
        lambda: {first_offset(dev, topic, other) for other in others_of} == {0},
        "not everything is copied",
    )
    others.lack("expand", "tail mode")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_preferred_election(
    claim: Claims,
    dev: Dev,
    at: tuple[str, str],
    topic: str,
    make: Make,
    tools: KafkaTools,
    others: OtherTools,
) -> None:
    make(2, 3)

    def leads_none() -> None:
        dev("dev", "restart", "1")
        wait_for_isr(dev, topic, ALL)
        assert 1 not in {one["leader"] for one in partitions_of(dev, topic).values()}

    def are_preferred() -> bool:
        found = partitions_of(dev, topic).values()
        return all(one["leader"] == one["replicas"][0] for one in found)

    plan = [one["replicas"][0] for one in partitions_of(dev, topic).values()]
    assert len(plan) == 2
    leads_none()
    dev("cluster", "elect-leaders", "--preferred")
    wait_until(are_preferred, "not preferred")
    leads_none()
    words = ("--election-type", "preferred", "--all-topic-partitions")
    assert tools("leader-election", *at, *words).status == 0
    wait_until(are_preferred, "not preferred")
    others.kcat_has_only_its_modes()
    claim(pyrklog=YES, kafka=YES, kcat=NO)


def test_the_doctor_elects_leaders_and_restarts_brokers(dev: Dev, topic: str, make: Make) -> None:
    """Not a row: what `doctor --fix` does about its findings."""
    make(3, 3)  # so that broker 1 leads one

    def fixes(*more: str) -> dict[str, list[str | None]]:
        """States by command; None: no command does it."""
        told = json.loads(dev.full("doctor", "--fix", *more, "-o", "json").stdout)
        states: dict[str, list[str | None]] = {}
        for item in told["items"]:
            for one in item["fixes"]:
                states.setdefault(one["command"], []).append(one["state"])
        return states

    elect, restart = "pyrklog cluster elect-leaders --preferred", "pyrklog dev restart 3"
    dev("dev", "restart", "1")
    wait_for_isr(dev, topic, ALL)
    leaders = {one["leader"] for one in partitions_of(dev, topic).values()}
    assert 1 not in leaders
    assert fixes("--dry-run")[elect] == ["would"]
    assert {one["leader"] for one in partitions_of(dev, topic).values()} == leaders
    assert fixes("-y")[elect] == ["fixed"]
    assert elect not in fixes("--dry-run")
    dev("dev", "kill", "3")
    wait_for_isr(dev, topic, {1, 2})
    assert dev.full("doctor", "--fix").exit_code == 2  # nobody can be asked
    assert fixes("-y")[restart] == ["fixed"]
    wait_for_isr(dev, topic, ALL)
    dev("cluster", "elect-leaders", "--preferred")


# --- health --------------------------------------------------------------------------------------


def test_health_wait_and_watch(
    claim: Claims, dev: Dev, topic: str, make: Make, others: OtherTools
) -> None:
    make(3, 3)
    dev("dev", "kill", "3")
    wait_for_isr(dev, topic, {1, 2})
    assert "NOT SAFE" in dev("cluster", "health", code=8)
    dev("dev", "restart", "3")
    assert "HEALTHY" in dev("cluster", "health", "-e", "--for", "60s")
    others.lack("health")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_restart_safe(claim: Claims, dev: Dev, topic: str, make: Make, others: OtherTools) -> None:
    make(3, 3)
    wait_until(lambda: dev.full("cluster", "health").exit_code == 0, "it is not healthy")
    assert dev("cluster", "restart-safe", "1").startswith("yes")
    dev("dev", "kill", "3")
    wait_for_isr(dev, topic, {1, 2})
    assert dev("cluster", "restart-safe", "1", code=8).startswith("no")
    dev("dev", "restart", "3")
    dev("cluster", "health", "-e", "--for", "60s")
    others.lack("restart", "safe to")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


# --- logs ----------------------------------------------------------------------------------------


def test_replica_verification(
    claim: Claims, dev: Dev, topic: str, make: Make, others: OtherTools
) -> None:
    make(1, 3)
    wait_for_isr(dev, topic, ALL)
    [found] = dev.items("log", "verify", topic)
    assert found["status"] == "equal"
    assert "max lag is 0" in kafka_tools.first_verdict(dev.bootstrap, topic, RECORDS)
    others.kcat_lacks("replica")
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)


def test_state_log_merge(
    claim: Claims,
    dev: Dev,
    topic: str,
    make: Make,
    tools: KafkaTools,
    tmp_path: Path,
    others: OtherTools,
) -> None:
    make(1, 3)
    words = ("log", "merge-state", "--topic", topic, "--partition", "0")

    def sources() -> set[str]:
        return {one["source"] for one in dev.items(*words) if one["topic"] == topic}

    # A controller tells of all partitions. Another broker takes over, and elects a leader.
    [first] = sources()
    dev("dev", "restart", first.removeprefix("broker "))
    wait_until(lambda: len(sources()) > 1, lambda: f"only {sources()}")
    told = dev.items(*words)
    assert [one["at"] for one in told] == sorted(one["at"] for one in told)
    # Kafka's reads files, and lines that name the partition as brokers of long ago did.
    files = []
    for number in (1, 2):
        file = tmp_path / f"state-change{number}.log"
        times = (number, number + 2)
        lines = [f"[2024-01-31 12:00:0{second},000] TRACE of {number}: [t,0]\n" for second in times]
        file.write_text("".join(lines))
        files.append(str(file))
    merged = tools("state-change-log-merger", "--logs", ",".join(files), "--topic", "t")
    found = [line for line in merged.lines if "TRACE" in line]
    assert [line.split()[4] for line in found] == ["1:", "2:", "1:", "2:"]
    others.kcat_lacks("state change")
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)
