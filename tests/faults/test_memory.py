"""A memory group that a broker shares with a neighbour: the broker's cache makes room for it.

The story: the cache holds most of the group. Then another process of the group wants half of it.
Shared memory is nothing that the kernel could take from the broker: unless the broker gives it back
in time, the kernel kills one of both.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

from benches import memory_group
from benches.brokers import Pyrklog
from tests.support.faults.machine import arena_files

MIB = 1 << 20
GROUP_BYTES = 1200 * MIB
# The cap is 60 % of the group.
CACHED_BYTES = 600 * MIB
NEIGHBOUR_BYTES = 600 * MIB
RECORD_BYTES = 100_000
# Takes so many bytes in a second, says so, and keeps them until its input ends.
NEIGHBOUR = """
import sys, time
held = []
for _ in range(100):
    held.append(b"x" * (int(sys.argv[1]) // 100))
    time.sleep(0.01)
print("has it", flush=True)
sys.stdin.read()
"""


def _arena_bytes(broker: Pyrklog) -> int:
    (path,) = arena_files(broker.default_log_dir())
    return 512 * os.stat(path).st_blocks


def _produce(broker: Pyrklog, count: int) -> None:
    lost: list[object] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            lost.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in range(count // RECORD_BYTES):
        while True:
            try:
                producer.produce(
                    "t",
                    number.to_bytes(4) * (RECORD_BYTES // 4),
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0
    assert not lost


def test_the_cache_makes_room_for_a_neighbour_and_grows_again(tmp_path: Path) -> None:
    group = memory_group.create(f"pyrklog-test-{os.getpid()}", GROUP_BYTES)
    assert isinstance(group, memory_group.MemoryGroup), group
    broker = Pyrklog(tmp_path / "broker")
    broker.prepare()
    try:
        broker.start(group.join())
        _produce(broker, CACHED_BYTES)
        cached = _arena_bytes(broker)
        assert CACHED_BYTES <= cached <= CACHED_BYTES * 1.15 + 32 * MIB
        command = [sys.executable, "-c", NEIGHBOUR, str(NEIGHBOUR_BYTES)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=group.join()
        ) as neighbour:
            assert neighbour.stdout is not None
            assert neighbour.stdout.readline() == b"has it\n"
            left = _arena_bytes(broker)
            # And it goes on beside it.
            _produce(broker, 50 * MIB)
            assert _arena_bytes(broker) < GROUP_BYTES - NEIGHBOUR_BYTES
            neighbour.communicate()
        assert neighbour.returncode == 0, "it was not killed"
        assert left < cached
        _produce(broker, CACHED_BYTES)
        deadline = time.monotonic() + 60
        while _arena_bytes(broker) < CACHED_BYTES:
            assert time.monotonic() < deadline, _arena_bytes(broker)
            _produce(broker, 20 * MIB)
        assert broker.stop() >= 0
    finally:
        broker.remove()
        group.remove()
