"""A log directory on a full disk refuses records and serves its present ones.

No acknowledged record is lost, even by a kill; other directories continue; and once there is space
the directory accepts records again by itself.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker
from tests.support.faults.disks import Disk, can_mount, with_small_files
from tests.support.waiting import wait_until
from tests.support.wire import (
    Connection,
    batch_headers,
    create_topic,
    fetch,
    produce,
    record_batch,
    wait_until_led,
)

KAFKA_STORAGE_ERROR = 56
SMALL_BYTES = 8 << 20
LARGER_BYTES = 8 * SMALL_BYTES
PATIENCE_S = 30

Make = Callable[..., TestBroker]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Disk]:
    """A file system of 8 MiB."""
    if not can_mount():
        pytest.skip("mounting a small tmpfs needs root; test_a_file_size_limit runs without")
    disk = Disk(tmp_path / "small", SMALL_BYTES)
    try:
        yield disk
    finally:
        disk.close()


def fill_until_refused(broker: TestBroker, topic: str) -> tuple[int, int]:
    """Produces until an error: the number of acknowledged records, and the error."""
    batch = record_batch([os.urandom(40_000)] * 5)
    with Connection(broker.bootstrap) as connection:
        acknowledged = 0
        while acknowledged < 2_000:
            answer = produce(connection, topic, batch)
            if answer.error:
                return acknowledged, answer.error
            assert answer.base_offset == acknowledged
            acknowledged += 5
    raise AssertionError("the disk never filled up")


def readable(connection: Connection, topic: str) -> int:
    """The number of readable records."""
    wait_until_led(connection, topic)
    count = 0
    while True:
        answer = fetch(connection, topic, count)
        assert answer.error == 0
        if count >= answer.high_watermark:
            return count
        for header in batch_headers(answer.records):
            assert header.base_offset == count
            count += header.record_count


def wait_for_line(broker: TestBroker, *words: str) -> None:
    """Log lines pass another process's pipe, so their effect may be visible earlier."""
    wait_until(
        lambda: any(all(word in line for word in words) for line in list(broker.log)),
        f"no line of the broker has {words}",
    )


def produce_when_possible(connection: Connection, topic: str) -> int:
    """Produces one record as soon as the directory accepts it; returns its offset."""

    def taken() -> list[int]:
        answer = produce(connection, topic, record_batch([b"on"]))
        assert answer.error in (0, KAFKA_STORAGE_ERROR)
        return [] if answer.error else [answer.base_offset]

    (offset,) = wait_until(taken, "the directory stayed read-only")
    return offset


