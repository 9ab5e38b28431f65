"""``pyrklog log dump`` on our broker's files, and ``serve`` as a person sees it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.testing import TestBroker

SEGMENT = "00000000000000000000.log"
RECORDS = 200


def run(*arguments: str | Path, code: int = 0) -> tuple[str, str]:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, f"{done.stdout}{done.stderr}{done.exception}"
    return done.stdout, done.stderr


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("command", "fix"),
    [
        ("verify", "kafka-replica-verification.sh"),
        ("merge-state", "name files of pyrklog's brokers"),
    ],
)
def test_what_only_our_brokers_know_is_not_asked_of_others(
    apache_kafka: str, command: str, fix: str
) -> None:
    out, err = run("-b", apache_kafka, "log", command, code=1)
    assert out == ""
    assert err.startswith(
        f"error[PK39]: the brokers at {apache_kafka} are not pyrklog's, and cannot"
    )
    assert fix in err
    assert err.count("\n") == 2


def test_a_topic_without_a_line_is_told(tmp_path: Path, broker: TestBroker, topic: str) -> None:
    line = {"at": "2026-01-31T12:00:00Z", "event": "leader_changed", "topic": "t", "partition": 0}
    (tmp_path / "state-change.jsonl").write_text(json.dumps(line) + "\n")
    assert "leader_changed" in run("log", "merge-state", tmp_path, "--topic", "t")[0]
    out, err = run("log", "merge-state", tmp_path, "--topic", "nope", code=4)
    assert (out, err) == ("", "error[PK87]: no log has a line about a topic nope\n")
    _, err = run("-b", broker.bootstrap, "log", "merge-state", "--topic", f"{topic}-x", code=4)
    assert f"topic {topic}-x does not exist" in err


@pytest.fixture
def partition(new_broker: Callable[..., TestBroker]) -> Path:
    """A stopped broker's partition folder with 200 records in several batches."""
    broker = new_broker().start()
    run("-b", broker.bootstrap, "topic", "create", "t", "-p", "1", "-c", "index.interval.bytes=0")
    for start in range(0, RECORDS, 20):
        values = [f"value {number}" for number in range(start, start + 20)]
        run("-b", broker.bootstrap, "produce", "t", *values, "-k", "k", "-H", "h=1", "-z", "zstd")
    assert broker.stop() == 0
    return broker.data / "logs" / "t-0"


def test_a_partition_is_shown_whole(partition: Path) -> None:
    out, err = run("log", "dump", partition, "--records", "-o", "jsonl")
    assert err == ""
    rows = [json.loads(line) for line in out.splitlines()]
    records = [row for row in rows if row["kind"] == "record"]
    assert [row["offset"] for row in records] == list(range(RECORDS))
    assert [row["value"] for row in records] == [f"value {n}" for n in range(RECORDS)]
    assert {row["key"] for row in records} == {"k"}
    assert {json.dumps(row["headers"]) for row in records} == {'[["h", "1"]]'}
    batches = [row for row in rows if row["kind"] == "batch"]
    assert sum(row["count"] for row in batches) == RECORDS
    assert all(row["valid"] for row in batches)
    entries = [row for row in rows if row["kind"] == "index_entry"]
    positions = {row["position"]: row["last_offset"] for row in batches}
    assert entries
    assert all(positions[entry["position"]] == entry["offset"] for entry in entries)
    assert {row["file"] for row in rows} >= {SEGMENT, "partition.metadata"}


