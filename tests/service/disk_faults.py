"""Faults of disks, and of what lies on them."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from pyrklog.groups.partitioner import partition_for
from tests.service import load
from tests.service.load import Repeated, Writer
from tests.service.watched import CACHE_BYTES, DISK_BYTES, ODD, OTHER, Watched
from tests.support.cluster_clients import described, leaders
from tests.support.waiting import wait_until

FILLED = 0.93
FILLER_BYTES = 512 << 20
LEFT_BYTES = 32 << 20
OFFSETS = "__consumer_offsets"
SLOW = "slow"
SLOW_PARTITIONS = 8
LARGE = bytes(900_000)
OLD_BYTES = 2 * CACHE_BYTES
"""More than memory holds, so that readers of the beginning need the disk."""
PRODUCE_TIMEOUT_MS = 5_000
BATCH_HEAD_BYTES = 12
"""Base offset and length."""


@contextmanager
def disk_fills_up(watched: Watched) -> Iterator[None]:
    disk = watched.cluster.disks[OTHER]
    filler = disk.folder / "of-somebody-else"
    try:
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, FILLER_BYTES)
        disk.grow(round(shutil.disk_usage(disk.folder).used / FILLED))
        yield
    finally:
        disk.grow(DISK_BYTES)
        filler.unlink(missing_ok=True)


@contextmanager
def disk_is_full(watched: Watched) -> Iterator[None]:
    disk = watched.cluster.disks[OTHER]
    try:
        disk.grow(shutil.disk_usage(disk.folder).used + LEFT_BYTES)
        disk.fill()
        yield
    finally:
        disk.grow(DISK_BYTES)
        disk.empty()


# --- the disk that hangs or fails ----------------------------------------------------------------


def _on_the_disk(watched: Watched) -> tuple[int, ...]:
    """The slow topic's partitions there; the others are in the broker's first log directory."""

    def found() -> list[int]:
        return [int(one.name.rpartition("-")[2]) for one in watched.disk.files.glob(f"{SLOW}-*")]

    wait_until(lambda: len(found()) >= SLOW_PARTITIONS // 3, f"they are at {found()}")
    return tuple(sorted(found()))


def _produce_old(watched: Watched, partitions: tuple[int, ...]) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": watched.cluster.bootstrap, "linger.ms": 5})
    for number in range(OLD_BYTES // len(LARGE)):
        producer.produce(
            SLOW,
            LARGE,
            partition=partitions[number % len(partitions)],
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
        if number % 20 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0
    assert not failed, failed[0]


def _rereader(watched: Watched, partition: int) -> Repeated:
    """Reads a partition from its beginning, again and again."""
    consumer = Consumer(
        {
            "bootstrap.servers": watched.cluster.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    place = TopicPartition(SLOW, partition, 0)
    consumer.assign([place])

    def step() -> None:
        if consumer.consume(200, 0.2):
            consumer.assign([place])

    return Repeated(step, close=consumer.close)


def _slow_topic(watched: Watched) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(watched.topic(SLOW, [[ODD]] * SLOW_PARTITIONS))
    return stack


@contextmanager
def disk_hangs(watched: Watched) -> Iterator[None]:
    """Producers fill what memory there is for it, and consumers read what only it has."""
    with _slow_topic(watched) as clients:
        partitions = _on_the_disk(watched)
        _produce_old(watched, partitions)
        watched.disk.evict()
        watched.disk.hang()
        try:
            for partition in partitions:
                clients.enter_context(_rereader(watched, partition))
            writer = Writer(
                watched.cluster.bootstrap,
                SLOW,
                value=LARGE,
                records=1,
                partitions=partitions,
                acks="all",
                **{
                    "request.timeout.ms": PRODUCE_TIMEOUT_MS,
                    "queue.buffering.max.kbytes": 64_000,
                    "message.timeout.ms": 600_000,
                },
            )
            clients.enter_context(Repeated(writer.step, 0.2, writer.close))
            yield
        finally:
            watched.disk.go_on()


@contextmanager
def disk_fails(watched: Watched) -> Iterator[None]:
    with _slow_topic(watched) as clients:
        partitions = _on_the_disk(watched)
        writer = Writer(watched.cluster.bootstrap, SLOW, partitions=partitions)
        clients.enter_context(Repeated(writer.step, 0.1, writer.close))
        wait_until(lambda: writer.acknowledged > 0, "nothing is written")
        watched.disk.fail()
        try:
            yield
        finally:
            watched.cluster.kill(ODD)
            watched.disk.replace()
            watched.cluster.begin(ODD)


# --- an internal topic ---------------------------------------------------------------------------


def _damage_third_batch(log: Path) -> None:
    data = bytearray(log.read_bytes())
    place = 0
    for _ in range(2):
        place += BATCH_HEAD_BYTES + _length(data, place)
    end = place + BATCH_HEAD_BYTES + _length(data, place)
    data[end - 1] ^= 0xFF
    log.write_bytes(data)


def _length(data: bytearray, place: int) -> int:
    (found,) = struct.unpack_from(">i", data, place + 8)
    return int(found)


@contextmanager
def offsets_are_damaged(watched: Watched) -> Iterator[None]:
    """A byte of the load's group has changed on the disk of the coordinator, which reads it when
    it starts again."""
    admin = watched.admin
    partitions = described(admin, OFFSETS)
    partition = partition_for(load.GROUP, len(partitions))
    victim = int(partitions[partition].replicas[0])
    watched.cluster.stop(victim)
    (folder,) = [
        found
        for log_dir in watched.log_dirs(victim)
        for found in log_dir.glob(f"{OFFSETS}-{partition}")
    ]
    try:
        _damage_third_batch(min(folder.glob("*.log")))
        watched.cluster.begin(victim)

        def leads() -> bool:
            watched.elect_preferred()
            return leaders(admin, OFFSETS)[partition] == victim

        wait_until(leads, "it does not lead")
        yield
    finally:
        # The replica is copied anew, as from a broker whose disk was replaced.
        if watched.cluster.brokers[victim].running:
            watched.cluster.stop(victim)
        shutil.rmtree(folder)
        watched.cluster.begin(victim)
