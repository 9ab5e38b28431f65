"""``pyrklog log verify`` and ``log merge-state`` against real brokers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import create, in_sync
from tests.support.verifying import assert_replicas_equal, run, verify
from tests.support.waiting import wait_until
from tests.support.wire import API_VERSIONS, Connection, Reader, batch_headers, crc32c
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.jvm

BATCHES = 30
RECORDS_PER_BATCH = 20
RECORDS = BATCHES * RECORDS_PER_BATCH
STRICT = {"min.insync.replicas": "2"}
STILL: dict[str, Any] = {"auto.leader.rebalance.enable": False}
BATCH_CRC, BATCH_CHECKED = 17, 21


@pytest.fixture(scope="module")
def shared(
    zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerCluster]:
    folder = tmp_path_factory.mktemp("verified")
    cluster = BrokerCluster(f"{zookeeper.address}/log-verify", folder, **STILL)
    try:
        yield cluster.start()
    finally:
        cluster.close()


def fill(cluster: BrokerCluster, topic: str, partitions: int = 1) -> None:
    create(cluster, topic, partitions, 3, options=STRICT)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(BATCHES * RECORDS_PER_BATCH):
        for partition in range(partitions):
            producer.produce(topic, b"%d" % number, partition=partition)
        if number % RECORDS_PER_BATCH == RECORDS_PER_BATCH - 1:
            assert producer.flush(60) == 0
    assert_replicas_equal(cluster.bootstrap, topic, partitions * RECORDS)


def segment(cluster: BrokerCluster, number: int, topic: str) -> Path:
    (found,) = cluster.brokers[number].data.glob(f"**/{topic}-0/*.log")
    return found


def spoil(path: Path, offset: int, *, valid: bool) -> None:
    """Changes the last byte of the batch that holds an offset; with ``valid`` its checksum, too."""
    data = bytearray(path.read_bytes())
    position = 0
    for header in batch_headers(bytes(data)):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if header.base_offset <= offset < header.base_offset + header.record_count:
            data[position + size - 2] ^= 1
            crc = crc32c(bytes(data[position + BATCH_CHECKED : position + size]))
            if valid:
                data[position + BATCH_CRC : position + BATCH_CHECKED] = crc.to_bytes(4, "big")
            path.write_bytes(data)
            return
        position += size
    raise AssertionError(f"{path} has no offset {offset}")


def spoil_replica(cluster: BrokerCluster, number: int, topic: str, offset: int, valid: bool) -> int:
    """Does so while the broker is down; returns the batch's first offset."""
    assert cluster.brokers[number].stop() == 0
    path = segment(cluster, number, topic)
    headers = batch_headers(path.read_bytes())
    spoil(path, offset, valid=valid)
    cluster.brokers[number].start()
    admin = create(cluster, f"{topic}-back", 1, 3)
    wait_until(lambda: number in in_sync(admin, topic)[0], "it does not come back")
    return max(one.base_offset for one in headers if one.base_offset <= offset)


def test_replicas_that_are_equal(shared: BrokerCluster, topic: str) -> None:
    fill(shared, topic, 3)
    items = verify(shared.bootstrap, topic)
    assert [(i["partition"], i["start_offset"], i["end_offset"]) for i in items] == [
        (index, 0, RECORDS) for index in range(3)
    ]
    out, _ = run(shared.bootstrap, "log", "verify", f"{topic}:1")
    assert out.split()[:4] == ["TOPIC", "PARTITION", "REPLICAS", "START"]
    assert "equal" in out
    (item,) = verify(shared.bootstrap, f"{topic}:1", "--since", "100")
    assert (item["partition"], item["start_offset"], item["status"]) == (1, 100, "equal")
    later = verify(shared.bootstrap, topic, "--since", "@-1ms")
    assert {item["start_offset"] for item in later} == {RECORDS}


