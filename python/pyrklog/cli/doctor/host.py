"""What this machine tells: addresses, log directories, processes. Reads only."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pyrklog.base.diagnosis import lock_holder, port_holder
from pyrklog.cli.doctor.evidence import (
    Address,
    Dialled,
    LocalDir,
    LocalProcess,
    NamedPlaces,
    Reached,
)
from pyrklog.cli.options import Settings

LOCK = ".lock"
_FILES_LIMIT = "Max open files"


def is_local(host: str) -> bool:
    """Whether the name or address is one of this machine's."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        except OSError:
            continue
        return True
    return False


def reached(address: Address, settings: Settings) -> Reached:
    """What answers at an address of ``-b``."""
    from pyrklog.cli.connection import start_fix, what_answers

    host, port = address
    local = is_local(host)
    try:
        other = what_answers(address, settings)
    except (OSError, UnicodeError) as failed:
        fix = start_fix(settings, f"{host}:{port}")
        return Reached(host, port, _why(failed), is_local=local, fix=fix)
    if other is None:
        return Reached(host, port, is_local=local)
    if other.why is not None:  # a broker of ours has the port, and is not to be ended
        return Reached(host, port, None, f"{other.what}: {other.why}", local, fix=other.fix)
    fix, holder = other.fix, port_holder(port) if local else None
    if holder is not None:
        fix = f"end {holder}, or give the broker another port: `pyrklog serve --listen :{port + 1}`"
    return Reached(host, port, None, other.what, local, holder, fix)


def dial_error(address: Address, timeout_s: float) -> str | None:
    """Why there is no connection to it; None if there is one."""
    try:
        socket.create_connection(address, timeout=timeout_s).close()
    except (OSError, UnicodeError) as error:
        return _why(error)
    return None


def dialled(number: int, address: Address, timeout_s: float) -> Dialled:
    """How this machine reaches the address that a broker tells."""
    host, port = address
    where = f"{host}:{port}"
    try:
        named = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Dialled(number, where, error=_why(error))
    found = list(dict.fromkeys(str(one[4][0]) for one in named))
    began = time.monotonic()
    wrong = dial_error(address, timeout_s)
    took_ms = round((time.monotonic() - began) * 1000, 1)
    return Dialled(number, where, found, wrong, None if wrong is not None else took_ms)


def _why(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "this machine does not know the name"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        return "nothing listens there"
    return str(getattr(error, "strerror", None) or error)


def local_dir(path: Path, broker: int | None) -> LocalDir:
    from pyrklog.errors import ConfigError
    from pyrklog.start.identity import read_identities
    from pyrklog.start.standing import read_notes

    try:
        identities = read_identities([path])
    except ConfigError:  # of a version that nobody knows
        identities = []
    cluster_id = identities[0].cluster_id if identities else None
    node_id = identities[0].node_id if identities else None
    kept = next((address for _, address in read_notes([path])), None)
    lock = path / LOCK
    return LocalDir(
        path,
        broker,
        lock_holder(lock),
        os.path.exists(lock),
        cluster_id,
        node_id,
        kept,
        exists=os.path.isdir(path),
    )


def processes(dirs: Iterable[LocalDir], proc: Path = Path("/proc")) -> list[LocalProcess]:
    """The holders of the directories, each once."""
    found: dict[int, LocalProcess] = {}
    for one in dirs:
        pid = (one.holder or "").removeprefix("pid ")
        if pid.isdecimal() and int(pid) not in found:
            process = _process(int(pid), one.broker, proc)
            if process is not None:
                found[int(pid)] = process
    return list(found.values())


def _process(pid: int, broker: int | None, proc: Path) -> LocalProcess | None:
    folder = proc / str(pid)
    try:
        name = (folder / "comm").read_text().strip()
        since = _started((folder / "stat").read_text(), (proc / "stat").read_text())
    except OSError:
        return None  # it has ended
    try:
        used = len(os.listdir(folder / "fd"))
        limits = (folder / "limits").read_text()
    except OSError:
        return LocalProcess(pid, name, since, broker)  # another user's
    return LocalProcess(pid, name, since, broker, used, _files_limit(limits))


def _started(process: str, machine: str) -> str:
    """From ``/proc/PID/stat`` and ``/proc/stat``: ticks since the machine's boot, and its time."""
    ticks = int(process.rpartition(")")[2].split()[19])  # the name before it may contain anything
    boot_s = next(int(line.split()[1]) for line in machine.splitlines() if line.startswith("btime"))
    started = datetime.fromtimestamp(boot_s + ticks / os.sysconf("SC_CLK_TCK"))
    return started.isoformat(sep=" ", timespec="minutes")


def _files_limit(limits: str) -> int | None:
    """The soft one, of ``/proc/PID/limits``; None without a limit."""
    for line in limits.splitlines():
        if line.startswith(_FILES_LIMIT):
            soft = line.removeprefix(_FILES_LIMIT).split()[0]
            return int(soft) if soft.isdecimal() else None
    return None


def named_places(data: str | None, config: str | None) -> NamedPlaces:
    """Of these options of ``serve``; without them those of the default directory, if it exists."""
    from pyrklog.config.load import load_config
    from pyrklog.errors import ConfigError

    sets = [f"pyrklog.data.dir={data}"] if data is not None else []
    is_given = data is not None or config is not None
    try:
        loaded = load_config(file=Path(config) if config is not None else None, overrides=sets)
        found = list(loaded.log_dirs)
    except ConfigError as error:
        return NamedPlaces(is_given=True, refusal=(error.what, error.fix))
    if not is_given:
        found = [path for path in found if (path / LOCK).exists()]
    return NamedPlaces(found, loaded.zookeeper, is_given)