def told(broker: TestBroker, *arguments: str) -> tuple[int, str]:
    """Exit code and output of one of our commands."""
    done = subprocess.run(
        [sys.executable, "-m", "pyrklog", "-b", broker.bootstrap, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout


def test_full_disk_is_reported_to_tools_and_producers(
    new_broker: Make, topic: str, small_disk: Disk
) -> None:
    broker = new_broker(options={"log.dirs": str(small_disk.folder / "logs")}).start()
    with Connection(broker.bootstrap) as connection:
        assert create_topic(connection, topic) == 0
    assert told(broker, "cluster", "health")[0] == 0
    fill_until_refused(broker, topic)
    logs = small_disk.folder / "logs"
    what = f"broker 1 takes no records in {logs}: its disk is full"
    code, page = told(broker, "cluster", "health")
    assert code == 8
    assert page.startswith(f"DEGRADED  {what}; fix: free space")
    code, line = told(broker, "produce", topic, "more", "--timeout", "10")
    assert code == 7
    assert line.startswith(f"error[PK32]: 1 of 1 record not written: {what}\n  fix: free space")
    small_disk.grow(LARGER_BYTES)
    with Connection(broker.bootstrap) as connection:
        produce_when_possible(connection, topic)
    assert told(broker, "cluster", "health")[0] == 0


def test_a_full_disk_stops_one_directory_only(
    new_broker: Make, topic: str, small_disk: Disk, tmp_path: Path
) -> None:
    """Two log directories; the first is full, which users of the second do not notice."""
    dirs = f"{small_disk.folder / 'logs'},{tmp_path / 'roomy'}"
    broker = new_broker(options={"log.dirs": dirs}).start()
    names = [f"{topic}-{number}" for number in range(4)]
    with Connection(broker.bootstrap) as connection:
        for name in names:
            assert create_topic(connection, name) == 0
    on_small = [name for name in names if (small_disk.folder / "logs" / f"{name}-0").exists()]
    on_roomy = [name for name in names if (tmp_path / "roomy" / f"{name}-0").exists()]
    assert len(on_small) == len(on_roomy) == 2, "new partitions spread over the directories"

    with Connection(broker.bootstrap) as connection:
        early = produce(connection, on_small[1], record_batch([b"early"]))
        assert early.error == 0
    acknowledged, error = fill_until_refused(broker, on_small[0])
    assert error == KAFKA_STORAGE_ERROR
    assert acknowledged > 0
    wait_for_line(broker, "log_dir_full", "error", str(small_disk.folder))
    with Connection(broker.bootstrap) as connection:
        for name in on_small:
            answer = produce(connection, name, record_batch([b"more"]))
            assert answer.error == KAFKA_STORAGE_ERROR, "read-only until there is space"
        assert readable(connection, on_small[0]) >= acknowledged
        assert readable(connection, on_small[1]) == 1
        for number in range(50):
            for name in on_roomy:
                assert produce(connection, name, record_batch([b"x"])).base_offset == number
        late = f"{topic}-late"
        assert create_topic(connection, late) == 0
        assert (tmp_path / "roomy" / f"{late}-0").exists(), "no new partition on a full disk"
        assert produce_when_possible(connection, late) == 0

        small_disk.grow(LARGER_BYTES)
        assert produce_when_possible(connection, on_small[1]) == 1
        end = produce_when_possible(connection, on_small[0])
        assert end >= acknowledged
    wait_for_line(broker, "log_dir_has_space", str(small_disk.folder))

    broker.stop()
    assert not (small_disk.folder / "logs" / ".pyrklog-arena").exists(), "an orderly end"
    broker.start()
    with Connection(broker.bootstrap) as connection:
        assert readable(connection, on_small[0]) == end + 1
        assert readable(connection, on_small[1]) == 2
        assert [readable(connection, name) for name in on_roomy] == [50, 50]


def test_a_full_disk_and_a_kill(new_broker: Make, topic: str, small_disk: Disk) -> None:
    """The same with the only directory, with a kill and a restart while it is full."""
    broker = new_broker(options={"log.dirs": str(small_disk.folder / "logs")}).start()
    with Connection(broker.bootstrap) as connection:
        assert create_topic(connection, topic) == 0
    acknowledged, error = fill_until_refused(broker, topic)
    assert error == KAFKA_STORAGE_ERROR
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        found = readable(connection, topic)
        assert found >= acknowledged
        assert produce(connection, topic, record_batch([b"more"])).error == KAFKA_STORAGE_ERROR
        small_disk.grow(LARGER_BYTES)
        assert produce_when_possible(connection, topic) >= found
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        assert readable(connection, topic) > found


def test_a_file_size_limit(new_broker: Make, topic: str) -> None:
    """RLIMIT_FSIZE stands in for a full disk where mounting is impossible: writes fail
    with EFBIG."""
    limited = new_broker(wrapper=with_small_files(SMALL_BYTES // 2)).start()
    with Connection(limited.bootstrap) as connection:
        assert create_topic(connection, topic) == 0
    acknowledged, error = fill_until_refused(limited, topic)
    assert error == KAFKA_STORAGE_ERROR
    assert acknowledged > 0
    assert limited.running
    limited.kill()
    free = new_broker(data=limited.data).start()
    with Connection(free.bootstrap) as connection:
        assert readable(connection, topic) >= acknowledged
