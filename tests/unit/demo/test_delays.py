"""The demo's arithmetic: cutting the year, statistics, the comparison, the chart's figures."""

import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from demo import chart, delays, flights
from demo.__main__ import parse
from demo.delays import Delays
from demo.flights import Flight


def flight(hour: str, delay: int | None, carrier: str = "AA") -> Flight:
    return Flight(f"2013-03-01T{hour}:00:00Z", carrier, 1, "JFK", "LAX", 2475, delay, None)


def test_cancelled_flights_are_counted_but_not_averaged() -> None:
    groups = delays.compute([flight("10", 20), flight("10", -4), flight("10", None)])
    found = groups["AA", "2013-03-01T10:00:00Z"]
    assert found == Delays(3, 2, 1, 16, 20)
    assert found.delay_mean == 8.0
    nothing = delays.compute([flight("11", None)])["AA", "2013-03-01T11:00:00Z"]
    assert nothing == Delays(1, 0, 0, 0, None)
    assert nothing.delay_mean is None


def test_fifteen_minutes_are_late_and_fourteen_are_not() -> None:
    groups = delays.compute([flight("10", 14), flight("10", 15)])
    assert groups["AA", "2013-03-01T10:00:00Z"].late == 1


def test_groups_add_up() -> None:
    parts = [Delays(3, 2, 1, 16, 20), Delays(1, 0, 0, 0, None), Delays(1, 1, 0, -5, -5)]
    assert delays.combine(parts) == Delays(5, 3, 1, 11, 20)
    assert delays.combine([]) == Delays(0, 0, 0, 0, None)


def test_every_kind_of_difference_is_found() -> None:
    right = Delays(1, 1, 0, 2, 2)
    expected = {("AA", "h1"): right, ("AA", "h2"): right, ("UA", "h1"): right}
    assert delays.differences(expected, list(expected.items())) == []
    found = [
        (("AA", "h1"), right),
        (("AA", "h1"), right),
        (("AA", "h2"), replace(right, delay_sum=3)),
        (("ZZ", "h1"), right),
    ]
    texts = delays.differences(expected, found)
    assert len(texts) == 4
    for text, part in zip(texts, ["twice", "should be", "should not", "missing"], strict=True):
        assert part in text


def test_records_of_the_result_topic_are_read_with_and_without_nulls() -> None:
    value = {"carrier": "AA", "hour": "h1", **asdict(Delays(1, 0, 0, 0, None))}
    del value["delay_max"]  # Spark's to_json leaves nulls out
    assert delays.parse(json.dumps(value).encode()) == (("AA", "h1"), Delays(1, 0, 0, 0, None))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 50])
def test_pieces_keep_the_order_and_never_split_an_hour(count: int) -> None:
    hours = [f"{hour:02}" for hour in (1, 1, 1, 2, 3, 3, 4, 4, 4, 4, 9)]
    year = [flight(hour, 0) for hour in hours]
    cut = list(flights.pieces(year, count))
    assert [one for piece in cut for one in piece] == year
    assert all(cut)
    assert len(cut) <= count
    for earlier, later in itertools.pairwise(cut):
        assert earlier[-1].time_hour < later[0].time_hour


def test_the_marker_is_later_than_the_watermark_delay_after_the_last_flight() -> None:
    marker = json.loads(flights.end_marker([flight("10", 0), flight("23", 0)]))
    assert marker == {"time_hour": "2013-03-02T23:00:00Z", "carrier": None}


def test_the_input_is_the_known_year() -> None:
    year = flights.read()
    assert len(year) == 336_776
    assert sum(one.dep_delay is None for one in year) == 8_255
    assert all(a.time_hour <= b.time_hour for a, b in itertools.pairwise(year))
    assert len(flights.read(range(1, 2))) == 27_004


def test_the_chart_counts_hours_in_new_york() -> None:
    result = {
        ("UA", "2013-01-10T17:00:00Z"): Delays(2, 2, 1, 20, 18),  # winter: 12 h
        ("UA", "2013-07-10T16:00:00Z"): Delays(1, 1, 0, 4, 4),  # summer: 12 h too
        ("HA", "2013-07-10T13:00:00Z"): Delays(1, 0, 0, 0, None),
    }
    united, hawaiian = chart.roll_up(result, {"UA": "United"})
    assert united.by_hour == {12: Delays(3, 3, 1, 24, 18)}
    assert (united.name, hawaiian.name) == ("United", "HA")
    assert chart.table([united, hawaiian]).row_count == 2


def test_the_chart_is_a_picture(tmp_path: Path) -> None:
    carriers = chart.roll_up({("HA", "2013-07-10T13:00:00Z"): Delays(1, 0, 0, 0, None)}, {})
    chart.draw(tmp_path / "c.png", carriers, "title")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("months", ["0", "13", "5-4", "March", "1-13"])
def test_impossible_months_are_refused(months: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--months", months])
    assert repr(months) in capsys.readouterr().err
