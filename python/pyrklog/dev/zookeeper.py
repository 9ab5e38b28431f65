"""ZooKeeper's servers of a cluster: files, command line, readiness."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyrklog.dev import java
from pyrklog.dev.ports import HOST, zookeeper_port
from pyrklog.dev.state import Cluster, Node, Place

TICK_MS = 500
"""Sessions last 2 to 20 ticks."""
SESSION_TIMEOUT_MS = 3000
"""Of brokers: how long a silent broker counts as alive."""
SERVING_MODES = ("standalone", "leader", "follower")
_ALONE = "org.apache.zookeeper.server.ZooKeeperServerMain"
_QUORUM = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# A developer waits for the start: one compiler, no garbage collector threads, classes from the
# JVM's own archive.
_FLAGS = (
    "-Xms16m",
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-Dlog4j2.disableJmx=true",
    "-Dzookeeper.jmx.log4j.disable=true",
)
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %-5p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
# It cannot answer `srvr` before it has loaded its data, and says so with a stack of calls.
logger.asked.name = org.apache.zookeeper.server.WorkerService
logger.asked.level = error
"""


def write_lone_server(folder: Path, port: int) -> None:
    """The files of a server of its own; :func:`lone_command` starts it."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(_LOGGING)
    lines = _settings(folder / "data", port)
    (folder / "zoo.cfg").write_text("".join(f"{line}\n" for line in lines))


def lone_command(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Raises :class:`DevError` without Java or the server's jars."""
    java.require(environment)
    return _command(folder, _ALONE, environment)


def write_files(place: Place, cluster: Cluster, node: Node) -> None:
    folder = place.node_folder(cluster, node)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.properties").write_text(_LOGGING)
    (folder / "data" / "myid").write_text(f"{node.number}\n")
    numbers = [one.number for one in cluster.zookeepers]
    lines = settings(folder / "data", cluster.base_port, node.number, numbers)
    (folder / "zoo.cfg").write_text("".join(f"{line}\n" for line in lines))


def settings(data: Path, base_port: int, number: int, numbers: Sequence[int]) -> list[str]:
    """The lines of ``zoo.cfg``."""
    lines = _settings(data, zookeeper_port(base_port, number))
    if len(numbers) > 1:
        lines += ["initLimit=20", "syncLimit=10"]
        for one in numbers:
            port = zookeeper_port(base_port, one)
            lines.append(f"server.{one}={HOST}:{port + 10}:{port + 20}")
    return lines


def _settings(data: Path, port: int) -> list[str]:
    return [
        f"dataDir={data}",
        f"clientPort={port}",
        f"clientPortAddress={HOST}",
        f"tickTime={TICK_MS}",
        "maxClientCnxns=0",
        "admin.enableServer=false",
        "4lw.commands.whitelist=srvr",
        "autopurge.purgeInterval=1",
    ]


def command(
    place: Place, cluster: Cluster, node: Node, environment: Mapping[str, str]
) -> list[str]:
    main = _ALONE if len(cluster.zookeepers) == 1 else _QUORUM
    return _command(place.node_folder(cluster, node), main, environment)


def _command(folder: Path, main: str, environment: Mapping[str, str]) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
    classpath = java.zookeeper_classpath()
    program = str(java.find_java(environment))
    return [program, *_FLAGS, logging, "-cp", classpath, main, str(folder / "zoo.cfg")]


def serves(port: int, timeout_s: float = 2.0) -> bool:
    """Whether a serving server answers the command ``srvr`` there."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            connection.sendall(b"srvr")
            answer = bytearray()
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return any(f"Mode: {mode}".encode() in answer for mode in SERVING_MODES)
