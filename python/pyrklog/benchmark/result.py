"""What a load measured, as its engine prints it: a line of JSON.

========================  ==================================================================
field                     meaning
========================  ==================================================================
``records``, ``bytes``    measured; bytes of record batches (native), or of keys and values
``seconds``               from the start of measuring to the last answer
``latency_ms``            ``p50``, ``p95``, ``p99``, ``p99.9``, ``max``: of a producer's request
                          (native) or record (others) from when it was due, of a consumer's fetch
                          (native), of latency's record until a consumer has it; absent where the
                          engine does not tell
``client_cpu_s``          processor time of the engine meanwhile; None where it does not tell
``errors``                how often each error code came
``lost``                  acknowledged records that latency's consumer did not get
========================  ==================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PERCENTILES = ("p50", "p95", "p99", "p99.9", "max")
_GB = 1e9
_MB = 1e6


class LoadError(Exception):
    """An engine could not run its load; the text is for users."""


@dataclass(frozen=True)
class Progress:
    """How far a load is."""

    seconds: float
    records: int
    bytes: int


@dataclass(frozen=True)
class Result:
    records: int
    bytes: int
    seconds: float
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    client_cpu_s: float | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0

    @property
    def is_clean(self) -> bool:
        return not self.errors and not self.lost

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def mb_per_s(self) -> float:
        """Millions of bytes."""
        return self.bytes / _MB / self.seconds if self.seconds > 0 else 0.0

    @property
    def client_cpu_s_per_gb(self) -> float | None:
        if self.client_cpu_s is None or not self.bytes:
            return None
        return self.client_cpu_s / (self.bytes / _GB)

    def line(self) -> str:
        """For :func:`parse`."""
        return json.dumps(
            {
                "records": self.records,
                "bytes": self.bytes,
                "seconds": self.seconds,
                "latency_ms": dict(self.latency_ms),
                "client_cpu_s": self.client_cpu_s,
                "errors": dict(self.errors),
                "lost": self.lost,
            }
        )


def parse(line: str) -> Result:
    """Raises :class:`LoadError` for what is no result."""
    try:
        found: dict[str, Any] = json.loads(line)
        return Result(**{name: found[name] for name in Result.__dataclass_fields__})
    except (ValueError, TypeError, KeyError) as error:
        raise LoadError(f"the engine printed no result: {line.strip()!r} ({error})") from None


def parse_progress(line: str) -> Progress | None:
    """None for a line of another kind."""
    try:
        found = json.loads(line)
        return Progress(float(found["seconds"]), int(found["records"]), int(found["bytes"]))
    except (ValueError, TypeError, KeyError):
        return None
