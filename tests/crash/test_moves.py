"""Replicas move between log directories under load; the broker is killed at any moment of it.

Records acknowledged before are there afterwards, at the acknowledged offset, in order and once, in
one log of each partition. ``MOVE_KILLS`` sets the number of kills (default 10).
"""

import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from pyrklog.testing import TestBroker
from tests.support.groups import ask_committed
from tests.support.killing import LibraryWriter, Persistent, RawWriter, Style
from tests.support.ledger import Ledger, Place
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until
from tests.support.witnesses import Reader

KILLS = int(os.environ.get("MOVE_KILLS", "10"))
SEED = int(os.environ.get("MOVE_KILLS_SEED", str(random.randrange(1 << 30))))
LIFE_MAX_S = 0.8
TOPIC, PARTITIONS = "moving", 3
PLACES: Sequence[Place] = [(TOPIC, index) for index in range(PARTITIONS)]
OPTIONS = {"segment.bytes": "1000000", "index.interval.bytes": "512", "file.delete.delay.ms": "100"}
SMALL = Style(0, 2_000, 60, 0.01, {"batch.num.messages": 20})
BULKY = Style(1_000, 200_000, 4, 0.1, {"batch.size": 500_000})
TRANSACTIONS = 12
COORDINATED = ("__consumer_offsets", "__transaction_state")
LOGGED = re.compile(rf"{TOPIC}-\d+")


class Mover:
    """Asks for another directory of some partition, again and again."""

    def __init__(self, bootstrap: str, dirs: Sequence[Path], ledger: Ledger) -> None:
        self._raw = RawClient(bootstrap)
        self._dirs = dirs
        self._ledger = ledger
        self.told: Counter[ErrorCode] = Counter()

    def step(self) -> None:
        index = random.randrange(PARTITIONS)
        self.told[self.move(index, random.choice(self._dirs))] += 1
        # Some moves are redirected at once, others get time.
        time.sleep(random.choice((0.0, 0.02, 0.2)))

    def close(self) -> None:
        self._raw.close()

    def move(self, index: int, to: Path, topic: str = TOPIC) -> ErrorCode:
        wanted = AlterReplicaLogDir(str(to), [AlterReplicaLogDirTopic(topic, [index])])
        request = AlterReplicaLogDirsRequest([wanted])
        (result,) = self._raw.ask(ALTER_REPLICA_LOG_DIRS, 2, request).results
        return ErrorCode(result.partitions[0].error_code)

    def where(self, name: str = TOPIC) -> dict[int, list[tuple[str, bool]]]:
        """(directory, whether it is a copy) of each partition."""
        found: dict[int, list[tuple[str, bool]]] = {}
        for one in self._raw.ask(DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest()).results:
            for topic in (topic for topic in one.topics if topic.name == name):
                for partition in topic.partitions:
                    entry = (one.log_dir, partition.is_future_key)
                    found.setdefault(partition.partition_index, []).append(entry)
        return found


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("one", "two", "three")]


@pytest.fixture
def broker(new_broker: Callable[..., TestBroker], dirs: Sequence[Path]) -> TestBroker:
    random.seed(SEED)
    return new_broker(options={"log.dirs": ",".join(map(str, dirs))}).start()


def logs(dirs: Sequence[Path]) -> Counter[str]:
    """How many directories hold the log of each partition."""
    folders = (folder.name for one in dirs for folder in one.iterdir())
    return Counter(name for name in folders if LOGGED.fullmatch(name))


