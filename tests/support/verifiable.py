"""Apache Kafka's verifiable clients: processes that report in JSON."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support import jvm
from tests.support.waiting import PATIENCE_S, wait_until


class Verifiable:
    def __init__(self, main: str, *arguments: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            jvm.command(f"org.apache.kafka.tools.{main}", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, Any]]:
        return [event for event in list(self.events) if event["name"] == name]

    def wait(self, name: str, count: int = 1) -> None:
        wait_until(lambda: len(self.named(name)) >= count, f"{len(self.named(name))} {name}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def verifiable(main: str, *arguments: str) -> Iterator[Verifiable]:
    client = Verifiable(main, *arguments)
    try:
        yield client
    finally:
        client.end()
