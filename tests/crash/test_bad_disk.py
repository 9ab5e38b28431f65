"""Damaged, foreign or shared data directories: a clear answer, and no acknowledged
record is lost."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import kafka
import pytest
from kafka.errors import CorruptRecordError

from pyrklog.testing import BrokerExited, TestBroker
from tests.support.faults.driver import FaultDriver
from tests.support.faults.machine import wait_until_written
from tests.support.faults.site import Lone
from tests.support.wire import (
    Connection,
    batch_headers,
    create_topic,
    fetch,
    produce,
    record_batch,
    wait_until_led,
)

EXIT_IO, EXIT_TEMPORARY, EXIT_CONFIG = 74, 75, 78
BATCHES = 400
OPTIONS = {"log.segment.bytes": 50_000, "log.index.interval.bytes": 512}

Make = Callable[..., TestBroker]


def fill(broker: TestBroker, topic: str, first: int = 0) -> None:
    """Batch N has three records, the first with value N, and a producer's sequences."""
    with Connection(broker.bootstrap) as connection:
        if first == 0:
            assert create_topic(connection, topic) == 0
        wait_until_led(connection, topic)
        for number in range(first, first + BATCHES):
            values = [b"%d" % number, bytes(number % 700), b""]
            batch = record_batch(values, producer=(4_242, 0, 3 * number))
            assert produce(connection, topic, batch).base_offset == 3 * number


def check(broker: TestBroker, topic: str, batches: int) -> None:
    """All batches are there, whole and in order; a repeated one is recognised."""
    with Connection(broker.bootstrap) as connection:
        wait_until_led(connection, topic)
        expected = 0
        while expected < 3 * batches:
            answer = fetch(connection, topic, expected)
            assert answer.error == 0
            assert answer.high_watermark == 3 * batches
            found = batch_headers(answer.records)
            assert found, f"nothing readable at {expected}"
            for header in found:
                assert header.base_offset == expected
                assert header.record_count == 3
                expected += 3
        again = 3 * batches - 3
        values = [b"%d" % (batches - 1), bytes((batches - 1) % 700), b""]
        batch = record_batch(values, producer=(4_242, 0, again))
        answer_again = produce(connection, topic, batch)
        assert (answer_again.error, answer_again.base_offset) == (0, again)


def folder_of(broker: TestBroker, topic: str) -> Path:
    return broker.data / "logs" / f"{topic}-0"


def one_sentence(broker: TestBroker, caught: pytest.ExceptionInfo[BrokerExited]) -> str:
    """A refused start's message: no traceback, and short."""
    text = str(caught.value)
    assert "Traceback" not in text
    assert len(text.splitlines()) < 12, text
    return text


def test_a_second_broker_is_refused(new_broker: Make, topic: str) -> None:
    first = new_broker(options=OPTIONS).start()
    fill(first, topic)
    second = new_broker(data=first.data)
    with pytest.raises(BrokerExited) as caught:
        second.start()
    assert second.wait() == EXIT_TEMPORARY
    assert str(first.data) in one_sentence(second, caught)
    check(first, topic, BATCHES)
    first.kill()
    second.start()  # the dead broker's lock is free again
    check(second, topic, BATCHES)


def test_a_taken_port_is_told(new_broker: Make) -> None:
    first = new_broker().start()
    second = new_broker(port=first.port)
    with pytest.raises(BrokerExited) as caught:
        second.start()
    assert second.wait() == EXIT_TEMPORARY
    assert str(first.port) in one_sentence(second, caught)


@pytest.mark.parametrize(
    ("name", "value", "clue"),
    [
        ("cluster.id", "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA"),
        ("broker.id", "77", "77"),
        ("version", "9", "version"),
    ],
)
def test_a_foreign_directory_is_refused_and_left_alone(
    new_broker: Make, topic: str, name: str, value: str, clue: str
) -> None:
    broker = new_broker(options=OPTIONS).start()
    fill(broker, topic)
    assert broker.stop() == 0
    path = broker.data / "logs" / "meta.properties"
    true = path.read_text()
    lines = [line for line in true.splitlines() if not line.startswith(f"{name}=")]
    assert len(lines) < len(true.splitlines()), true
    path.write_text("\n".join([*lines, f"{name}={value}", ""]))
    before = sorted(file.name for file in folder_of(broker, topic).iterdir())
    with pytest.raises(BrokerExited) as caught:
        broker.start()
    assert broker.wait() == EXIT_CONFIG
    message = one_sentence(broker, caught)
    assert clue in message
    assert "logs" in message, "which directory?"
    assert sorted(file.name for file in folder_of(broker, topic).iterdir()) == before
    path.write_text(true)
    broker.start()
    check(broker, topic, BATCHES)