def test_records_of_internal_topics_show_what_they_say(
    new_broker: Callable[..., TestBroker],
) -> None:
    partitions = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
    broker = new_broker(options=dict.fromkeys(partitions, 1)).start()
    run("-b", broker.bootstrap, "topic", "create", "t", "-p", "1")
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "pay"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", "value", partition=0)
    producer.commit_transaction(30)
    run("-b", broker.bootstrap, "consume", "t", "-g", "billing", "-c", "1")
    assert broker.stop() == 0

    def said(topic: str) -> list[dict[str, Any]]:
        place = (f"{topic}:0", "--data", broker.data)
        out, _ = run("log", "dump", *place, "--records", "-o", "jsonl")
        rows = [json.loads(line) for line in out.splitlines()]
        assert all("decoded" in row for row in rows if row["kind"] == "record")
        return [row["decoded"] for row in rows if row["kind"] == "record"]

    offsets = said("__consumer_offsets")
    # The record, and the mark behind it that it is committed.
    [place] = [one for one in offsets if "topic" in one["key"]]
    assert place["key"] == {"group": "billing", "topic": "t", "partition": 0}
    assert place["value"]["offset"] in (1, 2)
    groups = [one["value"] for one in offsets if one["key"] == {"group": "billing"}]
    [member] = [member for one in groups for member in one["members"]][:1]
    assert (member["subscription"], member["assignment"]) == (["t"], {"t": [0]})
    transactions = said("__transaction_state")
    assert {one["key"]["transactional_id"] for one in transactions} == {"pay"}
    states = [one["value"]["state"] for one in transactions]
    assert (states[0], states[-1]) == ("Empty", "CompleteCommit")
    assert {"t": [0]} in [one["value"]["partitions"] for one in transactions]


