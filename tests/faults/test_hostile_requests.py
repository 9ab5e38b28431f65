"""Valid and hostile requests against a whole broker in a memory cgroup of 512 MB.

Some clients send what tests/faults/hostile.py draws, including requests whose replies they never
read, and one opens hundreds of connections. Meanwhile a bystander produces and fetches, and must
always be served. At the end the broker lives, a stock client works, and the memory is released.
HOSTILE_SECONDS sets the duration, HOSTILE_SEED replays the clients' draws, HOSTILE_MEMORY_MB sets
the cgroup's size.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from benches import memory_group
from benches.process import usage
from pyrklog.testing import TestBroker
from tests.faults import hostile
from tests.support import wire
from tests.support.clients import Confluent, Record
from tests.support.waiting import PATIENCE_S, wait_until

SECONDS = float(os.environ.get("HOSTILE_SECONDS", "30"))
SEED = int(os.environ.get("HOSTILE_SEED", "0")) or Random().randrange(1, 1 << 31)
GROUP_BYTES = int(os.environ.get("HOSTILE_MEMORY_MB", "512")) * hostile.MIB
ATTACKERS = 6
CONNECTIONS = 400
AT_ONCE = 60
# What a broker may keep: allocator caches, sessions and groups that have not expired.
KEPT_BYTES = 160 * hostile.MIB


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[TestBroker]:
    """In a cgroup where the machine has them; elsewhere its peak is checked."""
    group = memory_group.create(f"pyrklog-hostile-{os.getpid()}", GROUP_BYTES)
    wrapper = ["prlimit", "--nofile=1024"]
    if isinstance(group, memory_group.MemoryGroup):
        join = f'echo $$ > {group.path}/cgroup.procs && exec "$@"'
        wrapper += ["sh", "-c", join, "sh"]
    options = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "pyrklog.cache.max.bytes": 64 * hostile.MIB,
    }
    with TestBroker(tmp_path / "data", options=options, wrapper=wrapper) as broker:
        yield broker
    if isinstance(group, memory_group.MemoryGroup):
        group.remove()


class Run:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.ends_at = time.monotonic() + SECONDS
        self.sent: Counter[str] = Counter()
        self.served = 0
        self.failure: str | None = None

    @property
    def is_over(self) -> bool:
        """Time is up, or a thread has failed."""
        return time.monotonic() >= self.ends_at or self.failure is not None


def _attack(run: Run, number: int) -> None:
    random = Random(f"{SEED}/{number}")
    while not run.is_over:
        attack = random.choice(hostile.KINDS)(random)
        run.sent[attack.name] += 1
        # A connection that the broker closes or refuses is a valid answer.
        try:
            with wire.Connection(run.bootstrap, timeout_s=10) as connection:
                for frame in attack.frames:
                    connection.socket.sendall(frame)
                for _ in range(attack.replies):
                    connection.read_frame()
                # The attack: it holds the connection.
                time.sleep(min(attack.holds_s, max(0.0, run.ends_at - time.monotonic())))
        except (OSError, wire.ConnectionClosed):
            pass


def _crowd(run: Run) -> None:
    """Hundreds of connections, now and then, each with the start of a request."""
    random = Random(f"{SEED}/crowd")
    host, port = run.bootstrap.rsplit(":", 1)
    while not run.is_over:
        crowd = []
        try:
            for _ in range(random.randrange(CONNECTIONS)):
                crowd.append(socket.create_connection((host, int(port)), 5))
                crowd[-1].sendall(struct.pack(">i", 100) + bytes(random.randrange(50)))
        except OSError:
            pass
        # How long they are in the way.
        time.sleep(0.5)
        for member in crowd:
            member.close()


def _bystand(run: Run) -> None:
    batch = wire.record_batch([b"mine"])
    try:
        with wire.Connection(run.bootstrap, timeout_s=PATIENCE_S) as connection:
            while not run.is_over:
                produced = wire.produce(connection, "bystander", batch)
                assert produced.error == 0, produced
                fetched = wire.fetch(connection, "bystander", produced.base_offset)
                assert fetched.error == 0, fetched
                assert fetched.records, fetched
                run.served += 1
                # It is to be served, not to be load.
                time.sleep(0.02)
    except (AssertionError, OSError, wire.ConnectionClosed) as error:
        run.failure = f"the bystander was not served: {error!r}"


def _ask_at_once(run: Run, frame: bytes, together: threading.Barrier) -> None:
    """One of many simultaneous large requests; the connection may end instead of an answer."""
    try:
        with wire.Connection(run.bootstrap, timeout_s=60) as connection:
            together.wait()
            connection.socket.sendall(frame)
            connection.read_frame()
            run.sent["answered"] += 1
    except (OSError, wire.ConnectionClosed, threading.BrokenBarrierError):
        run.sent["closed"] += 1


@pytest.mark.timeout(240)
def test_many_large_requests_of_the_control_plane_at_once(broker: TestBroker) -> None:
    """Each is within all bounds; decoded together they would exceed the memory several times."""
    with wire.Connection(broker.bootstrap) as connection:
        assert wire.create_topic(connection, "bystander") == 0
        wire.wait_until_led(connection, "bystander")
    run = Run(broker.bootstrap)
    together = threading.Barrier(AT_ONCE)
    asking = [
        threading.Thread(target=_ask_at_once, args=(run, hostile.many_resources(number), together))
        for number in range(AT_ONCE)
    ]
    run.ends_at = time.monotonic() + 3600
    beside = threading.Thread(target=_bystand, args=(run,))
    for thread in (beside, *asking):
        thread.start()
    for thread in asking:
        thread.join()
    run.ends_at = time.monotonic()
    beside.join()
    print(f"{run.sent}, {run.served} rounds of the bystander, peak {_peak_bytes(broker.pid) >> 20}")
    assert broker.running, list(broker.log)[-5:]
    assert run.failure is None, run.failure
    assert run.sent["answered"] > 0
    assert _peak_bytes(broker.pid) <= GROUP_BYTES
    assert broker.stop() == 0


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.mark.timeout(SECONDS + 240)
def test_a_broker_outlives_hostile_requests(broker: TestBroker, tmp_path: Path) -> None:
    print(f"HOSTILE_SEED={SEED}")
    with wire.Connection(broker.bootstrap) as connection:
        assert wire.create_topic(connection, hostile.TOPIC, partitions=hostile.PARTITIONS) == 0
        assert wire.create_topic(connection, "bystander") == 0
        wire.wait_until_led(connection, "bystander")
    before_bytes = usage(broker.pid).own_rss_bytes
    run = Run(broker.bootstrap)
    threads = [threading.Thread(target=_attack, args=(run, number)) for number in range(ATTACKERS)]
    threads += [threading.Thread(target=each, args=(run,)) for each in (_crowd, _bystand)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{sum(run.sent.values())} attacks, {run.served} rounds of the bystander: {run.sent}")
    assert broker.running, f"HOSTILE_SEED={SEED}: {list(broker.log)[-5:]}"
    assert run.failure is None, f"HOSTILE_SEED={SEED}: {run.failure}"
    assert run.served > SECONDS / 5
    peak_bytes = _peak_bytes(broker.pid)
    print(f"peak {peak_bytes >> 20} MiB")
    assert peak_bytes <= GROUP_BYTES
    client = Confluent()
    (offset,) = client.produce(broker.bootstrap, "bystander", [Record(None, b"last")])
    (found,) = client.consume(broker.bootstrap, "bystander", 1, start=offset)
    assert found.value == b"last"
    wait_until(
        lambda: usage(broker.pid).own_rss_bytes <= before_bytes + KEPT_BYTES,
        f"HOSTILE_SEED={SEED}: memory is not given back",
    )
    assert broker.stop() == 0
