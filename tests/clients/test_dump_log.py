"""Apache Kafka's DumpLogSegments reads the directories that our broker wrote."""

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.testing import TestBroker
from tests.support import jvm
from tests.support.clients import CLIENTS, CODECS, Record
from tests.support.faults.machine import wait_until_written

pytestmark = pytest.mark.jvm

_COMPLAINTS = ("Mismatches in", "Non-consecutive offsets", "Found timestamp mismatch", "ERROR")
_BATCH = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) "
    r".*producerId: (?P<producer>-?\d+) .*compresscodec: (?P<codec>\w+) crc: \d+ "
    r"isvalid: (?P<valid>\w+)"
)


def fill(bootstrap: str, topic: str, rounds: int) -> int:
    """Every client, every codec, idempotent and not, `rounds` times; the number of records."""
    count = 0
    for turn in range(rounds):
        for client in CLIENTS:
            for codec in CODECS:
                records = [
                    Record(b"k%d" % number, b"%d." % number * 90, (("h", b"v"),))
                    for number in range(60)
                ]
                client.produce(bootstrap, topic, records, codec=codec, idempotent=turn % 2 == 0)
                count += len(records)
    return count


def dump(folder: Path, *suffixes: str, options: tuple[str, ...] = ()) -> str:
    files = [str(path) for path in sorted(folder.iterdir()) if path.suffix in suffixes]
    assert files, f"no {suffixes} in {folder}"
    output = jvm.run("kafka.tools.DumpLogSegments", "--files", ",".join(files), *options)
    assert not [line for line in output.splitlines() if line.startswith(_COMPLAINTS)], output
    return output


def check_folder(folder: Path, count: int) -> None:
    """All batches are whole and in order; all index entries point at batches."""
    output = dump(folder, ".log", options=("--deep-iteration",))
    batches = [match.groupdict() for match in _BATCH.finditer(output)]
    assert {batch["valid"] for batch in batches} == {"true"}
    assert {batch["codec"] for batch in batches} == set(CODECS)
    assert any(batch["producer"] == "-1" for batch in batches)
    assert any(batch["producer"] != "-1" for batch in batches)
    expected = 0
    for batch in batches:
        assert int(batch["base"]) == expected
        expected = int(batch["last"]) + 1
        assert int(batch["count"]) == expected - int(batch["base"])
    assert expected == count
    assert len(re.findall(r"^\| offset: \d+ ", output, re.MULTILINE)) == count

    indexes = (".index", ".timeindex")
    dump(folder, *indexes, options=("--deep-iteration", "--verify-index-only"))
    dump(folder, *indexes, options=("--index-sanity-check",))
    entries = re.findall(r"^offset: (\d+) position: \d+", dump(folder, *indexes), re.MULTILINE)
    assert len(entries) > 10
    assert entries == sorted(entries, key=int)


def test_kafka_reads_what_we_wrote(new_broker: Any, topic: str) -> None:
    broker: TestBroker = new_broker(options={"log.index.interval.bytes": 1024}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    small = NewTopic(topic, 1, 1, config={"segment.bytes": "30000"})
    admin.create_topics([small])[topic].result(20)
    count = fill(broker.bootstrap, topic, 2)
    folder = broker.data / "logs" / f"{topic}-0"
    wait_until_written(folder, count)
    assert len(list(folder.glob("*.log"))) > 3, "one segment proves little"

    broker.kill()
    check_folder(folder, count)

    broker.start()
    count += fill(broker.bootstrap, topic, 1)
    # Two batches of one producer: its snapshot has something behind what Kafka reads.
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for _ in range(2):
        producer.produce(topic, b"value")
        assert producer.flush(20) == 0
    count += 2
    assert broker.stop() == 0
    check_folder(folder, count)
    snapshot = max(folder.glob("*.snapshot"))
    producers = dump(folder, ".snapshot")
    assert int(snapshot.stem) == count, "a clean stop leaves a snapshot at the end"
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence: 59 ", producers)
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence: 1 ", producers)
    assert b"pyrkseq1" in snapshot.read_bytes()
