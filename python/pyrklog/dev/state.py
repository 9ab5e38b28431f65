"""The state of a cluster: ``~/.local/share/pyrklog/dev/NAME/state.json``, and its other files.

::

NAME/state.json             this module's
    NAME/network.json           see :mod:`pyrklog.dev.routes`
    NAME/network.log
    NAME/broker-1/              server.properties, broker.log, data/
    NAME/zookeeper-1/           zoo.cfg, zookeeper.log, data/

With ``--tmp``, the folders of brokers and ZooKeepers are in a temporary folder. Commands that
change a cluster hold one lock a user, so that no two choose the same ports.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from pyrklog.base.data_home import data_home
from pyrklog.base.problems import Problem
from pyrklog.config.http_place import NAME as HTTP_LISTENER
from pyrklog.config.http_place import http_place
from pyrklog.config.listeners import Endpoint
from pyrklog.dev import processes
from pyrklog.dev.errors import DevError
from pyrklog.dev.ports import HOST, client_port, routed_peer_port, zookeeper_port
from pyrklog.dev.processes import ProcessId

VERSION = 1
STATE_FILE = "state.json"
DEFAULT_NAME = "default"
NETWORK = "network"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

Role = Literal["broker", "zookeeper", "network"]
State = Literal["running", "paused", "isolated", "dead", "stopped"]


class Node(msgspec.Struct):
    """One process of a cluster. ``process`` stays after an unexpected end."""

    role: Role
    number: int
    rack: str | None = None
    process: ProcessId | None = None

    @property
    def name(self) -> str:
        """Its name in commands: ``1``, ``zk1``, ``network``."""
        names = {"broker": str(self.number), "zookeeper": f"zk{self.number}"}
        return names.get(self.role, NETWORK)

    @property
    def title(self) -> str:
        return "the network" if self.role == "network" else f"{self.role} {self.number}"

    @property
    def is_running(self) -> bool:
        return self.process is not None and processes.is_running(self.process)


class Cluster(msgspec.Struct):
    """A cluster as in ``state.json``. ``settings`` are KEY=VALUE of all brokers.

    ``temporary`` is the folder of an ``is_temporary`` cluster, once started.
    """

    name: str
    base_port: int
    nodes: list[Node]
    settings: list[str] = []
    isolated: list[int] = []
    is_temporary: bool = False
    temporary: str | None = None
    version: int = VERSION

    def of(self, role: Role) -> list[Node]:
        """By number."""
        return sorted((one for one in self.nodes if one.role == role), key=lambda one: one.number)

    @property
    def brokers(self) -> list[Node]:
        """By number."""
        return self.of("broker")

    @property
    def zookeepers(self) -> list[Node]:
        """By number."""
        return self.of("zookeeper")

    @property
    def network(self) -> Node:
        return self.of("network")[0]

    def node(self, name: str) -> Node:
        """Raises :class:`DevError` where there is none."""
        for one in self.nodes:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.nodes)
        raise DevError(Problem.DEV_NOT_FOUND, f"{self.name} has no node {name}", f"one of {known}")

    def running(self) -> list[Node]:
        return [one for one in self.nodes if one.is_running]

    def state_of(self, node: Node) -> State:
        if node.process is None:
            return "stopped"
        if not processes.is_running(node.process):
            return "dead"
        if processes.is_paused(node.process):
            return "paused"
        is_cut_off = node.role == "broker" and node.number in self.isolated
        return "isolated" if is_cut_off else "running"

    def address_of(self, node: Node) -> str:
        match node.role:
            case "broker":
                return f"{HOST}:{client_port(self.base_port, node.number)}"
            case "zookeeper":
                return f"{HOST}:{zookeeper_port(self.base_port, node.number)}"
        return f"{HOST}:{routed_peer_port(self.base_port, 1)}"

    def http_of(self, node: Node) -> str | None:
        """Where a broker serves metrics and health; None: nowhere, or a port that only it knows."""
        if node.role != "broker":
            return None
        pairs = (one.partition("=") for one in self.settings)
        given = [text for key, _, text in pairs if key.strip() == HTTP_LISTENER]
        kafka = Endpoint("CLIENTS", HOST, client_port(self.base_port, node.number))
        place = http_place(given[-1] if given else None, [kafka])
        return None if place is None or not place.port else str(place)

    @property
    def bootstrap(self) -> str:
        """Of all brokers: any of them may be away."""
        return ",".join(self.address_of(one) for one in self.brokers)


class Place:
    def __init__(self, root: Path, name: str) -> None:
        """Raises :class:`DevError` for an invalid name."""
        if not _NAME.fullmatch(name):
            raise DevError(
                Problem.ARGUMENT_VALUE,
                f"--name takes up to 64 letters, digits, dots, hyphens and underscores, "
                f"not {name!r}",
                None if name else f"leave --name out for the cluster {DEFAULT_NAME}",
            )
        self.root = root
        self.name = name
        self.folder = root / name
        self.state_file = self.folder / STATE_FILE

    def load(self) -> Cluster:
        """Raises :class:`DevError` where there is no such cluster, or its file is unreadable."""
        try:
            content = self.state_file.read_bytes()
        except FileNotFoundError:
            raise self._unknown() from None
        try:
            cluster = msgspec.json.decode(content, type=Cluster)
        except msgspec.DecodeError as error:
            raise self._unreadable(str(error)) from None
        if cluster.version != VERSION:
            raise self._unreadable(f"version {cluster.version}, not {VERSION}")
        return cluster

    def exists(self) -> bool:
        return self.state_file.exists()

    def save(self, cluster: Cluster) -> None:
        write_whole(self.state_file, msgspec.json.format(msgspec.json.encode(cluster)))

    def node_folder(self, cluster: Cluster, node: Node) -> Path:
        if node.role == "network":
            return self.folder
        parent = Path(cluster.temporary) if cluster.temporary is not None else self.folder
        return parent / f"{node.role}-{node.number}"

    def log_of(self, cluster: Cluster, node: Node) -> Path:
        return self.node_folder(cluster, node) / f"{node.role}.log"

    def others(self) -> list[Cluster]:
        found = []
        for file in sorted(self.root.glob(f"*/{STATE_FILE}")):
            if file.parent != self.folder:
                try:
                    found.append(Place(self.root, file.parent.name).load())
                except DevError:
                    continue
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Excludes other commands that change clusters of the user. Raises :class:`DevError` where
        no folder can be made."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"the folder {self.root} cannot be made: {error.strerror}"
            fix = "name a folder of your own in the environment's XDG_DATA_HOME"
            raise DevError(Problem.DEV_STATE, what, fix) from None
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _unknown(self) -> DevError:
        names = [cluster.name for cluster in self.others()]
        start = dev_fix(self.name, "start")
        fix = f"there is {', '.join(names)} (--name); or {start}" if names else start
        return DevError(Problem.DEV_NOT_FOUND, f"there is no dev cluster {self.name}", fix)

    def _unreadable(self, why: str) -> DevError:
        fix = f"end its processes by hand and remove {self.folder}"
        return DevError(Problem.DEV_STATE, f"{self.state_file} cannot be read: {why}", fix)


def dev_command(name: str, *words: str) -> str:
    """The command for this cluster, as a user types it."""
    named = () if name == DEFAULT_NAME else ("--name", name)
    return " ".join(("pyrklog dev", *words, *named))


def dev_fix(name: str, *words: str) -> str:
    """The same within a sentence."""
    return f"`{dev_command(name, *words)}`"


def dev_root(environment: Mapping[str, str]) -> Path:
    return data_home(environment) / "dev"


def write_whole(file: Path, content: bytes) -> None:
    """Replaces the file atomically."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_bytes(content)
    fresh.replace(file)
