"""Starts the watchdog and tells it each session."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from pyrklog.base.logs import get_logger
from pyrklog.config.zookeeper_connect import parse_connect
from pyrklog.membership.watchdog import WatchedSession

if TYPE_CHECKING:
    from pyrklog.metastore.zookeeper import Credentials, ZooKeeperAddress

RESTART_SECONDS = 1.0
_PROGRAM = Path(__file__).with_name("watchdog.py")

log = get_logger("membership")


class SessionGuard:
    """Ends the broker's session when the broker dies (``cluster.md``, section 7)."""

    def __init__(self, address: ZooKeeperAddress) -> None:
        self._address = address
        self._session: bytes | None = None
        self._process: trio.Process | None = None
        self._turn = trio.Lock()

    async def run(self) -> None:
        """Keeps a watchdog until cancelled. Without one the session expires by itself."""
        while True:
            try:
                process = await self._start()
            except OSError as error:
                log.warning("watchdog_not_started", reason=str(error))
                await trio.sleep(RESTART_SECONDS)
                continue
            self._process = process
            await self._tell()
            code = await process.wait()
            self._process = None
            log.warning("watchdog_ended", exit_code=code)
            await trio.sleep(RESTART_SECONDS)

    async def _start(self) -> trio.Process:
        # It must not get the broker's terminal signals, keep its directory in use, or hold its
        # output open.
        return await trio.lowlevel.open_process(
            [sys.executable, "-I", "-S", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    async def watch(self, credentials: Credentials) -> None:
        address = self._address
        session = WatchedSession(
            servers=parse_connect(address.connect)[0],
            session_id=credentials.session_id,
            password=credentials.password.hex(),
            timeout_ms=address.session_timeout_ms,
            tls=address.tls._asdict() if address.tls is not None else None,
        )
        self._session = json.dumps(session._asdict()).encode() + b"\n"
        await self._tell()

    async def _tell(self) -> None:
        if self._session is not None:
            await self._send(self._session)

    async def _send(self, line: bytes) -> None:
        async with self._turn:
            if self._process is None or self._process.stdin is None:
                return  # told at its start
            try:
                await self._process.stdin.send_all(line)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # it has ended; the next one is told

    async def dismiss(self) -> None:
        """Ends the watchdog after a clean end of the broker."""
        await self._send(b"end\n")