def test_moves_and_kills(broker: TestBroker, dirs: Sequence[Path]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=OPTIONS)])[TOPIC].result(30)
    ledger = Ledger(exact=(1, 2, 3))
    writers: list[LibraryWriter | RawWriter] = [
        LibraryWriter(broker.bootstrap, 1, PLACES, SMALL, ledger),
        LibraryWriter(broker.bootstrap, 2, PLACES[:2], BULKY, ledger),
        RawWriter(broker.bootstrap, 3, PLACES[0], ledger, acks=-1, repeats=True, pause_s=0.002),
    ]
    reader = Reader(broker.bootstrap, PLACES, ledger)
    mover = Mover(broker.bootstrap, dirs, ledger)
    writing = [Persistent(f"writer {i}", one.step, ledger) for i, one in enumerate(writers)]
    others = [Persistent("reader", reader.step, ledger), Persistent("mover", mover.step, ledger)]
    for _ in range(KILLS):
        # The kill comes at any moment of the moves.
        time.sleep(random.uniform(0.05, LIFE_MAX_S))
        broker.kill()
        assert ledger.errors == [], SEED
        broker.start()
        # A log that moves between the looks at two directories is seen in both.
        wait_until(lambda: set(logs(dirs).values()) <= {1}, lambda: f"{SEED}: {logs(dirs)}")
    # A slow machine moves little in a life; the last one lasts until there were enough moves.
    wait_until(lambda: mover.told[ErrorCode.NONE] > KILLS, lambda: f"few moves: {mover.told}")
    others[1].end()
    for one in writing:
        one.end()
    for writer in writers:
        writer.finish()
    wait_until(
        lambda: all(ledger.seen_up_to(place) >= end for place, end in ledger.ends().items()),
        "not all was read",
    )
    others[0].end()
    ledger.check_complete()
    assert ledger.errors == [], SEED
    assert set(mover.told) <= {ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE}, mover.told
    all_in_one(broker, mover, dirs)
    reader.close()
    mover.close()


def all_in_one(broker: TestBroker, mover: Mover, dirs: Sequence[Path]) -> None:
    """In the end everything is where it was asked for last, also after an orderly restart."""
    for index in range(PARTITIONS):
        assert mover.move(index, dirs[0]) == ErrorCode.NONE
    expected = {index: [(str(dirs[0]), False)] for index in range(PARTITIONS)}
    wait_until(lambda: mover.where() == expected, lambda: str(mover.where()))
    broker.restart()
    wait_until(partial(is_described, mover, expected), lambda: str(mover.where()))
    folders = {one.name: logs([one]) for one in dirs}
    names = Counter(f"{TOPIC}-{index}" for index in range(PARTITIONS))
    assert folders == {"one": names, "two": Counter(), "three": Counter()}
    assert not list(dirs[1].glob("*-future")) + list(dirs[2].glob("*-future"))


def is_described(mover: Mover, expected: object, name: str = TOPIC) -> bool:
    try:
        return mover.where(name) == expected
    except OSError:
        return False


def again(act: Callable[[], None]) -> None:
    """Does it until it succeeds: a log that gives way to its copy is not written for a moment."""
    while True:
        try:
            return act()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def test_transactions_while_their_coordinators_move(
    new_broker: Callable[..., TestBroker], dirs: Sequence[Path]
) -> None:
    options = {
        "log.dirs": ",".join(map(str, dirs)),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    broker = new_broker(options=options).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    client = {"bootstrap.servers": broker.bootstrap}
    producer = Producer({**client, "transactional.id": "copies"})
    reading = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = Consumer({**client, **reading, "group.id": "copied", "enable.auto.commit": False})
    mover = Mover(broker.bootstrap, dirs, Ledger(exact=()))
    producer.init_transactions(30)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        producer.produce(TOPIC, str(number).encode(), partition=0)
        reached = [TopicPartition(TOPIC, 0, number + 1)]
        group = consumer.consumer_group_metadata()
        again(partial(producer.send_offsets_to_transaction, reached, group, 30))
        for name in COORDINATED:
            assert mover.move(0, dirs[number % len(dirs)], name) == ErrorCode.NONE
        again(partial(producer.commit_transaction, 30))
    there = {0: [(str(dirs[(TRANSACTIONS - 1) % len(dirs)]), False)]}
    for name in COORDINATED:
        wait_until(partial(is_described, mover, there, name), f"{name} has not moved")
    mover.close()
    for is_killed in (False, True):
        if is_killed:
            broker.kill()
            broker.start()
        reader = Consumer({**client, **reading, "group.id": "copied", "enable.auto.commit": False})
        (committed,) = ask_committed(reader, [TopicPartition(TOPIC, 0)])
        assert committed.offset == TRANSACTIONS
        reader.assign([TopicPartition(TOPIC, 0, 0)])
        found: list[bytes | None] = []
        while len(found) < TRANSACTIONS:
            messages = reader.consume(TRANSACTIONS, 1.0)
            # An error has a text as its value.
            found.extend(message.value() for message in messages if message.error() is None)
        assert found == [str(number).encode() for number in range(TRANSACTIONS)]
        reader.close()
    consumer.close()
