"""Producers at a fixed rate that follow leaders: ``python -m benches.expansion_load``.

A process of its own with librdkafka, since the generator in Rust opens its connections once, and
tells percentiles of a whole run only. Each record is a request, of the size of a batch. It is due
at a fixed time, and its latency counts from then until the client has its acknowledgement, retries
included.
"""

import array
import gc
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from benches.brokers import ROOT, BenchError

_FIELDS = 3
"""Of a request in the file: when it was due, its latency (negative: it failed), how late it was
handed to the client; seconds, doubles."""
_POLL_S = 0.0005
_ENDING_S = 60.0
_QUEUED_MAX_KB = 2_000_000
_AT_ONCE = 64


@dataclass(frozen=True)
class Request:
    """``due_s`` by CLOCK_MONOTONIC."""

    due_s: float
    latency_s: float
    late_s: float


class Producer:
    """The running process. Leaving the ``with`` block ends it."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, per_s: float, size: int, file: Path
    ) -> None:
        words = [bootstrap, topic, str(partitions), str(per_s), str(size), str(file)]
        self._file = file
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benches.expansion_load", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """BenchError if it has ended by itself."""
        if self._process.poll() is not None:
            raise BenchError(f"the producers ended with {self._process.returncode}")

    def finish(self) -> list[Request]:
        """Ends it, and returns every request. BenchError if some failed."""
        output, _ = self._process.communicate()
        if not output.strip():
            raise BenchError("the producers told nothing")
        errors = json.loads(output)["errors"]
        if errors:
            raise BenchError(f"producers' records failed: {errors}")
        return read(self._file)


def read(path: Path) -> list[Request]:
    """Requests in the order of their answers."""
    values = array.array("d")
    with path.open("rb") as file:
        values.frombytes(file.read())
    return [Request(*values[place : place + _FIELDS]) for place in range(0, len(values), _FIELDS)]


class _Run:
    def __init__(self, words: list[str]) -> None:
        from confluent_kafka import Producer as Client

        bootstrap, self._topic, partitions, per_s, size, self._path = words
        self._partitions, self._per_s = int(partitions), float(per_s)
        self._value = random.Random(0).randbytes(int(size))
        self._answered = array.array("d")
        self._errors: dict[str, int] = {}
        self._client = Client(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "expansion-load",
                "acks": "all",
                "linger.ms": 0,
                "queue.buffering.max.kbytes": _QUEUED_MAX_KB,
            }
        )

    def run(self, is_stopped: Callable[[], bool]) -> None:
        gc.disable()  # a collection would be measured as a broker's delay
        start, sent, written = time.monotonic() + 0.1, 0, time.monotonic()
        with Path(self._path).open("wb") as file:
            while not is_stopped():
                now = time.monotonic()
                for _ in range(_AT_ONCE):
                    due = start + sent / self._per_s
                    if due > now:
                        break
                    self._send(sent % self._partitions, due, now)
                    sent += 1
                self._client.poll(min(_POLL_S, max(0.0, start + sent / self._per_s - now)))
                if now - written > 1.0:
                    written = now
                    self._write(file)
            left = self._client.flush(_ENDING_S)
            if left:
                self._errors["not answered"] = left
            self._write(file)
        print(json.dumps({"sent": sent, "errors": self._errors}), flush=True)

    def _send(self, partition: int, due: float, now: float) -> None:
        def answered(error: Any, _: Any) -> None:
            if error is not None:
                name = str(error.name())
                self._errors[name] = self._errors.get(name, 0) + 1
            latency = -1.0 if error is not None else time.monotonic() - due
            self._answered.extend((due, latency, now - due))

        self._client.produce(self._topic, self._value, partition=partition, on_delivery=answered)

    def _write(self, file: BinaryIO) -> None:
        self._answered.tofile(file)
        file.flush()
        del self._answered[:]


def main() -> None:
    stopped = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stopped.set()

    threading.Thread(target=watch, daemon=True).start()
    _Run(sys.argv[1:]).run(stopped.is_set)


if __name__ == "__main__":
    main()
