"""The end of a broker: what asks for it, how long it may take, and its exit code."""

from __future__ import annotations

import os
import signal

import trio

from pyrklog.base.logs import get_logger
from pyrklog.errors import EX_IO
from pyrklog.plane.core_plane import Plane

SHUTDOWN_GRACE_MS = 1200
SHUTDOWN_LIMIT_SECONDS = 8.0
"""SIGTERM to exit takes a tenth of a second on an idle disk. But a sync also waits for others'
writes, and logs that are cut short must recover. Container managers wait ten seconds before they
kill.
"""
SAME_SIGNAL_SECONDS = 0.1
"""timeout(1) signals the process and then its group: meant as one signal."""
EXIT_INTERRUPTED = 130
EXIT_SIGNALLED = 128
"""And the signal's number, as shells have it: 130 after a second Ctrl-C, 143 after a SIGTERM."""

log = get_logger("broker")


class BrokerEnd:
    def __init__(self, ready: trio.Event) -> None:
        """``ready``: until then an end cancels the start."""
        self.exit_code = 0
        self._asked = trio.Event()
        self._ready = ready
        self.start = trio.CancelScope()
        """Of the start, which may wait for a ZooKeeper or controller that does not answer."""

    @property
    def is_asked(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        self._asked.set()

    async def wait_asked(self) -> None:
        await self._asked.wait()

    def all_log_dirs_failed(self) -> None:
        log.error("all_log_dirs_failed", fix="look at the disks; nothing can be served")
        self.exit_code = EX_IO
        self.ask()

    async def watch_signals(self) -> None:
        """The first signal ends the broker cleanly, a second one at once."""
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
            numbers.append(signal.SIGHUP)
        told_at = 0.0
        with trio.open_signal_receiver(*numbers) as received:
            async for number in received:
                if self.is_asked:
                    if trio.current_time() - told_at < SAME_SIGNAL_SECONDS:
                        continue
                    # A hanging part must not block the exit; the logs recover at the next start.
                    os._exit(EXIT_SIGNALLED + number)
                log.info("shutting_down", signal=signal.Signals(number).name)
                told_at = trio.current_time()
                self.ask()
                if not self._ready.is_set():
                    self.start.cancel()

    async def shut_down(self, plane: Plane) -> None:
        began = trio.current_time()
        clean = False
        log.info("flushing")
        with trio.move_on_after(SHUTDOWN_LIMIT_SECONDS):
            clean = await plane.shutdown(SHUTDOWN_GRACE_MS)
        seconds = round(trio.current_time() - began, 3)
        if clean:
            log.info("flushed", seconds=seconds)
        else:
            log.warning(
                "not_flushed", seconds=seconds, consequence="logs recover at the next start"
            )
            self.exit_code = self.exit_code or 1
