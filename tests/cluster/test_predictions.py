"""How long plans take, beside what was predicted: real brokers whose copies are held to a rate."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from pyrklog.balance.model import Partition, PartitionKey
from pyrklog.cli import topic_measures, write_rates
from pyrklog.cli.app import app
from pyrklog.cli.connection import Connection
from pyrklog.cli.options import Settings
from pyrklog.cli.throttles import FILL_RATE, FOLLOWERS, LEADERS, RATES
from pyrklog.protocol.list_offsets import EARLIEST, LATEST
from tests.support.balancing import PATIENT, place, replicas, run, write
from tests.support.cluster import BrokerCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(600)]

RATE = 2_000_000
RECORD_BYTES = 10_000
RECORDS = 4_000
"""Of each of two partitions: 20 seconds each at the rate."""
CLOSE = 0.2


@pytest.fixture
def cluster(
    new_cluster: Callable[..., BrokerCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BrokerCluster:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options: dict[str, Any] = {**PATIENT, "replica.fetch.max.bytes": 200_000}
    return new_cluster(**options).start()


def alter(cluster: BrokerCluster, kind: str, name: str, options: Mapping[str, object]) -> None:
    words = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    command = ["-b", cluster.bootstrap, "config", "alter", kind, name, *words]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stdout + done.stderr


def full(cluster: BrokerCluster, topic: str) -> None:
    """Two partitions that lie on the brokers 1 and 2."""
    place(cluster, topic, [[1, 2], [1, 2]])
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(2 * RECORDS):
        producer.produce(topic, b"x" * RECORD_BYTES, partition=number % 2)
        if number % 100 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def kept(file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"{file}.progress.json").read_text())
    return found


def test_after_ten_seconds_it_is_known_how_long_a_plan_takes(
    cluster: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    """No option of the command names the rate: it is that of the brokers."""
    full(cluster, topic)
    alter(cluster, "topic", topic, {LEADERS: "*", FOLLOWERS: "*"})
    for number in (1, 2, 3):
        alter(cluster, "broker", str(number), dict.fromkeys(RATES, RATE))
    file = write(tmp_path / "plan.json", topic, [[1, 3], [1, 3]])
    out, _ = run(cluster, "reassign", "apply", file, "-w")
    assert ", as measured" in out
    record = kept(file)
    predicted, real = record["predicted"], record["real"]
    assert predicted["rate_from"] == "assumed"
    assert predicted["seconds"] < real["seconds"] / 2, "the assumption was wrong"
    assert predicted["corrected"]["seconds"] == pytest.approx(real["seconds"], rel=CLOSE)
    # The next plan knows the rate. What was written in the minute before seems to go on, until it
    # is known that it does not.
    back = write(tmp_path / "back.json", topic, [[1, 2], [1, 2]])
    run(cluster, "reassign", "apply", back, "-w")
    record = kept(back)
    predicted, real = record["predicted"], record["real"]
    assert predicted["rate_from"] == "earlier"
    assert predicted["rate_bytes"] == pytest.approx(RATE, rel=CLOSE)
    assert predicted["corrected"]["seconds"] == pytest.approx(real["seconds"], rel=CLOSE)


def test_throttled_plan_and_back_fill_take_as_long_as_predicted(
    cluster: BrokerCluster, topic: str, tmp_path: Path
) -> None:
    full(cluster, topic)
    file = write(tmp_path / "copy.json", topic, [[1, 3], [1, 2]])
    run(cluster, "reassign", "apply", file, "-w", "--throttle", f"{RATE}")
    record = kept(file)
    assert record["predicted"]["seconds"] == pytest.approx(record["real"]["seconds"], rel=CLOSE)
    file = write(tmp_path / "fill.json", topic, [[1, 3], [1, 3]])
    alter(cluster, "broker", "3", {FILL_RATE: RATE})
    words = ["reassign", "plan", "-t", topic, "--exclude", "2", "--minimize", "bytes", "--from-end"]
    _, told = run(cluster, *words)
    assert "of older ones follow at 2 MB/s: whole in about" in told
    out, _ = run(cluster, "reassign", "apply", file, "-w", "--from-end")
    assert "of older ones follow at 2 MB/s: whole in about" in out
    assert "all of it back-fill" in out
    record = kept(file)
    assert record["predicted"]["fill"]["bytes"] > RECORDS * RECORD_BYTES
    assert record["predicted"]["seconds"] == pytest.approx(record["real"]["seconds"], rel=CLOSE)
    assert record["real_tail_seconds"] < record["real"]["seconds"] / 2
    assert replicas(cluster, topic) == [[1, 3], [1, 3]]


def test_what_producers_write_is_known_without_reading_logs(
    cluster: BrokerCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records become longer, and few partitions get any."""
    place(cluster, topic, [[1, 2], [2, 3], [3, 1]])
    asked: list[int] = []

    def offsets_at(connection: Any, states: Any, leaders: Any, at: int) -> Any:
        asked.append(at)
        return topic_measures.offsets_at(connection, states, leaders, at)

    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    pause = time.sleep

    def writes_meanwhile(seconds: float) -> None:
        for _ in range(50):
            producer.produce(topic, b"y" * RECORD_BYTES, partition=1)
        assert producer.flush(60) == 0
        pause(seconds)

    connection = Connection(Settings(cluster.bootstrap))
    addresses = {}
    for number, broker in cluster.brokers.items():
        host, port = broker.bootstrap.split(":")
        addresses[number] = (host, int(port))

    def rates() -> dict[PartitionKey, float] | None:
        partitions = {
            (topic, index): Partition((leader,), 20_000, leader=leader)
            for index, leader in enumerate((1, 2, 3))
        }
        firsts = write_rates.add_write_rates(connection, addresses, partitions, partitions.keys())
        found = {key: partitions[key].rate_in for key in firsts}
        return found if found.get((topic, 1), 0) > 5_000 else None

    with monkeypatch.context() as patching:
        patching.setattr(write_rates, "offsets_at", offsets_at)
        patching.setattr("pyrklog.cli.write_rates.time.sleep", writes_meanwhile)
        found = wait_until(rates, "its rate is not known")
    assert found[topic, 1] > 5 * max(found.get((topic, 0), 0), found.get((topic, 2), 0))
    assert set(asked) <= {EARLIEST, LATEST}, "these are in memory"
