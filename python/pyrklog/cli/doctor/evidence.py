"""What the doctor looks at, as values: the cluster as it answers, and this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyrklog.cli.broker_healths import BrokerHealth
from pyrklog.observability.health_rules import ClusterState
from pyrklog.protocol.log_dirs import DescribeLogDirsResult

Address = tuple[str, int]


@dataclass(frozen=True)
class Reached:
    """One address of ``-b``. ``error``: no connection; ``foreign``: what answers instead of a
    broker. ``holder`` is the process on this machine that listens there, as "java pid 4121"."""

    host: str
    port: int
    error: str | None = None
    foreign: str | None = None
    is_local: bool = False
    holder: str | None = None
    fix: str | None = None
    cluster_id: str | None = None
    """None: not told."""

    @property
    def where(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_broker(self) -> bool:
        return self.error is None and self.foreign is None


@dataclass(frozen=True)
class BrokerEvidence:
    """Of one registered broker; None: it does not tell."""

    number: int
    is_local: bool = False
    """Its address is one of this machine."""
    dial_error: str | None = None
    """Why there is no connection to the address that it tells clients."""
    cluster_id: str | None = None
    health: BrokerHealth | None = None
    log_dirs: Sequence[DescribeLogDirsResult] | None = None
    options: Mapping[str, str | None] | None = None
    versions: Mapping[int, tuple[int, int]] | None = None
    """First and last version of each API, by its key."""


@dataclass(frozen=True)
class Dialled:
    """A connection from this machine to the address that a broker tells clients. ``found``: what
    its name stands for here. ``error``: why there is none."""

    number: int
    where: str
    found: Sequence[str] = ()
    error: str | None = None
    milliseconds: float | None = None


@dataclass(frozen=True)
class LocalDir:
    """A log directory on this machine. ``broker``: whose it is, of those that answer; None: it was
    only named. ``holder``: the process with its lock, as "pid 4121"."""

    path: Path
    broker: int | None = None
    holder: str | None = None
    has_lock: bool = False
    """The file is there."""
    cluster_id: str | None = None
    node_id: int | None = None
    zookeeper: str | None = None
    """The ``zookeeper.connect`` that it belongs to."""
    exists: bool = True


@dataclass(frozen=True)
class LocalProcess:
    """Of the broker ``broker``, or of the holder of a named directory (None). ``since``: its start,
    for people."""

    pid: int
    name: str
    since: str
    broker: int | None = None
    open_files: int | None = None
    files_limit: int | None = None


@dataclass(frozen=True)
class NamedPlaces:
    """What ``--data`` and ``--config`` name: log directories and ``zookeeper.connect``.
    ``refusal``: why a broker would not start with them, and the fix."""

    log_dirs: Sequence[Path] = ()
    zookeeper: str | None = None
    is_given: bool = False
    refusal: tuple[str, str | None] | None = None


@dataclass(frozen=True)
class ZooKeeperServer:
    """What answers at an address. ``mode``: leader, follower, standalone; None where it does not
    say. ``behind``: what a name stands for here, and the server's own address where this one leads
    to it by the network of ``pyrklog dev``."""

    address: str
    error: str | None = None
    mode: str | None = None
    behind: str | None = None

    @property
    def server(self) -> str:
        return self.behind or self.address


@dataclass(frozen=True)
class Evidence:
    """``state`` None: no broker is reached, for the reason ``unreached``. ``unasked``: why requests
    that librdkafka has not were not sent, None if they were."""

    reached: Sequence[Reached]
    state: ClusterState | None = None
    unreached: str | None = None
    unasked: str | None = None
    brokers: Mapping[int, BrokerEvidence] = field(default_factory=dict)
    zookeepers: Sequence[ZooKeeperServer] = ()
    dirs: Sequence[LocalDir] = ()
    processes: Sequence[LocalProcess] = ()
    named: NamedPlaces = NamedPlaces()
    dialled: Sequence[Dialled] | None = None
    """None: not tried."""

    @property
    def healths(self) -> dict[int, BrokerHealth]:
        found = {number: one.health for number, one in self.brokers.items()}
        return {number: health for number, health in found.items() if health is not None}
