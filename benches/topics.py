"""Topics of a case: created, filled, awaited, removed."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from benches import loadgen
from benches.brokers import BenchError, Broker

PARTITIONS = 6
# Kafka's controller makes at most 10,000 records at once; a partition is one.
_PARTITIONS_AT_ONCE = 1_000
_ADMIN_TIMEOUT_S = 120.0
_FILES_TIMEOUT_S = 120.0
_REMOVAL_TIMEOUT_S = 60.0


def create(
    broker: Broker,
    name: str,
    partitions: int = PARTITIONS,
    config: Mapping[str, str] | None = None,
) -> None:
    """Creates a topic, a large one in steps; BenchError if the broker refuses."""
    broker.topics.append(name)
    if broker.name == "floor":
        return  # it has every topic
    admin = _admin(broker)
    first = min(partitions, _PARTITIONS_AT_ONCE)
    topic = NewTopic(name, first, 1, config=dict(config or {}))
    _wait(broker, f"create topic {name}", admin.create_topics([topic]))
    for count in steps(first, partitions):
        more = admin.create_partitions([NewPartitions(name, count)])
        _wait(broker, f"give topic {name} {count} partitions", more)


def alter(broker: Broker, name: str, config: Mapping[str, str]) -> None:
    """Sets some of a topic's options; BenchError if the broker refuses."""
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin = _admin(broker)
    _wait(broker, f"alter topic {name}", admin.incremental_alter_configs([resource]))


def steps(first: int, wanted: int) -> list[int]:
    """The numbers of partitions after each further step from ``first``."""
    if wanted <= first:
        return []
    return [*range(first + _PARTITIONS_AT_ONCE, wanted, _PARTITIONS_AT_ONCE), wanted]


def wait_until_led(broker: Broker, name: str) -> None:
    """Waits until every partition says where it ends, by a fetch that finds nothing."""
    patience = {"timeout_seconds": _ADMIN_TIMEOUT_S, "max_wait_ms": 0, "seconds": 0.1}
    loadgen.run("fetch", broker.bootstrap, name, **patience)


def exists(broker: Broker, name: str) -> bool:
    return name in _admin(broker).list_topics(timeout=30).topics


def _admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def _wait(broker: Broker, what: str, futures: dict[Any, Any]) -> None:
    for future in futures.values():
        try:
            future.result(timeout=_ADMIN_TIMEOUT_S)
        except Exception as error:
            raise BenchError(f"{broker.name} did not {what}: {error}") from error


def remove_all(broker: Broker) -> None:
    """Removes the cases' topics, and waits until their bytes are gone from the disk."""
    names, broker.topics[:] = list(broker.topics), []
    if not names:
        return
    if broker.name == "floor":
        for path in _files(broker, names):
            os.truncate(path, 0)
        return
    admin = _admin(broker)  # must live as long as its futures
    _wait(broker, f"delete {', '.join(names)}", admin.delete_topics(names))
    deadline = time.monotonic() + _REMOVAL_TIMEOUT_S
    while time.monotonic() < deadline and any(_files(broker, names)):
        time.sleep(0.2)


def _files(broker: Broker, names: Iterable[str]) -> Iterable[Path]:
    """Segments of the topics, including folders under deletion (NAME-0.ID-delete)."""
    for name in names:
        for log_dir in broker.log_dirs:
            for folder in log_dir.glob(f"{name}-[0-9]*"):
                with suppress(FileNotFoundError):  # its deletion may end meanwhile
                    yield from folder.glob("*.log")


def fill(broker: Broker, most_bytes: int, topic: str = "fill") -> None:
    """Touches the memory that the broker and its page cache will use; creates the topic
    ``fill``."""
    if topic == "fill":
        create(broker, topic)
        broker.topics.remove(topic)
    loadgen.run(
        "produce",
        broker.bootstrap,
        topic,
        connections=4,
        batch_bytes=131_072,
        bytes=most_bytes,
        seconds=120,
    )


def wait_for_files(
    broker: Broker, topic: str, expected: int, partitions: int = PARTITIONS
) -> float:
    """Waits until the topic's segments hold ``expected`` bytes; the monotonic time of the last
    write.

    That time comes from the files, so polling may be slow for many files.
    """

    def look() -> tuple[int, float]:
        folders = (broker.partition_folder(topic, index) for index in range(partitions))
        found = [loadgen.segment_bytes(folder) for folder in folders]
        return sum(size for size, _ in found), max(written for _, written in found)

    return wait_until_written(broker, topic, expected, look)


def wait_until_written(
    broker: Broker, topic: str, expected: int, look: Callable[[], tuple[int, float]]
) -> float:
    """:func:`wait_for_files` with ``look`` for (bytes, wall clock time of the last write)."""
    deadline = time.monotonic() + _FILES_TIMEOUT_S
    while True:
        began = time.monotonic()
        size, written = look()
        now = time.monotonic()
        if size >= expected:
            return min(now, written - time.time() + time.monotonic())
        if now > deadline:
            raise BenchError(
                f"{broker.name}: segments of {topic} hold {size} of {expected} bytes "
                f"{_FILES_TIMEOUT_S:.0f} s after the last acknowledgement"
            )
        time.sleep(max(0.002, 3 * (now - began)))


def wait_until_at_rest(broker: Broker, topic: str, least: int, rest_s: float = 1.0) -> int:
    """Waits until the topic's segments hold ``least`` bytes and did not grow for ``rest_s``;
    returns the bytes. For a client that does not report how many it sent."""
    deadline = time.monotonic() + _FILES_TIMEOUT_S
    size, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        folders = (broker.partition_folder(topic, index) for index in range(PARTITIONS))
        found = sum(loadgen.segment_bytes(folder)[0] for folder in folders)
        if found != size:
            size, since = found, time.monotonic()
        elif size >= least and time.monotonic() > since + rest_s:
            return size
        time.sleep(0.05)
    raise BenchError(f"{broker.name}: segments of {topic} hold {size} of {least} bytes")