def damage(path: Path, how: str, chance: random.Random) -> None:
    data = path.read_bytes()
    match how:
        case "deleted":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(data[: len(data) * 2 // 3 + 1])
        case "zeros":
            path.write_bytes(bytes(len(data)))
        case "noise":
            path.write_bytes(chance.randbytes(max(len(data), 64)))
        case "flipped":
            at = len(data) // 2
            flipped = bytes([byte ^ 0x41 for byte in data[at : at + 1]])
            path.write_bytes(data[:at] + flipped + data[at + 1 :])


HARMS = ("deleted", "empty", "cut", "zeros", "noise", "flipped")


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("how", HARMS)
def test_damaged_index_files_are_rebuilt(
    new_broker: Make, topic: str, how: str, clean: bool
) -> None:
    """Indexes, snapshots and checkpoints derive from the segments, so damage to them is
    repaired."""
    broker = new_broker(options=OPTIONS).start()
    fill(broker, topic)
    if clean:
        assert broker.stop() == 0
    else:
        # Some records may be only in the block cache, but some must be in the files.
        wait_until_written(folder_of(broker, topic), 3 * BATCHES // 2)
        broker.kill()
    folder = folder_of(broker, topic)
    chance = random.Random(how)
    harmed = [path for path in folder.iterdir() if path.suffix in (".index", ".timeindex")]
    harmed += list(folder.glob("*.snapshot")) + list(folder.glob("leader-epoch-checkpoint"))
    harmed += list((broker.data / "logs").glob("*-checkpoint"))
    assert len(harmed) > 8
    for path in harmed:
        damage(path, how, chance)
    broker.start()
    check(broker, topic, BATCHES)
    fill(broker, topic, BATCHES)
    assert broker.stop() == 0
    broker.start()
    check(broker, topic, 2 * BATCHES)


def test_a_flipped_bit_in_old_data_is_found_by_its_reader(new_broker: Make, topic: str) -> None:
    """The broker sends closed segments as they are; readers check the batches' checksums."""
    broker = new_broker(options=OPTIONS).start()
    fill(broker, topic)
    assert broker.stop() == 0
    first = min(folder_of(broker, topic).glob("*.log"))
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    broker.start()
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, check_crcs=True)
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    read: list[int] = []

    def read_all() -> None:
        while len(read) < 3 * BATCHES:
            read.extend(r.offset for found in consumer.poll(1000).values() for r in found)

    with pytest.raises(CorruptRecordError):
        read_all()
    assert read == list(range(len(read)))
    assert read
    consumer.close()
    with Connection(broker.bootstrap) as connection:
        wait_until_led(connection, topic)
        assert batch_headers(fetch(connection, topic, 3 * BATCHES - 3).records)


@pytest.mark.parametrize("tail", ["noise", "half a batch", "zeros", "a batch with a wrong CRC"])
def test_a_torn_tail_is_cut(new_broker: Make, topic: str, tail: str) -> None:
    """Bytes after the last whole batch were never acknowledged: a machine's crash may
    leave them."""
    broker = new_broker(options=OPTIONS).start()
    fill(broker, topic)
    wait_until_written(folder_of(broker, topic), 3 * BATCHES)
    whole = record_batch([b"torn"], base_offset=3 * BATCHES)
    torn = {
        "noise": random.Random(1).randbytes(700),
        "half a batch": whole[:-3],
        "zeros": bytes(5_000),
        "a batch with a wrong CRC": record_batch([b"torn"], base_offset=3 * BATCHES, crc=5),
    }[tail]
    with FaultDriver(Lone(broker)).fault("reboot", 1):
        segment = max(folder_of(broker, topic).glob("*.log"))
        with segment.open("ab") as file:
            file.write(torn)
    check(broker, topic, BATCHES)
    fill(broker, topic, BATCHES)
    broker.restart()
    check(broker, topic, 2 * BATCHES)


def test_stray_files_disturb_nothing(new_broker: Make, topic: str) -> None:
    broker = new_broker(options=OPTIONS).start()
    fill(broker, topic)
    broker.kill()
    logs = broker.data / "logs"
    for name in ("lost+found", "not-a-partition-x", "orphan-0.0123456789abcdef-delete"):
        (logs / name).mkdir()
    (logs / "README").write_text("hello")
    (folder_of(broker, topic) / "notes.txt").write_text("hello")
    (folder_of(broker, topic) / "00000000000000000000.log.cleaned").write_bytes(b"x")
    broker.start()
    check(broker, topic, BATCHES)
    assert (logs / "README").exists()
    assert (folder_of(broker, topic) / "notes.txt").exists()


@pytest.mark.parametrize(
    ("setting", "clue"),
    [
        ("num.network.threads=none", "num.network.threads"),
        ("num.network.threads=0", "num.network.threads"),
        ("num.netwrk.threads=3", "num.network.threads"),
    ],
)
def test_bad_options_are_told_with_a_way_out(new_broker: Make, setting: str, clue: str) -> None:
    broker = new_broker(arguments=["--set", setting])
    with pytest.raises(BrokerExited) as caught:
        broker.start()
    assert broker.wait() == EXIT_CONFIG
    assert clue in one_sentence(broker, caught)


def test_log_lines_are_json(new_broker: Make) -> None:
    broker = new_broker().start()
    assert broker.stop() == 0
    events = [json.loads(line)["event"] for line in broker.log]
    assert "listening" in events
    assert len(events) == len(broker.log)
