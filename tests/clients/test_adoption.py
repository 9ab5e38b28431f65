"""A directory without metadata: its topics return from the folders, and keep everything."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from pyrklog.testing import TestBroker
from pyrklog.testing.broker import BrokerExited
from tests.support.clients import Confluent, Record

PATIENCE_S = 30


def create(broker: TestBroker, topic: str, partitions: int = 2) -> None:
    new = NewTopic(topic, partitions, 1, config={"retention.ms": "60000"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([new])[topic].result(PATIENCE_S)


def produce(broker: TestBroker, topic: str) -> list[int]:
    return Confluent().produce(broker.bootstrap, topic, [Record(b"k", b"v")])


def options(broker: TestBroker, topic: str) -> dict[str, Any]:
    resource = ConfigResource("topic", topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return {name: entry.value for name, entry in found.items()}


def events(broker: TestBroker, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in broker.log if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def forget(broker: TestBroker) -> None:
    assert broker.stop() == 0
    shutil.rmtree(broker.data / "meta")
    broker.log.clear()


def cli(broker: TestBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = (sys.executable, "-m", "pyrklog", "-b", broker.bootstrap, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("with_id", [True, False])
def test_topics_come_back_and_keep_everything_until_confirmed(
    fresh_broker: TestBroker, topic: str, with_id: bool
) -> None:
    broker = fresh_broker
    create(broker, topic)
    assert produce(broker, topic) == [0]
    forget(broker)
    ids = [broker.data / "logs" / f"{topic}-{index}" / "partition.metadata" for index in (0, 1)]
    before = ids[0].read_text()
    for path in ids if not with_id else []:
        path.unlink()

    broker.start()
    [told] = events(broker, "adopted_topics_unconfirmed")
    assert told["level"] == "warning"
    assert told["topics"] == [topic]
    assert produce(broker, topic) == [1]
    written = {path.read_text() for path in ids}
    assert len(written) == 1
    assert (written == {before}) == with_id
    shown = options(broker, topic)
    assert (shown["retention.ms"], shown["cleanup.policy"]) == ("-1", "delete")
    assert shown["pyrklog.adopted.unconfirmed"] == "cleanup.policy,retention.bytes,retention.ms"
    assert told["options"] == ["cleanup.policy", "retention.bytes", "retention.ms"]

    done = cli(broker, "topic", "alter", topic, "--confirm-adopted", "--set", "retention.ms=5000")
    assert done.returncode == 0, done
    shown = options(broker, topic)
    assert shown["retention.ms"] == "5000"
    assert "pyrklog.adopted.unconfirmed" not in shown
    again = cli(broker, "topic", "alter", topic, "--confirm-adopted")
    assert again.returncode == 2
    assert "waits for no confirmation" in again.stderr
    broker.log.clear()
    broker.restart()
    assert not events(broker, "adopted_topics_unconfirmed")
    assert not events(broker, "directory_adopted")


def test_producer_ids_go_on(fresh_broker: TestBroker, topic: str) -> None:
    broker = fresh_broker
    create(broker, topic)
    produce(broker, topic)
    forget(broker)
    broker.start()
    [told] = events(broker, "producer_ids_continued")
    assert told["first"] == 1  # 0 was given away


def test_a_gap_is_told_and_closed_by_the_next_start(fresh_broker: TestBroker, topic: str) -> None:
    broker = fresh_broker
    create(broker, topic, 3)
    produce(broker, topic)
    forget(broker)
    gone = broker.data / "logs" / f"{topic}-1"
    shutil.move(gone, broker.data / "elsewhere")

    broker.start()
    [told] = events(broker, "topic_not_adopted")
    assert told["topic"] == topic
    assert "no folder for partition 1" in told["reason"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert topic not in admin.list_topics(timeout=PATIENCE_S).topics
    assert broker.stop() == 0
    broker.log.clear()
    broker.start()  # nothing has changed: not scanned again, but logged
    assert not events(broker, "topic_not_adopted")
    assert events(broker, "unknown_partition_folders")
    assert broker.stop() == 0
    shutil.move(broker.data / "elsewhere", gone)
    broker.start()
    assert produce(broker, topic) == [1]


def test_a_format_from_the_future_is_refused_and_nothing_written(
    new_broker: Callable[..., TestBroker], tmp_path: Path
) -> None:
    data = tmp_path / "theirs"
    data.mkdir()
    (data / "meta.properties").write_text("version=2\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(BrokerExited, match=r"(?s)exit code 78.*version 2, known are 0 and 1"):
        new_broker(data).start()
    assert [path.name for path in data.iterdir()] == ["meta.properties"]


def test_another_broker_id_is_refused_and_not_stored(
    new_broker: Callable[..., TestBroker], tmp_path: Path
) -> None:
    data = tmp_path / "theirs"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\ncluster.id=abc\nbroker.id=7\n")
    with pytest.raises(BrokerExited, match=r"(?s)exit code 78.*broker 7.*broker 3"):
        new_broker(data, options={"broker.id": 3}).start()
    broker = new_broker(data).start()
    seen = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S)
    assert (list(seen.brokers), seen.cluster_id) == ([7], "abc")


def test_a_directory_of_another_cluster_is_refused_by_name(fresh_broker: TestBroker) -> None:
    broker = fresh_broker
    seen = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S)
    assert broker.stop() == 0
    identity = broker.data / "logs" / "meta.properties"
    identity.write_text(identity.read_text().replace(str(seen.cluster_id), "SomebodyElse"))
    with pytest.raises(BrokerExited, match="exit code 78") as refused:
        broker.start()
    assert "SomebodyElse" in str(refused.value)
    assert str(seen.cluster_id) in str(refused.value)


def test_export_is_refused_until_a_killed_brokers_arena_is_drained(
    new_broker: Callable[..., TestBroker], tmp_path: Path, topic: str
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    broker = new_broker(options={"pyrklog.cache.dir": str(cache)}).start()
    create(broker, topic)
    assert produce(broker, topic) == [0]
    broker.kill()
    refused = cli(broker, "log", "export-kraft", "--data", str(broker.data))
    assert refused.returncode != 0
    assert "block cache alone" in refused.stderr
    assert "pyrklog arena drain" in refused.stderr
    drained = cli(broker, "arena", "drain", str(broker.data / "logs"))
    assert drained.returncode == 0, drained
    done = cli(broker, "log", "export-kraft", "--data", str(broker.data))
    assert done.returncode == 0, done


def test_an_export_can_be_taken_back_but_not_repeated(fresh_broker: TestBroker, topic: str) -> None:
    """Kafka was not started in between: we read what it would have read."""
    broker = fresh_broker
    create(broker, topic)
    assert produce(broker, topic) == [0]
    running = cli(broker, "log", "export-kraft", "--data", str(broker.data))
    assert running.returncode != 0
    assert "in use by a running broker" in running.stderr
    assert broker.stop() == 0
    done = cli(broker, "log", "export-kraft", "--data", str(broker.data))
    assert done.returncode == 0, done
    twice = cli(broker, "log", "export-kraft", "--data", str(broker.data))
    assert twice.returncode != 0
    assert "There is no metadata" in twice.stderr
    broker.start()
    shown = options(broker, topic)
    assert shown["retention.ms"] == "60000"
    assert "pyrklog.adopted.unconfirmed" not in shown
    assert produce(broker, topic) == [1]
