"""Why the data plane cannot start: which port, directory or process is in the way."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from pyrklog.base.problems import Problem
from pyrklog.errors import ConfigError, StartError, TemporaryError


def with_holder(message: str, log_dirs: Sequence[str]) -> str:
    from pyrklog.base.diagnosis import lock_holder

    holders = [lock_holder(Path(path) / ".lock") for path in log_dirs if path in message]
    known = [holder for holder in holders if holder is not None]
    return f"{message} (it is {known[0]})" if known else message


def refused_log_dir(log_dirs: Sequence[str]) -> ConfigError | None:
    """Names the path that this user may not change."""
    for log_dir in map(Path, log_dirs):
        place = next(one for one in (log_dir, *log_dir.parents) if one.exists() or not one.name)
        inside = [place / ".lock", place / "meta.properties"] if place == log_dir else []
        for path in (place, *inside):
            if path.exists() and not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
                return ConfigError(
                    Problem.DIRECTORY_UNUSABLE,
                    f"Cannot open {path}: Permission denied.",
                    fix="make it writable for this user, or choose another place with --data or "
                    "log.dirs",
                )
    return None


def refuse_taken_port(listener: str, host: str, port: int) -> None:
    """Whether another program listens there, without accepting: a start that must fail is to fail
    before it acts. Raises :class:`TemporaryError`; :meth:`.Plane.listen` tells everything else.
    """
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise listen_error(listener, host, port, error) from None


def listen_error(listener: str, host: str, port: int, error: OSError) -> StartError:
    where = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        from pyrklog.base.diagnosis import port_holder

        return TemporaryError(
            Problem.PORT_TAKEN,
            f"{where} is taken by {port_holder(port) or 'another program'}.",
            fix=f"stop it, or choose another port with --listen {host}:{port + 1}; if another "
            "broker serves its metrics there, start that one with --http none",
        )
    if error.errno is None:  # also for names that cannot be resolved
        return ConfigError(
            Problem.ADDRESS_UNUSABLE,
            f"{host} is no name that can be resolved (listener {listener}): {error}.",
            fix="listen on a name or an address of this machine, or on 0.0.0.0 for all of them",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(
            Problem.ADDRESS_UNUSABLE,
            f"{where} is no address of this machine (listener {listener}).",
            fix="listen on one of its own, or on 0.0.0.0 for all of them",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return ConfigError(
            Problem.ADDRESS_UNUSABLE,
            f"No permission to listen on {where}.",
            fix="choose a port from 1024 on, for example --listen "
            f"{host}:{8000 + port % 1000}; those below need root or CAP_NET_BIND_SERVICE",
        )
    return StartError(Problem.LISTEN_FAILED, f"Cannot listen on {where}: {error}.")
