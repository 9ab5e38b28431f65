from __future__ import annotations

import itertools
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pyrklog.testing.broker_faults import BrokerFaults
from pyrklog.testing.door_client import DoorClient
from pyrklog.testing.guard import guard
from pyrklog.testing.guard_process import remove_arenas
from pyrklog.testing.output import Output, Started, events
from pyrklog.testing.ports import free_port as free_port
from pyrklog.testing.topics import Record, Topic, TopicReader

if TYPE_CHECKING:
    from pyrklog.testing.asynchronous import AsyncTestBroker

HTTP_LISTENER = "pyrklog.http.listener"
REBALANCE_DELAY = "group.initial.rebalance.delay.ms"
CACHE_KEEP = "pyrklog.cache.keep"
CHECK_INTERVAL_MS = 500
CHECKS = (
    "log.retention.check.interval.ms",
    "offsets.retention.check.interval.ms",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
)
"""How often what a clock that jumps makes due is looked for."""
_topic_numbers = itertools.count(1)
_run = secrets.token_hex(3)


class BrokerExited(Exception):
    """The broker ended before it listened; the message has its exit code and output."""


class TestBroker(BrokerFaults):
    """A broker on the loopback interface, with the same data and port across restarts.

    Attributes: `bootstrap` is `"127.0.0.1:PORT"`; `data` the data directory; `log` the output lines
    of all starts (the last 5,000). As a context manager it starts on entry, stops on exit, and then
    removes `data`, unless it was given. `async with` gives an :class:`AsyncTestBroker`, under
    asyncio and Trio. See docs/using/testing.md.
    """

    __test__ = False

    faults_by_default: ClassVar[bool] = True
    """Of brokers that are made without ``faults``."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        port: int | None = None,
        options: Mapping[str, str | int | bool] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
        python: str = sys.executable,
        faults: bool | None = None,
    ) -> None:
        """Nothing starts yet.

        `port` None picks a free one; `options` are Kafka's broker options (`--set`), with
        `group.initial.rebalance.delay.ms` 0 by default; `arguments` go to `pyrklog serve`;
        `environment` replaces the inherited one; `wrapper` precedes the command and must exec it,
        for example `["prlimit", "--fsize=1000000"]`; `python` is the interpreter with pyrklog.
        `faults` opens a door for faults: clients' requests pass through Python. Without it the
        process is `pyrklog serve`, as in production.
        """
        super().__init__()
        self._temporary = tempfile.TemporaryDirectory(prefix="pyrklog-") if data is None else None
        self.data = Path(self._temporary.name if self._temporary else str(data))
        self.port = free_port() if port is None else port
        self.options = dict(options or {})
        self.has_faults = self.faults_by_default if faults is None else faults
        self.output = Output()
        self.log = self.output.lines
        self._arguments = list(arguments)
        self._environment = environment
        self._command = [*wrapper, python, "-m"]
        self._process: subprocess.Popen[str] | None = None
        self._started: Started | None = None
        self._door: DoorClient | None = None
        self._reader = TopicReader(lambda: self.bootstrap)

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return "127.0.0.1", self.port

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process

    # --- its process -----------------------------------------------------------------------------

    def _defaults(self) -> dict[str, str | int | bool]:
        """A first consumer does not wait for others, not even in a cluster. No cache stays in
        memory, and no port beside its own is taken."""
        kept: dict[str, str | int | bool] = {CACHE_KEEP: False, HTTP_LISTENER: "none"}
        if self.has_faults:
            kept |= dict.fromkeys(CHECKS, CHECK_INTERVAL_MS)
        return {REBALANCE_DELAY: 0, **kept} if "--zookeeper" in self._arguments else kept

    def _listeners(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self, timeout_s: float = 30.0) -> Self:
        """Starts the process and waits until it listens. Raises `BrokerExited` if it ends."""
        if self.running:
            raise RuntimeError("the broker runs already")
        self._close_door()
        door = DoorClient() if self.has_faults else None
        program = [] if door is None else ["pyrklog.testing.serve", str(door.descriptor)]
        command = [*self._command, *(program or ["pyrklog", "serve"])]
        command += ["--listen", self._listeners(), "--data", str(self.data)]
        options = {**self._defaults(), **self.options}
        command += [word for item in options.items() for word in ("--set", _setting(*item))]
        guard().add(self.data, is_temporary=self._temporary is not None)
        self._process = subprocess.Popen(
            command + self._arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=guard().environment(self._environment),
            pass_fds=() if door is None else (door.descriptor,),
        )
        if door is not None:
            door.handed_over()
        self._door = door
        assert self._process.stdout is not None
        started = self._started = self.output.follow(self._process.stdout)
        told = started.wait_ready(timeout_s)
        if started.is_ready:
            self.port = started.port
            self.clock.apply()
            return self
        what = "the broker ended before it listened" if told else f"not ready within {timeout_s} s"
        if not told:
            self.kill()
        code = self.wait()
        lines = "\n".join(started.lines)
        raise BrokerExited(f"{what}; exit code {code}\n{lines}")

    def kill(self) -> None:
        """As `kill -9`; `start` starts it on the same data and port."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, waits, returns the exit code. Kills a hanging broker and raises TimeoutError."""
        self._running().send_signal(signal.SIGTERM)
        try:
            return self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"the broker did not stop within {timeout_s} s") from None

    def restart(self) -> Self:
        """Kills a running broker and starts it on the same data and port."""
        self.kill()
        return self.start()

    def signal(self, number: int) -> None:
        """Sends a signal; SIGSTOP and SIGCONT pause and resume."""
        self._running().send_signal(number)

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the end; returns the exit code, negative for a signal."""
        code = self._running().wait(timeout_s)
        if self._started is not None:
            self._started.join()
        return code

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the broker is not running")

    def close(self) -> None:
        """Stops the broker, by force if needed; removes its own temporary directory, and its shared
        memory, unless it was killed on `data` that was given: acknowledged records may be there
        only. The next broker on that `data` has them."""
        self._reader.close()
        if self.running:
            try:
                self.stop()
            except TimeoutError:
                pass  # it is dead now; a test of stopping calls stop() itself
        self._close_door()
        has_ended_orderly = self._process is not None and self._process.returncode == 0
        if self._temporary is None and not has_ended_orderly:
            if self._process is not None:
                guard().left.add(self.data)
            return
        remove_arenas(self.data)
        if self._temporary is not None:
            self._temporary.cleanup()
        guard().drop(self.data)

    def _close_door(self) -> None:
        if self._door is not None:
            self._door.close()
            self._door = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncTestBroker:
        from pyrklog.testing.asynchronous import AsyncTestBroker

        return await AsyncTestBroker(self).__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        from pyrklog.testing.asynchronous import AsyncTestBroker

        await AsyncTestBroker(self).close()

    # --- topics ----------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        config: Mapping[str, str | int | bool] | None = None,
        timeout_s: float = 30.0,
    ) -> Topic:
        """Creates a topic, by default of a name that no other one has. Raises `ApiError`."""
        from pyrklog.testing import admin

        topic = name if name is not None else f"topic-{_run}-{next(_topic_numbers)}"
        admin.create_topic(
            self.address, topic, partitions=partitions, config=config, timeout_s=timeout_s
        )
        return Topic.of(self, topic)

    def delete_topic(self, name: str, *, timeout_s: float = 30.0) -> None:
        """Also one that is gone. Raises `ApiError`."""
        from pyrklog.testing import admin

        admin.delete_topic(self.address, name, timeout_s=timeout_s)

    def records(self, topic: str, *, timeout_s: float = 30.0) -> list[Record]:
        """What is in a topic now, without open and aborted transactions, by partition and offset.
        No fault meets this. Raises `LookupError` for an unknown topic, TimeoutError."""
        return self._reader.read_all(topic, timeout_s=timeout_s)

    def tail(self, topic: str, last: int, *, timeout_s: float = 30.0) -> list[Record]:
        """The records of the `last` offsets of each partition; see `records`."""
        return self._reader.read_all(topic, timeout_s=timeout_s, last=last)

    def wait_for(self, topic: str, count: int, *, timeout_s: float = 10.0) -> list[Record]:
        """Waits until a topic has so many records, or more; returns them as `records` does. Raises
        TimeoutError, which tells how many there are."""
        return self._reader.read_until(topic, count, timeout_s=timeout_s)

    # --- its log ---------------------------------------------------------------------------------

    def events(self, since: int = 0) -> list[dict[str, Any]]:
        """The log as far as it is kept, one dict a line, with `event`, `level`, `timestamp`;
        `since` is an earlier `output.count`."""
        return events(self.output.since(since))

    def note(self, text: str) -> None:
        """Writes a line into the broker's log, and waits until all up to it is in `log`."""
        number = self.output.next_note()
        self._ask("note", text=text, note=number)
        assert self._started is not None
        self.output.wait_for_note(number, self._started)

    @property
    def _is_open(self) -> bool:
        return self.running and self._door is not None

    def _ask(self, do: str, **fields: object) -> Any:
        if not self.has_faults:
            raise RuntimeError("this broker has no door for faults: TestBroker(faults=True)")
        if self._door is None or not self.running:
            raise RuntimeError("the broker is not running")
        return self._door.ask(do, **fields)


def _setting(name: str, value: str | int | bool) -> str:
    from pyrklog.testing.admin import setting

    return f"{name}={setting(value)}"
