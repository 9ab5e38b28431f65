"""Apache Kafka in ZooKeeper mode, with a ZooKeeper of its own from Kafka's jars."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyrklog.protocol.cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from pyrklog.testing.broker import free_port
from tests.support import jvm
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until_serves

_START_S = 90
NODE_ID = 4


class ZookeeperKafka(NamedTuple):
    """Addresses, and the log directory."""

    bootstrap: str
    zookeeper: str
    data: Path
    properties: Path


@contextmanager
def running(
    properties: list[str], main: str, folder: Path, name: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A JVM with these settings until the block ends."""
    file = folder / f"{name}.properties"
    file.write_text("".join(f"{line}\n" for line in properties))
    with (folder / f"{name}.log").open("wb") as output:
        process = subprocess.Popen(
            jvm.command(main, str(file)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    """A ZooKeeper; yields its address with a chroot. Kafka itself waits until it answers."""
    port = free_port()
    settings = [
        f"dataDir={folder / 'zookeeper'}",
        f"clientPort={port}",
        "clientPortAddress=127.0.0.1",
        "admin.enableServer=false",
    ]
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with running(settings, main, folder, "zoo"):
        yield f"127.0.0.1:{port}/kafka"


@contextmanager
def kafka(
    folder: Path, address: str, node_id: int = NODE_ID, more: Sequence[str] = ()
) -> Iterator[ZookeeperKafka]:
    """A Kafka on that ZooKeeper, once it answers; ``more`` lines of its properties."""
    broker = ZookeeperKafka(
        f"127.0.0.1:{free_port()}", address, folder / "data", folder / "kafka.properties"
    )
    settings = [
        *more,
        f"broker.id={node_id}",
        f"zookeeper.connect={address}",
        f"listeners=PLAINTEXT://{broker.bootstrap}",
        f"log.dirs={broker.data}",
        "offsets.topic.replication.factor=1",
        "offsets.topic.num.partitions=5",
    ]
    with running(settings, "kafka.Kafka", folder, "kafka") as process:
        output = folder / "kafka.log"
        wait_until_serves(process, output, lambda: _answers(broker.bootstrap), _START_S)
        yield broker


def _answers(bootstrap: str) -> bool:
    """Whether it knows itself and a controller: before that, admin clients may hang."""
    try:
        with RawClient(bootstrap, timeout_s=2) as raw:
            found = raw.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
    except OSError:
        return False
    return found.controller_id >= 0 and bool(found.brokers)
