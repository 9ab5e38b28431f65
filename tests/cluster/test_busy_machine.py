"""A broker on a busy machine is slow, not silent: no leader moves."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, produce

pytestmark = pytest.mark.jvm

SECONDS = float(os.environ.get("BUSY_SECONDS", "15"))
LOOPS = 8
PARTITIONS = 12
# Sessions that outlive the busy time: a move would come from a suspicion.
LONG = {"zookeeper.session.timeout.ms": 600_000}


@contextmanager
def busy(loops: int) -> Iterator[None]:
    processes = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(loops)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def decisions(cluster: BrokerCluster, topic: str) -> dict[str, Any]:
    """What elections change."""
    found: dict[str, Any] = {"controller": cluster.store.get("/controller_epoch")[0]}
    for partition in range(PARTITIONS):
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        state = json.loads(cluster.store.get(path)[0])
        found[path] = (state["leader"], state["leader_epoch"])
    return found


@pytest.mark.timeout(SECONDS + 240)
def test_busy_machine_makes_no_suspects(
    new_cluster: Callable[..., BrokerCluster], topic: str
) -> None:
    cluster = new_cluster(**LONG).start()
    create(cluster, topic, PARTITIONS, 3)
    produce(cluster, topic, PARTITIONS, [b"v"])
    before = decisions(cluster, topic)
    rounds = 1
    with busy(LOOPS):
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            produce(cluster, topic, PARTITIONS, [b"v"])
            rounds += 1
            assert decisions(cluster, topic) == before
    assert cluster.store.exists("/pyrklog/deposed") is None
    assert consume(cluster, topic, rounds * PARTITIONS, "g") == [b"v"] * rounds * PARTITIONS
