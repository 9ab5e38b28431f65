"""Listeners' addresses, before anything is made for a start."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from pyrklog.base.problems import Problem
from pyrklog.config.listeners import WILDCARDS, Endpoint
from pyrklog.errors import ConfigError


def refuse_unresolved(listeners: Iterable[Endpoint]) -> None:
    """Raises :class:`ConfigError` for a host that is no name and no address."""
    for name, host, port in listeners:
        if host in WILDCARDS:
            continue
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                Problem.ADDRESS_UNUSABLE,
                f"{host} is no name that can be resolved (listener {name}): {reason}.",
                fix="listen on a name or an address of this machine, or on 0.0.0.0 for all of them",
            ) from None
