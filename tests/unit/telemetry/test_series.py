from collections.abc import Iterable, Mapping

import pytest

from pyrklog.telemetry import series
from pyrklog.telemetry.otlp import Point, Reading
from pyrklog.telemetry.series import SERIES_OF_CLIENT_MAX, Pushed, SeriesTable

A, B = "10.0.0.1", "10.0.0.2"


def gauges(*values: float) -> Reading:
    return of(Point(f"m{number}", (), False, False, one) for number, one in enumerate(values))


def of(points: Iterable[Point], left_out: int = 0) -> Reading:
    return Reading((("group_id", "g"),), list(points), left_out)


def difference(value: float, name: str = "sum") -> Point:
    return Point(name, (), True, True, value)


def values(pushed: Pushed) -> Mapping[str, float]:
    return {name: value.value for (name, _), value in pushed.series.items()}


def test_a_push_replaces_the_one_before() -> None:
    table, pushed = SeriesTable(), Pushed()
    table.take(pushed, A, gauges(1, 2))
    table.take(pushed, A, gauges(3))
    assert values(pushed) == {"m0": 3}
    assert pushed.client == (("group_id", "g"),)
    assert table.total == 1


def test_differences_are_summed_up_and_stay() -> None:
    table, pushed = SeriesTable(), Pushed()
    table.take(pushed, A, of([difference(5), difference(1, "other")]))
    table.take(pushed, A, of([difference(2)]))
    assert values(pushed) == {"sum": 7, "other": 1}
    table.take(pushed, A, of([Point("sum", (), True, False, 40)]))
    assert values(pushed) == {"sum": 40, "other": 1}, "no longer a difference"


def test_what_a_reader_holds_does_not_change() -> None:
    table, pushed = SeriesTable(), Pushed()
    table.take(pushed, A, gauges(1))
    held = pushed.series
    table.take(pushed, A, gauges(2))
    assert [one.value for one in held.values()] == [1]


def test_a_client_has_a_bounded_number_of_series() -> None:
    table, pushed = SeriesTable(), Pushed()
    many = gauges(*range(SERIES_OF_CLIENT_MAX + 7))
    table.take(pushed, A, many._replace(left_out=3))
    assert len(pushed.series) == SERIES_OF_CLIENT_MAX
    assert pushed.left_out == 10
    table.take(pushed, A, gauges(1))
    assert (pushed.left_out, table.total) == (0, 1)


def test_all_clients_and_those_of_an_address_share_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(series, "SERIES_MAX", 5)
    monkeypatch.setattr(series, "SERIES_OF_ADDRESS_MAX", 3)
    table = SeriesTable()
    first, second, third = Pushed(), Pushed(), Pushed()
    table.take(first, A, gauges(1, 2))
    table.take(second, A, gauges(1, 2))
    assert (len(second.series), second.left_out) == (1, 1)
    table.take(third, B, gauges(1, 2, 3))
    assert (len(third.series), third.left_out) == (2, 1)
    table.take(second, A, gauges(7))
    assert values(second) == {"m0": 7}, "what it has it keeps"
    table.forget(first, A)
    table.take(third, B, gauges(1, 2, 3))
    assert (len(third.series), third.left_out) == (3, 0)
    for pushed, address in ((second, A), (third, B), (first, A)):
        table.forget(pushed, address)
    assert (table.total, table.text_bytes, table._by_address) == (0, 0, {})


def test_a_client_without_series_keeps_nothing() -> None:
    table, pushed = SeriesTable(), Pushed()
    table.take(pushed, A, gauges())
    assert not pushed.client
    assert (table.text_bytes, table._by_address) == (0, {})
    table.take(pushed, A, gauges(1))
    assert dict(pushed.client) == {"group_id": "g"}
    table.forget(pushed, A)
    assert (pushed.client, table.text_bytes) == ((), 0)


def test_all_clients_and_those_of_an_address_share_bounds_of_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = of([Point("m", (("topic", "t" * 100),), False, False, 1.0)])
    table, probe = SeriesTable(), Pushed()
    table.take(probe, A, one)
    monkeypatch.setattr(series, "TEXT_BYTES_MAX", 3 * table.text_bytes)
    monkeypatch.setattr(series, "TEXT_BYTES_OF_ADDRESS_MAX", 2 * table.text_bytes)
    second, third, fourth, fifth = Pushed(), Pushed(), Pushed(), Pushed()
    table.take(second, A, one)
    table.take(third, A, one)
    assert (len(second.series), second.left_out) == (1, 0)
    assert (len(third.series), third.client, third.left_out) == (0, (), 1)
    table.take(fourth, B, one)
    table.take(fifth, B, one)
    assert (len(fourth.series), len(fifth.series), fifth.left_out) == (1, 0, 1)
    table.take(second, A, one)
    assert len(second.series) == 1, "what it has it keeps"
    table.forget(probe, A)
    table.take(third, A, one)
    assert len(third.series) == 1
