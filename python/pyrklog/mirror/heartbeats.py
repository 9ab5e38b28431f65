"""Heartbeats as MirrorMaker 2 writes them (KIP-382, ``Heartbeat``): big endian; strings have their
length in two bytes before them. Heartbeats at a target show that the mirror runs; copies of them
further on show from which clusters another one is reached.

Key: aliases of the source and of the target. Value: version (INT16, 0), time in ms (INT64).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from pyrklog.mirror.checkpoints import kafka_string
from pyrklog.mirror.names import HEARTBEATS, Names
from pyrklog.mirror.state import Row

VERSION = 0


def heartbeat(names: Names, now_ms: int) -> Row:
    key = kafka_string(names.source) + kafka_string(names.target)
    return Row(HEARTBEATS, key, struct.pack(">hq", VERSION, now_ms))


class Heartbeats:
    """Of one mirror; one each so many seconds."""

    def __init__(
        self, names: Names, interval_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._names = names
        self._interval_s = interval_s
        self._clock = clock
        self._due_at = clock()

    def due(self) -> list[Row]:
        """What is to be written now."""
        now = self._clock()
        if now < self._due_at:
            return []
        self._due_at = now + self._interval_s
        return [heartbeat(self._names, time.time_ns() // 1_000_000)]