def test_the_folder_above_has_checkpoints_and_properties(partition: Path) -> None:
    out, _ = run("log", "dump", partition.parent, "-o", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    properties = {row["key"]: row["value"] for row in rows if row["kind"] == "property"}
    assert len(properties["cluster.id"]) == 22
    entries = {
        row["file"]: (row["topic"], row["partition"], row["offset"])
        for row in rows
        if row["kind"] == "checkpoint_entry"
    }
    assert entries["replication-offset-checkpoint"] == ("t", 0, RECORDS)
    # The recovery point lies within the last segment: all of it, or all but its last record.
    *place, offset = entries["recovery-point-offset-checkpoint"]
    assert place == ["t", 0]
    assert RECORDS - 1 <= int(offset) <= RECORDS


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_a_flipped_bit_is_found_and_located(partition: Path, where: float) -> None:
    segment = partition / SEGMENT
    data = bytearray(segment.read_bytes())
    at = int(len(data) * where)
    data[at] ^= 0x10
    segment.write_bytes(data)
    _, err = run("log", "dump", segment, code=8)
    found = re.search(r"^damaged: .*\.log: byte (\d+), offset (\d+): ", err, re.MULTILINE)
    assert found is not None
    assert int(found[1]) <= at
    assert err.splitlines()[-1].startswith("error[PK89]: ")
    out, _ = run("log", "dump", segment, "-o", "json", code=8)
    items = json.loads(out)["items"]
    damages = [item["position"] for item in items if item["kind"] == "damage"]
    assert int(found[1]) in damages


def test_a_torn_tail_is_found(partition: Path) -> None:
    segment = partition / SEGMENT
    segment.write_bytes(segment.read_bytes()[:-3])
    out, err = run("log", "dump", segment, code=8)
    assert "damaged" in out
    assert err.startswith("damaged: ")


def test_an_index_that_points_astray_is_found(partition: Path) -> None:
    index = partition / "00000000000000000000.index"
    data = bytearray(index.read_bytes())
    data[7] ^= 1
    index.write_bytes(data)
    assert "byte 0" in run("log", "dump", index, code=8)[1]
    run("log", "dump", index, "--no-verify")


def test_port_0_is_told(new_broker: Callable[..., TestBroker]) -> None:
    broker = new_broker(port=0).start()
    assert broker.port > 0
    out, _ = run("-b", broker.bootstrap, "topic", "list")
    assert out.startswith("NAME")


def test_a_temporary_directory_goes_with_its_broker(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pyrklog", "serve", "--listen", "127.0.0.1:0", "--tmp"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as broker:
        try:
            assert broker.stdout is not None
            for line in broker.stdout:
                if '"listening"' in line:
                    break
            (folder,) = tmp_path.iterdir()
            assert (folder / "logs").is_dir()
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(20) == 0
        finally:
            broker.kill()
    assert list(tmp_path.iterdir()) == []


def test_a_partition_is_found_by_its_name(partition: Path) -> None:
    by_path, _ = run("log", "dump", partition, "-o", "jsonl")
    by_name, _ = run("log", "dump", "t:0", "--data", partition.parents[1], "-o", "jsonl")
    assert by_name == by_path
    folder = f"pyrklog.data.dir={partition.parents[1]}"
    by_option, _ = run("log", "dump", "t:0", "--set", folder, "-o", "jsonl")
    assert by_option == by_path
    _, err = run("log", "dump", "t:1", "--data", partition.parents[1], code=4)
    assert err.startswith(f"error[PK87]: there is no partition t:1 in {partition.parent}\n")
    _, err = run("log", "dump", "t:0", "--data", partition / "nope", code=4)
    assert err.startswith("error[PK47]: ")
    _, err = run("log", "dump", partition, "--data", partition.parents[1], code=2)
    assert err.startswith("error[PK42]: ")


def test_only_the_indexes_are_shown_and_each_entry_checked(partition: Path) -> None:
    out, _ = run("log", "dump", "t:0", "--data", partition.parents[1], "--index", "-o", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    kinds = {row["kind"] for row in rows}
    assert {"index_entry", "time_index_entry"} <= kinds
    assert "batch" not in kinds
    assert not any(row["file"].endswith(".log") for row in rows)
    index = partition / "00000000000000000000.timeindex"
    data = bytearray(index.read_bytes())
    data[7] ^= 1
    index.write_bytes(data)
    _, err = run("log", "dump", "t:0", "--data", partition.parents[1], "--index", code=8)
    assert ".timeindex: byte 0" in err


def test_a_running_brokers_partition_is_read_while_it_is_written(
    new_broker: Callable[..., TestBroker],
) -> None:
    """What is half written is no damage, and nothing that is written is lost."""
    broker = new_broker().start()
    at = ("-b", broker.bootstrap)
    run(*at, "topic", "create", "t", "-p", "1", "-c", "index.interval.bytes=0")
    lines = "\n".join(f"value {number}" for number in range(20_000))
    writer = subprocess.Popen(
        [sys.executable, "-m", "pyrklog", *at, "produce", "t", "--rate", "20000"],
        stdin=subprocess.PIPE,
        text=True,
    )
    feeder = threading.Thread(target=writer.communicate, args=(lines,))
    feeder.start()
    try:
        while feeder.is_alive():
            _, err = run("log", "dump", "t:0", "--data", broker.data, "-o", "jsonl")
            assert err == ""
    finally:
        feeder.join()
    assert writer.returncode == 0
    assert broker.stop() == 0
    out, _ = run("log", "dump", "t:0", "--data", broker.data, "-o", "jsonl")
    counts = [json.loads(line) for line in out.splitlines()]
    assert sum(row["count"] for row in counts if row["kind"] == "batch") == 20_000


def test_damage_in_a_running_brokers_partition_stays_damage(
    new_broker: Callable[..., TestBroker],
) -> None:
    broker = new_broker().start()
    run("-b", broker.bootstrap, "topic", "create", "t", "-p", "1")
    run("-b", broker.bootstrap, "produce", "t", *map(str, range(50)))
    assert broker.stop() == 0
    broker.start()
    # A file beside the log of a partition that nobody writes to.
    segment = broker.data / "logs" / "t-0" / "00000000000000000000.txnindex"
    segment.write_bytes(b"\x01" * 7)
    _, err = run("log", "dump", "t:0", "--data", broker.data, code=8)
    assert ".txnindex: byte 0" in err
