"""Where a scan begins and ends, as callers say it."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from pyrklog.scanning.places import EARLIEST, LATEST, ListedOffset, core_place, core_places

TOPICS: list[tuple[str, list[int] | None]] = [("a", None), ("b", [0, 2])]


@pytest.mark.parametrize(
    ("place", "core"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        (0, ("offset", 0, -1)),
        (2**63 - 1, ("offset", 2**63 - 1, -1)),
        ((5, 3), ("offset", 5, 3)),
        ((5, -1), ("offset", 5, -1)),
        (ListedOffset(5, 3), ("listed", 5, 3)),
        (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), ("timestamp", 1000, -1)),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), ("timestamp", 0, -1)),
        (datetime(1960, 1, 1, tzinfo=UTC), ("timestamp", 0, -1)),
        # The first millisecond that is not before.
        (datetime(1970, 1, 1, 0, 0, 0, 1001, tzinfo=UTC), ("timestamp", 2, -1)),
        (
            datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
            ("timestamp", 253402300799999, -1),
        ),
    ],
)
def test_places_are_read(place: Any, core: tuple[str, int, int]) -> None:
    assert core_place(place) == core


@pytest.mark.parametrize(
    "place", [-1, 2**63, "", "Earliest", (1, -2), (-1, 0), (0, 2**31), ListedOffset(-1, 0)]
)
def test_places_that_are_nowhere_are_refused(place: Any) -> None:
    with pytest.raises(ValueError, match=r"no place|there is no"):
        core_place(place)


@pytest.mark.parametrize("place", [None, True, 1.0, b"earliest", (1,), (1, "2"), [1, 2]])
def test_places_of_another_type_are_refused(place: Any) -> None:
    with pytest.raises(TypeError, match="is no place"):
        core_place(place)


def test_places_of_topics_and_partitions_stand_beside_the_default() -> None:
    assert core_places("latest", TOPICS, EARLIEST) == (LATEST, [])
    places: Any = {"a": 7, "b": {2: "latest"}}
    assert core_places(places, TOPICS, EARLIEST) == (
        EARLIEST,
        [("a", -1, ("offset", 7, -1)), ("b", 2, LATEST)],
    )


@pytest.mark.parametrize("places", [{"c": 1}, {"b": {1: 1}}, {"a": {-1: 1}}])
def test_places_in_what_is_not_read_are_refused(places: Any) -> None:
    with pytest.raises(ValueError, match="which is not read"):
        core_places(places, TOPICS, EARLIEST)
