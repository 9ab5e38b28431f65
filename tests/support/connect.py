"""A worker of Kafka Connect in distributed mode, and files whose lines it carries."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyrklog.testing.broker import free_port
from tests.support import jvm
from tests.support.java_program import JavaProgram
from tests.support.waiting import PATIENCE_S, wait_until

_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_PAUSE_S = 0.005


class Worker:
    """The only worker of its group. Its three topics begin with ``name``.

    It sends what its sources read exactly once, and reads what is committed.
    """

    def __init__(self, bootstrap: str, name: str, folder: Path) -> None:
        self.configs, self.offsets, self.status = (
            f"{name}-{what}" for what in ("configs", "offsets", "status")
        )
        self._folder = folder
        self._port = free_port()
        self._starts = 0
        self._program: JavaProgram | None = None
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "listeners": f"http://127.0.0.1:{self._port}",
            "config.storage.topic": self.configs,
            "config.storage.replication.factor": "1",
            "offset.storage.topic": self.offsets,
            "offset.storage.replication.factor": "1",
            "status.storage.topic": self.status,
            "status.storage.replication.factor": "1",
            # So small that it is compacted while lines flow.
            "offset.storage.partitions": "1",
            "offset.storage.segment.bytes": "500",
            "offset.storage.min.cleanable.dirty.ratio": "0.01",
            "offset.storage.delete.retention.ms": "100",
            "exactly.once.source.support": "enabled",
            "consumer.isolation.level": "read_committed",
            "key.converter": _STRINGS,
            "value.converter": _STRINGS,
            "offset.flush.interval.ms": "500",
            # A killed worker is missed soon, and so are its sinks' consumers.
            **{
                f"{whose}{name}": value
                for whose in ("", "consumer.")
                for name, value in (
                    ("session.timeout.ms", "2000"),
                    ("heartbeat.interval.ms", "500"),
                )
            },
            # A new worker reads its topics to their ends, behind what a killed one has left open.
            "transaction.timeout.ms": "3000",
            "producer.transaction.timeout.ms": "3000",
            # Without a search of all jars for plugins.
            "plugin.discovery": "service_load",
        }
        self._properties = folder / "worker.properties"
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def start(self) -> None:
        self._starts += 1
        self._program = JavaProgram(
            self._folder,
            f"connect{self._starts}",
            _MAIN,
            str(self._properties),
            jars=jvm.CONNECT_JARS,
        )

    @property
    def program(self) -> JavaProgram:
        assert self._program is not None
        return self._program

    def kill(self) -> None:
        """As kill -9."""
        self.program.kill()

    def configure(self, connector: str, options: Mapping[str, str]) -> None:
        """Makes the connector, and waits until it and its task run."""
        self._ask("PUT", f"/connectors/{connector}/config", options)
        self.wait_for_state(connector, "RUNNING")

    def connectors(self) -> set[str]:
        return set(self._ask("GET", "/connectors"))

    def position(self, source: str) -> int:
        """Bytes of its file that are written to its topic; 0 before the first."""
        offsets = self._ask("GET", f"/connectors/{source}/offsets")["offsets"]
        return int(offsets[0]["offset"]["position"]) if offsets else 0

    def pause(self, connector: str) -> None:
        self._ask("PUT", f"/connectors/{connector}/pause")
        self.wait_for_state(connector, "PAUSED")

    def resume(self, connector: str) -> None:
        self._ask("PUT", f"/connectors/{connector}/resume")
        self.wait_for_state(connector, "RUNNING")

    def wait_for_state(self, connector: str, state: str) -> None:
        """Of the connector and of its task."""
        seen: Any = None

        def has_it() -> bool:
            nonlocal seen
            seen = self._ask("GET", f"/connectors/{connector}/status")
            return [one["state"] for one in (seen["connector"], *seen["tasks"])] == [state] * 2

        wait_until(has_it, lambda: f"{seen}: {self.program.told()}", 2 * PATIENCE_S)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """Asks until the worker is up and its group is not about to change."""
        status, content = 0, ""

        def is_answered() -> bool:
            nonlocal status, content
            self.program.check()
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
            try:
                sent = None if body is None else json.dumps(body)
                connection.request(method, path, sent, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                status, content = answer.status, answer.read().decode()
            except OSError as error:
                status, content = 0, str(error)
            finally:
                connection.close()
            return 200 <= status < 300

        def unanswered() -> str:
            return f"{path}: {status} {content}: {self.program.told()}"

        wait_until(is_answered, unanswered, 2 * PATIENCE_S)
        return json.loads(content) if content else None


class GrowingFile:
    """A thread that appends lines to a file until it is stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self.path.open("w", buffering=1) as file:
            while not self._stopped.wait(_PAUSE_S):
                self.lines.append(f"line {len(self.lines)}")
                file.write(f"{self.lines[-1]}\n")

    def stop(self) -> None:
        """All lines are in the file then."""
        self._stopped.set()
        self._thread.join()


@contextmanager
def working(worker: Worker, path: Path) -> Iterator[GrowingFile]:
    """The worker, and lines that come into a file, until the block ends."""
    worker.start()
    file = GrowingFile(path)
    try:
        yield file
    finally:
        worker.kill()
        file.stop()
