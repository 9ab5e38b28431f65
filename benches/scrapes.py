"""Scrapes a broker as Prometheus does: over a kept connection, at fixed times."""

import http.client
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benches import process
from benches.brokers import BenchError, Broker

_INTERVAL_S = 1.0
_TIMEOUT_S = 30.0
# Answers within 0.1 s share what they cost, and after each one HTTP rests.
_APART_S = 0.25
_HEADERS = {"Accept": "application/openmetrics-text;version=1.0.0", "Accept-Encoding": "gzip"}


class Connection:
    """Raises BenchError for any answer but 200."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)

    def ask(self, path: str) -> bytes:
        try:
            self._connection.request("GET", path, headers=_HEADERS)
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise BenchError(f"{path} was not answered: {error!r}") from error
        if answer.status != 200:
            raise BenchError(f"{path} was answered with {answer.status}: {body[:200]!r}")
        return body

    def close(self) -> None:
        self._connection.close()


def detail_paths(topic: str, groups: Sequence[str]) -> Iterator[str]:
    """``/metrics/detail`` of the topic and of each group, in turn, without an end."""
    queries = [f"topic={topic}", *(f"group={group}" for group in groups)]
    return itertools.cycle(f"/metrics/detail?{query}" for query in queries)


class Scraper(threading.Thread):
    """Asks each second for ``/metrics`` and for one of ``details``, until the ``with`` block ends,
    which raises BenchError if an answer failed."""

    def __init__(self, port: int, details: Iterator[str]) -> None:
        super().__init__(daemon=True)
        self.answers = 0
        self.longest_s = 0.0
        self._port = port
        self._details = details
        self._ended = threading.Event()
        self._failure: BenchError | None = None

    def run(self) -> None:
        connection = Connection(self._port)
        began = time.monotonic()
        try:
            for number in itertools.count():
                if self._ended.wait(max(0.0, began + number * _INTERVAL_S - time.monotonic())):
                    return
                for path in ("/metrics", next(self._details)):
                    asked = time.monotonic()
                    connection.ask(path)
                    self.answers += 1
                    self.longest_s = max(self.longest_s, time.monotonic() - asked)
        except BenchError as error:
            self._failure = error
        finally:
            connection.close()

    def __enter__(self) -> "Scraper":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended.set()
        self.join()
        if kind is None and self._failure is not None:
            raise self._failure


@dataclass(frozen=True)
class Stretch:
    cpu_s: float
    seconds: float


def each_ms(rest: Sequence[Stretch], scraped: Sequence[Stretch], count: int) -> list[float]:
    """CPU of one answer in ms, for each stretch with ``count`` of them: beyond what the broker
    takes for as long at rest."""
    at_rest = sum(one.cpu_s for one in rest) / sum(one.seconds for one in rest)
    return [1e3 * (one.cpu_s - at_rest * one.seconds) / count for one in scraped]


def cost_ms(broker: Broker, port: int, paths: Iterator[str], count: int) -> list[float]:
    """CPU of one answer to ``paths``, in ms: two stretches, before and after which the broker
    rests for about as long."""
    connection = Connection(port)
    connection.ask(next(paths))  # loads what the first answer needs

    def stretch(asks: bool) -> Stretch:
        before = process.usage(broker.pid).cpu_s
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number * _APART_S - time.monotonic()))
            if asks:
                connection.ask(next(paths))
        time.sleep(max(0.0, began + count * _APART_S - time.monotonic()))
        cpu_s = process.usage(broker.pid).cpu_s - before
        return Stretch(cpu_s, time.monotonic() - began)

    try:
        first, *scraped, last = [stretch(asks) for asks in (False, True, True, False)]
    finally:
        connection.close()
    return each_ms((first, last), scraped, count)
