import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

HTTP_LISTENER = "pyrklog.http.listener"
REBALANCE_DELAY = "group.initial.rebalance.delay.ms"
CACHE_KEEP = "pyrklog.cache.keep"
_LOG_LINES_MAX = 5_000
# Below Linux's range of local ports: a client that retries a dead broker's port could otherwise
# connect to itself and hold the port. Each worker of pytest-xdist has its own ports. Those that
# `pyrklog dev` chooses are left to it: 450 of each thousand.
_PORTS = frozenset(
    port
    for port in range(
        12_000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")),
        32_000,
        int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
    )
    if port < 19_092 or (port - 19_092) % 1000 >= 450
)
_handed_out: set[int] = set()


class BrokerExited(Exception):
    """The broker ended before it listened; the message has its exit code and output."""


class TestBroker:
    """`pyrklog serve` on the loopback interface, with the same data and port across restarts.

    Attributes: `bootstrap` is `"127.0.0.1:PORT"`; `data` the data directory; `log` the output lines
    of all starts (the last 5,000). As a context manager it starts on entry, stops on exit, and then
    removes `data`, unless it was given.
    """

    __test__ = False

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
    ) -> None:
        """Nothing starts yet.

        `port` None picks a free one; `options` are Kafka's broker options (`--set`), with
        `group.initial.rebalance.delay.ms` 0 by default; `arguments` go to `pyrklog serve`;
        `environment` replaces the inherited one; `wrapper` precedes the command and must exec it,
        for example `["prlimit", "--fsize=1000000"]`; `python` is the interpreter with pyrklog.
        """
        self._temporary = tempfile.TemporaryDirectory(prefix="pyrklog-") if data is None else None
        self.data = Path(self._temporary.name if self._temporary else str(data))
        self.port = free_port() if port is None else port
        self.options = dict(options or {})
        self.log: deque[str] = deque(maxlen=_LOG_LINES_MAX)
        self._arguments = list(arguments)
        self._environment = environment
        self._command = [*wrapper, python, "-m", "pyrklog", "serve"]
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._told = threading.Condition()

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _defaults(self) -> dict[str, str | int | bool]:
        """A first consumer does not wait for others, not even in a cluster. No cache stays in
        memory, and no port beside its own is taken."""
        kept: dict[str, str | int | bool] = {CACHE_KEEP: False, HTTP_LISTENER: "none"}
        return {REBALANCE_DELAY: 0, **kept} if "--zookeeper" in self._arguments else kept

    def start(self, timeout_s: float = 30.0) -> Self:
        """Starts the process and waits until it listens. Raises `BrokerExited` if it ends."""
        if self.running:
            raise RuntimeError("the broker runs already")
        command = [*self._command, "--listen", f"127.0.0.1:{self.port}", "--data", str(self.data)]
        options = {**self._defaults(), **self.options}
        command += [word for item in options.items() for word in ("--set", _setting(*item))]
        self._process = subprocess.Popen(
            command + self._arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self._environment,
        )
        assert self._process.stdout is not None
        start = _Start()
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout, start), daemon=True
        )
        self._reader.start()
        with self._told:
            told = self._told.wait_for(lambda: start.is_ready or start.ended, timeout_s)
        if start.is_ready:
            self.port = start.port
            return self
        if not told:
            self.kill()
        code = self.wait()
        output = "\n".join(start.lines)
        raise BrokerExited(f"not listening within {timeout_s} s; exit code {code}\n{output}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.wait()

    def stop(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, waits, returns the exit code. Kills a hanging broker and raises TimeoutError."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        self._process.send_signal(signal.SIGTERM)
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
        if self._process is None:
            raise RuntimeError("the broker is not running")
        self._process.send_signal(number)

    def wait(self, timeout_s: float | None = None) -> int:
        """Waits for the end; returns the exit code, negative for a signal."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        code = self._process.wait(timeout_s)
        if self._reader is not None:
            self._reader.join()
        return code

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the broker is not running")

    def close(self) -> None:
        """Stops the broker, by force if needed; removes its own temporary directory and its shared
        memory."""
        if self.running:
            try:
                self.stop()
            except TimeoutError:
                pass  # it is dead now; a test of stopping calls stop() itself
        self._remove_arenas()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _remove_arenas(self) -> None:
        """A killed broker leaves its block cache in shared memory and its reserve on the disk."""
        for reserve in self.data.glob("**/.pyrklog-reserve"):
            reserve.unlink(missing_ok=True)
        for marker in self.data.glob("**/.pyrklog-arena"):
            for line in marker.read_text().splitlines():
                if line.startswith("path="):
                    Path(line.removeprefix("path=")).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self, output: IO[str], start: "_Start") -> None:
        """Drains the output, so that the process never blocks, and notes when it is ready."""
        with output:
            for line in output:
                self.log.append(line.rstrip("\n"))
                start.lines.append(line.rstrip("\n"))
                start.port = start.port or _listening_port(line)
                # A broker of a cluster listens before it knows the cluster.
                if '"event": "ready"' in line:
                    with self._told:
                        start.is_ready = True
                        self._told.notify_all()
        with self._told:
            start.ended = True
            self._told.notify_all()


class _Start:
    def __init__(self) -> None:
        self.port = 0
        self.is_ready = False
        self.ended = False
        self.lines: deque[str] = deque(maxlen=_LOG_LINES_MAX)


def free_port() -> int:
    """A free TCP port of the loopback interface; each is given out once."""
    for port in random.sample(sorted(_PORTS - _handed_out), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise OSError("no free port found on 127.0.0.1")


def _setting(name: str, value: str | int | bool) -> str:
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"


def _listening_port(line: str) -> int:
    """The port in a line of the event "listening", else 0."""
    if '"listening"' not in line:
        return 0
    try:
        fields = json.loads(line)
    except ValueError:
        return 0
    return int(fields["port"]) if fields.get("event") == "listening" else 0
