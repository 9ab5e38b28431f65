"""History time: nobody sets it, and it counts while the machine is suspended."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyrklog.base.clock_reading import now_ms


def since_boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class SteadyClock:
    """Begins with the wall clock; from then on only ``steady_ms`` moves it."""

    def __init__(
        self, wall_ms: Callable[[], int] = now_ms, steady_ms: Callable[[], int] = since_boot_ms
    ) -> None:
        self.wall_ms = wall_ms
        self._steady_ms = steady_ms
        self._shift_ms = wall_ms() - steady_ms()

    def now_ms(self) -> int:
        return self._steady_ms() + self._shift_ms
