"""Records at a rate, of ``--rate``."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError

RATE_MIN, RATE_MAX = 0.1, 1_000_000.0
"""Records a second."""

T = TypeVar("T")


class Pace:
    """At most ``rate`` records a second; None: no limit. Nothing is made up for after a pause."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    @property
    def batch(self) -> int | None:
        """Records of about a second."""
        return None if self._rate is None else max(1, int(self._rate))

    def wait(self) -> None:
        if self._rate is None:
            return
        now = self._clock()
        if self._due > now:
            self._sleep(self._due - now)
        self._due = max(self._due, now) + 1 / self._rate

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """The items, each when it is due."""
        for item in items:
            self.wait()
            yield item


def parse_rate(rate: float | None) -> float | None:
    """Raises :class:`CliError` for a rate that makes no sense, such as NaN."""
    if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
        what = f"--rate takes {RATE_MIN:g} to {RATE_MAX:g} records a second, not {rate:g}"
        raise CliError(Problem.ARGUMENT_VALUE, what)
    return rate
