"""Tells a service manager how far the broker is, by systemd's protocol (sd_notify(3)).

Each message is one datagram of ``NAME=VALUE`` lines to the Unix socket that ``NOTIFY_SOCKET``
names: a path, or with a leading ``@`` a name in Linux's abstract namespace. Without the variable
nothing is sent.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

import trio

from pyrklog.base.logs import get_logger

VARIABLE = "NOTIFY_SOCKET"
EXTEND_SECONDS = 10.0
"""How often a start that goes on asks for more time."""
EXTENDED_USEC = 60_000_000
"""How much it asks for: a broker that hangs is late within a minute."""

log = get_logger("broker")


class ServiceManager:
    """A manager that does not listen is told in the log once, and the broker goes on."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get(VARIABLE, "")
        self._has_failed = False

    async def extend_start(self, ready: trio.Event) -> None:
        """Asks for time until the broker is ready: logs may have to recover, or the controller to
        answer."""
        if not self._address:
            return
        while not ready.is_set():
            self._send("STATUS=starting", f"EXTEND_TIMEOUT_USEC={EXTENDED_USEC}")
            with trio.move_on_after(EXTEND_SECONDS):
                await ready.wait()

    def ready(self, status: str) -> None:
        """Clients are served. ``status`` is one line for people."""
        self._send("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=ending: hands over its partitions, writes its records")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        path = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        try:
            with socket.socket(socket.AF_UNIX, kind) as out:
                out.sendto("\n".join(lines).encode(), path)
        except OSError as error:
            if not self._has_failed:
                log.warning(
                    "service_manager_not_told",
                    socket=self._address,
                    reason=error.strerror or str(error),
                    fix="with Type=notify the manager ends a start that it hears nothing of: see "
                    "NotifyAccess in the unit, or start without NOTIFY_SOCKET",
                )
            self._has_failed = True
