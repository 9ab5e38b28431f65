"""The same statistics without Spark and without a broker, to check the result."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from demo.flights import Flight

# (carrier, hour as in Flight.time_hour)
Key = tuple[str, str]
LATE_FROM_MINUTES = 15


@dataclass(frozen=True, slots=True)
class Delays:
    """Departures of one carrier in one hour. ``delay_sum`` and ``delay_max`` are minutes, over
    those that left; ``late`` counts those 15 minutes or more behind schedule."""

    flights: int
    departed: int
    late: int
    delay_sum: int
    delay_max: int | None

    @property
    def delay_mean(self) -> float | None:
        """Minutes; None when nothing left."""
        return self.delay_sum / self.departed if self.departed else None


def combine(parts: Iterable[Delays]) -> Delays:
    """Merges several groups into one."""
    parts = list(parts)
    return Delays(
        sum(part.flights for part in parts),
        sum(part.departed for part in parts),
        sum(part.late for part in parts),
        sum(part.delay_sum for part in parts),
        max((part.delay_max for part in parts if part.delay_max is not None), default=None),
    )


def compute(flights: Iterable[Flight]) -> dict[Key, Delays]:
    """By carrier and hour."""
    groups: dict[Key, list[int | None]] = {}
    for flight in flights:
        groups.setdefault((flight.carrier, flight.time_hour), []).append(flight.dep_delay)
    return {key: _of(delays) for key, delays in groups.items()}


def _of(delays: list[int | None]) -> Delays:
    known = [delay for delay in delays if delay is not None]
    late = sum(delay >= LATE_FROM_MINUTES for delay in known)
    return Delays(len(delays), len(known), late, sum(known), max(known, default=None))


def parse(value: bytes) -> tuple[Key, Delays]:
    """Parses a record value of the result topic (Spark's to_json leaves out nulls)."""
    fields = json.loads(value)
    delays = Delays(
        fields["flights"],
        fields["departed"],
        fields["late"],
        fields["delay_sum"],
        fields.get("delay_max"),
    )
    return (fields["carrier"], fields["hour"]), delays


def differences(expected: Mapping[Key, Delays], found: Iterable[tuple[Key, Delays]]) -> list[str]:
    """What is missing, wrong, surplus or double in ``found``; empty if it equals ``expected``."""
    out = []
    seen: set[Key] = set()
    for key, delays in found:
        if key in seen:
            out.append(f"{key} is there twice")
        elif key not in expected:
            out.append(f"{key} should not be there: {delays}")
        elif delays != expected[key]:
            out.append(f"{key} is {delays}, should be {expected[key]}")
        seen.add(key)
    out += [f"{key} is missing" for key in expected if key not in seen]
    return out
