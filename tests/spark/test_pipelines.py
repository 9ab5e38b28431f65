"""The pipelines on real input: killed in the middle, all at once, then run to their ends; each
result is beside the same computed plainly."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from pyrklog.spark.pipelines import (
    __main__,
    duplicates,
    groups,
    hours,
    joins,
    silences,
    windows,
)
from pyrklog.spark.pipelines.run import Run
from pyrklog.testing import TestBroker
from tests.support import flights_input
from tests.support.flights_input import MARKER, PARTITIONS, seconds, utc
from tests.support.sinking import values, visible, wait_for_values
from tests.support.spark_drivers import run_and_kill
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.spark, pytest.mark.timeout(500)]

STREAM_S = 100
QUERIES = (*flights_input.OUTPUTS, "dashboard", "files", "mirror")
REST_S = 330 * 60


@dataclass(frozen=True)
class Killed:
    """What a driver left that ran all pipelines."""

    bootstrap: str
    mirror: str
    folder: Path
    planes: dict[str, dict[str, Any]]
    """What the table has."""

    def commits(self, name: str) -> int:
        return len(list((self.folder / "checkpoints" / name / "commits").glob("[0-9]*")))

    def run(self, spark: Any) -> Run:
        return Run(spark, self.bootstrap, self.folder)

    def finish(self, queries: list[Any]) -> None:
        """All that is left, of queries that have done something, but not all."""
        for query in queries:
            assert query.awaitTermination(STREAM_S)
            read = [progress.numInputRows for progress in query.recentProgress]
            assert sum(read) > 100, query.name
            assert query.recentProgress[0].batchId > 0, query.name

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """What a reader of committed records finds."""
        return [json.loads(value) for value in values(self.bootstrap, topic).elements()]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    folder = tmp_path_factory.mktemp("pipelines")
    given = flights_input.read()
    with TestBroker() as broker, TestBroker() as mirror:
        inputs = ("flights", "weather", "flights-twice")
        flights_input.create_topics(broker.bootstrap, (*inputs, *flights_input.OUTPUTS))
        flights_input.create_topics(mirror.bootstrap, ["flights"])
        planes = flights_input.create_planes(broker.bootstrap, given)
        flights_input.produce(broker.bootstrap, "flights", given.flights, "tailnum")
        flights_input.produce(broker.bootstrap, "weather", given.weather, "origin")
        again = flights_input.twice(given.flights)
        flights_input.produce(broker.bootstrap, "flights-twice", again, "tailnum")
        made = Killed(broker.bootstrap, mirror.bootstrap, folder, planes)
        run_until_killed(made)
        for topic, origin in (("flights", "~"), ("weather", "~~"), ("flights-twice", "~")):
            flights_input.produce(broker.bootstrap, topic, [MARKER | {"origin": origin}], "tailnum")
        yield made


def run_until_killed(made: Killed) -> None:
    run_and_kill(
        "tests.support.pipelines_driver",
        [made.bootstrap, made.mirror, str(made.folder)],
        made.folder / "driver.log",
        lambda: all(made.commits(name) >= 1 for name in QUERIES),
        wait_s=300,
    )


def test_windows_and_sessions(spark: Any, killed: Killed) -> None:
    killed.finish(windows.start(killed.run(spark)))
    flights = flights_input.read().flights
    count: Counter[tuple[str, str]] = Counter((row["carrier"], row["time"]) for row in flights)
    delay: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row in flights:
        if "dep_delay" in row:
            delay[row["carrier"], row["time"]].append(row["dep_delay"])
    expected = Counter(
        (*pair, number, sum(delay[pair]) if pair in delay else None)
        for pair, number in count.items()
    )
    found = Counter(
        (row["carrier"], utc(row["hour"]), row["flights"], row.get("delay"))
        for row in killed.rows("flights-by-hour")
    )
    assert found == expected
    days = Counter(
        (row["tailnum"], seconds(row["first"]), seconds(row["last"]), row["flights"])
        for row in killed.rows("plane-days")
    )
    assert days == Counter(
        (plane, day[0], day[-1], len(day))
        for plane, times in starts_of_planes().items()
        for day in working_days(times)
    )


def starts_of_planes() -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in flights_input.read().flights:
        if "tailnum" in row:
            found[row["tailnum"]].append(seconds(row["time"]))
    return found


def working_days(times: list[int]) -> list[list[int]]:
    days = [times[:1]]
    for before, after in pairwise(times):
        if after - before > REST_S:
            days.append([])
        days[-1].append(after)
    return days


def test_joins(spark: Any, killed: Killed) -> None:
    killed.finish(joins.start(killed.run(spark)))
    given = flights_input.read()
    weather = {(row["origin"], row["time"]): row for row in given.weather}
    assert any((row["origin"], row["time"]) not in weather for row in given.flights)
    expected = Counter(
        (row["id"], hour.get("temp"), hour.get("visib"))
        for row in given.flights
        for hour in [weather.get((row["origin"], row["time"]), {})]
    )
    found = killed.rows("flights-with-weather")
    assert Counter((row["id"], row.get("temp"), row.get("visib")) for row in found) == expected
    marker, planes = [MARKER], killed.planes
    assert Counter(
        (row["id"], row.get("manufacturer"), row.get("seats"))
        for row in killed.rows("flights-with-planes")
    ) == Counter(
        (row["id"], plane.get("manufacturer"), plane.get("seats"))
        for row in given.flights + marker
        for plane in [planes.get(row.get("tailnum", ""), {})]
    )


def test_timers(spark: Any, killed: Killed) -> None:
    killed.finish(silences.start(killed.run(spark)))
    expected = Counter(
        (plane, before)
        for plane, times in starts_of_planes().items()
        for before, after in pairwise([*times, seconds(MARKER["time"])])
        if after - before > silences.SILENT_S
    )
    found = Counter((row["tailnum"], row["last_s"]) for row in killed.rows("silent-planes"))
    assert expected.total() > len(starts_of_planes()), "no plane came back"
    assert found == expected


def test_duplicates(spark: Any, killed: Killed) -> None:
    sent = values(killed.bootstrap, "flights-twice")
    assert max(sent.values()) == 2
    killed.finish(duplicates.start(killed.run(spark)))
    wait_for_values(killed.bootstrap, "flights-once", Counter(set(sent)))


def test_one_topic_and_three_groups(spark: Any, killed: Killed) -> None:
    killed.finish(groups.start(killed.run(spark), killed.mirror))
    sent = [*flights_input.read().flights, MARKER]
    shown = json.loads((killed.folder / "dashboard.json").read_text())["carriers"]
    carriers = Counter(row["carrier"] for row in sent)
    assert {row["carrier"]: row["flights"] for row in shown} == carriers
    assert in_files(spark, killed.folder / "flights-by-hour") == expected_files(sent)
    columns = ["key", "value", "timestamp", "partition"]
    there, here = (visible(at, "flights", columns) for at in (killed.mirror, killed.bootstrap))
    assert [[row[name] for name in columns] for row in there] == [
        [row[name] for name in columns] for row in here
    ]
    ends = Counter(row["partition"] for row in here)
    for group in ("flights-dashboard", "flights-offline", "flights-mirror"):
        wait_until(
            lambda group=group: committed(killed.bootstrap, group) == ends,  # type: ignore[misc]
            f"{group} is not at the ends {ends}",
        )


def in_files(spark: Any, folder: Path) -> Counter[tuple[Any, ...]]:
    rows = hours.read(spark, folder).selectExpr("id", "hour", "CAST(time AS LONG)", "carrier")
    return Counter(tuple(row) for row in rows.collect())


def expected_files(sent: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (row["id"], row["time"][:13], seconds(row["time"]), row["carrier"]) for row in sent
    )


def committed(bootstrap: str, group: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition("flights", number) for number in range(PARTITIONS)]
        return {one.partition: one.offset for one in consumer.committed(places, 30)}
    finally:
        consumer.close()


def test_the_command_line(
    spark: Any, killed: Killed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches whose borders are within hours: these hours are compacted."""
    monkeypatch.setattr(hours, "FILES_MOST", 1)
    folder = tmp_path / "new" / "flights-by-hour"
    __main__.main(["files", killed.bootstrap, str(folder.parent), "--records", "3000"])
    sent = [*flights_input.read().flights, MARKER]
    assert in_files(spark, folder) == expected_files(sent)
    names = [path.name for path in hours.folders(folder)]
    assert "batches=0-1" in names
    assert "batches=0-0" in names


def test_the_command_line_wants_a_mirror(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        __main__.main(["groups", "127.0.0.1:1", "folder"])
    assert "needs --mirror" in capsys.readouterr().err
