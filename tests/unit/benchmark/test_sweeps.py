"""Sweeps: what is run, in which order, and what is left after a stop."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli.bench_files import append
from pyrklog.cli.bench_sweep import Point, Sweep, parse_variable, points, ratios, summary
from pyrklog.cli.failures import CliError, Exit

BROKERS = ["a:1", "b:2"]


def row(speed: float) -> dict[str, Any]:
    return {"records_per_s": round(speed * 1e4), "mb_per_s": speed, "p99": None}


def test_values_are_listed_or_counted() -> None:
    assert parse_variable("size=10,100,10") == ("size", [10, 100])
    assert parse_variable("partitions=1..3,9") == ("partitions", [1, 2, 3, 9])


@pytest.mark.parametrize(
    "text",
    ["size", "sizes=1", "size=", "size=a", "size=0", "size=3..1", "size=1..", "size=1..100000"],
)
def test_what_is_no_variable_is_a_usage_error(text: str) -> None:
    with pytest.raises(CliError) as refused:
        parse_variable(text)
    assert refused.value.code == Exit.USAGE


def test_brokers_take_turns_in_being_first() -> None:
    order = points({"size": [1, 2]}, 2, BROKERS)
    assert [str(one) for one in order] == [
        "size=1 #1 on a:1",
        "size=1 #1 on b:2",
        "size=2 #1 on a:1",
        "size=2 #1 on b:2",
        "size=1 #2 on b:2",
        "size=1 #2 on a:1",
        "size=2 #2 on b:2",
        "size=2 #2 on a:1",
    ]


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    told: list[str] = []
    order = points({"size": [1, 2]}, 1, BROKERS)
    sweep = Sweep(tmp_path / "sweep", order)
    sweep.open({"repeat": 1})
    ran: list[Point] = []

    def fails_at_third(point: Point) -> dict[str, Any]:
        if len(ran) == 2:
            raise CliError(Problem.BROKER_REFUSED, "gone")
        ran.append(point)
        return row(2.0 if point.broker == "a:1" else 1.0)

    with pytest.raises(CliError, match="gone"):
        sweep.run(fails_at_third, told.append)
    again = Sweep(tmp_path / "sweep", order)
    again.open({"repeat": 1})

    def runs(point: Point) -> dict[str, Any]:
        ran.append(point)
        return row(3.0)

    again.run(runs, told.append)
    assert ran == order
    assert "2 of 4 runs are there" in told
    assert [one["ratio"] for one in ratios(again.rows(), BROKERS)] == [2.0, 1.0]
    assert [one["mb_per_s"] for one in summary(again.rows())] == [2.0, 1.0, 3.0, 3.0]


def test_a_folder_of_another_plan_is_refused(tmp_path: Path) -> None:
    Sweep(tmp_path, []).open({"repeat": 1})
    with pytest.raises(CliError, match="another plan") as refused:
        Sweep(tmp_path, []).open({"repeat": 2})
    assert refused.value.code == Exit.EXISTS
    assert json.loads((tmp_path / "plan.json").read_text()) == {"repeat": 1}


def test_ratios_are_of_runs_beside_each_other() -> None:
    speeds = [("1", "a:1", 10.0), ("1", "b:2", 5.0), ("2", "b:2", 50.0), ("2", "a:1", 200.0)]
    rows = [
        {"variable": "size", "value": "7", "repeat": turn, "broker": one, "mb_per_s": str(speed)}
        for turn, one, speed in speeds
    ]
    assert ratios(rows, BROKERS) == [
        {"variable": "size", "value": 7, "ratio": 3.0, "lowest": 2.0, "highest": 4.0}
    ]


def test_a_file_of_other_columns_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    append(path, ["a", "b"], [{"a": 1, "b": {"x": 2}}])
    append(path, ["a", "b"], [{"a": 3}])
    assert path.read_text() == 'a,b\n1,"{""x"": 2}"\n3,\n'
    with pytest.raises(CliError, match="other columns"):
        append(path, ["a", "c"], [{"a": 1}])
    assert path.read_text().count("\n") == 3