@pytest.mark.parametrize("valid", [True, False], ids=["valid", "decayed"])
def test_a_byte_that_was_changed_on_one_broker_is_found(
    shared: BrokerCluster, topic: str, valid: bool
) -> None:
    """With a matching checksum, and without."""
    fill(shared, topic)
    base = spoil_replica(shared, 2, topic, RECORDS // 2, valid)
    assert base > 0
    (item,) = verify(shared.bootstrap, topic, code=8)
    assert (item["status"], item["first_difference"], item["differs"]) == ("differs", base, [2])
    assert item["damaged"] == ([] if valid else [2])
    assert len(item["batches"]) == 3
    (behind,) = verify(shared.bootstrap, topic, "--since", str(RECORDS // 2 + 100))
    assert behind["status"] == "equal"


def test_a_broker_that_is_gone_is_told(shared: BrokerCluster, topic: str) -> None:
    fill(shared, topic)
    shared.brokers[3].kill()
    try:
        wait_until(lambda: shared.is_gone(3), "its session does not end")
        living = ",".join(shared.brokers[number].bootstrap for number in (1, 2))
        out, told = run(living, "log", "verify", topic, "-o", "jsonl", code=3)
        assert json.loads(out)["status"] == "unknown"
        assert "broker 3" in told
    finally:
        shared.brokers[3].start()
    assert_replicas_equal(shared.bootstrap, topic, RECORDS)


def test_mistakes_are_told(shared: BrokerCluster, topic: str) -> None:
    create(shared, topic, 1, 3)
    _, told = run(shared.bootstrap, "log", "verify", f"{topic}-none", code=4)
    assert "does not exist" in told
    run(shared.bootstrap, "log", "verify", f"{topic}:7", code=4)
    run(shared.bootstrap, "log", "verify", topic, "--since", "yesterday", code=2)
    run(shared.bootstrap, "log", "merge-state", "--partition", "1", code=2)
    run(shared.bootstrap, "log", "merge-state", "--until", "soon", code=2)


def test_verification_api_is_not_advertised_to_clients(shared: BrokerCluster) -> None:
    with Connection(shared.brokers[1].bootstrap) as connection:
        reader = Reader(connection.request(API_VERSIONS, 0, b""))
    assert reader.number("h") == 0
    keys = []
    for _ in range(reader.number("i")):
        keys.append(reader.number("h"))
        reader.take(4)
    assert 0 in keys
    assert max(keys) < 100


def test_the_logs_of_all_controllers_become_one(shared: BrokerCluster, topic: str) -> None:
    began_ms = time.time_ns() // 1_000_000
    create(shared, topic, 1, 3, options=STRICT)
    first = shared.controller()

    def merged(*arguments: str) -> list[dict[str, object]]:
        words = ["--since", f"@{began_ms}", "--topic", topic, "-o", "jsonl"]
        out, _ = run(shared.bootstrap, "log", "merge-state", *arguments, *words)
        return [json.loads(line) for line in out.splitlines()]

    def tells(number: int) -> bool:
        try:
            return f"broker {number}" in {row["source"] for row in merged()}
        except AssertionError:
            return False  # a log or a line is not there yet

    # A thread writes the lines; those that it has not written yet end with the process.
    wait_until(lambda: tells(first), "the first controller tells nothing")
    shared.brokers[first].kill()
    others = [number for number in shared.brokers if number != first]
    wait_until(lambda: shared.controller() in others, "nobody takes over")
    second = shared.controller()
    shared.brokers[first].start()
    admin = create(shared, f"{topic}-2", 1, 3)
    wait_until(lambda: len(in_sync(admin, topic)[0]) == 3, "not all are in sync")
    wait_until(lambda: tells(first) and tells(second), "a controller tells nothing")
    folders = [str(broker.data) for broker in shared.brokers.values()]
    rows: list[dict[str, object]] = []

    def are_as_in_the_files() -> bool:
        """Lines may still come, between two looks and within one."""
        try:
            rows[:], found = merged(), merged(*folders)
        except AssertionError:
            return False
        return [{**row, "source": ""} for row in found] == [{**row, "source": ""} for row in rows]

    wait_until(are_as_in_the_files, "the files tell something else")
    assert [row["at"] for row in rows] == sorted(str(row["at"]) for row in rows)
    assert any(
        "controller epoch" in str(row["marks"]) and "->" in str(row["marks"]) for row in rows
    )
    assert {row["topic"] for row in rows if row["event"] == "partition_state"} == {topic}
