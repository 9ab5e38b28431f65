"""Placement of replicas. The examples follow Kafka's rule by hand."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.controller.placement import PlacementError, alternate_racks, place_replicas


def without_racks(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_five_brokers_ten_partitions_three_replicas() -> None:
    placed = place_replicas(without_racks(0, 1, 2, 3, 4), 10, 3, start=0, shift=0)
    assert placed == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_one_broker_takes_everything() -> None:
    assert place_replicas(without_racks(7), 3, 1, start=0, shift=0) == {0: (7,), 1: (7,), 2: (7,)}


def test_added_partitions_go_on_where_the_topic_stopped() -> None:
    whole = place_replicas(without_racks(0, 1, 2), 6, 2, start=1, shift=1)
    first = place_replicas(without_racks(0, 1, 2), 3, 2, start=1, shift=1)
    rest = place_replicas(without_racks(0, 1, 2), 3, 2, start=1, shift=2, first_partition=4 - 1)
    assert {**first}.items() <= whole.items()
    assert [brokers[0] for brokers in rest.values()] == [whole[p][0] for p in (3, 4, 5)]


def test_brokers_take_turns_by_rack() -> None:
    racks = {0: "a", 1: "b", 2: "c", 3: "c", 4: "a", 5: "b"}
    assert list(alternate_racks(racks)) == [0, 1, 2, 4, 5, 3]
    assert list(alternate_racks({0: "a", 1: "a", 2: "b"})) == [0, 2, 1]


def test_brokers_without_a_rack_are_in_one_of_their_own() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: None, 5: None}
    for shift in range(6):
        placed = place_replicas(racks, 12, 3, start=shift, shift=shift)
        assert all({racks[b] for b in brokers} == {"a", "b", None} for brokers in placed.values())


def test_too_few_brokers() -> None:
    with pytest.raises(PlacementError, match="only 2 broker"):
        place_replicas(without_racks(1, 2), 1, 3, start=0, shift=0)


CLUSTERS = st.dictionaries(
    st.integers(0, 50), st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9
)


@given(CLUSTERS, st.integers(1, 30), st.integers(1, 9), st.integers(0, 8), st.integers(0, 8))
def test_replicas_are_distinct_and_leaders_even(
    racks: dict[int, str | None], partitions: int, replicas: int, start: int, shift: int
) -> None:
    replicas = min(replicas, len(racks))
    placed = place_replicas(racks, partitions, replicas, start=start % len(racks), shift=shift)
    assert sorted(placed) == list(range(partitions))
    for brokers in placed.values():
        assert len(set(brokers)) == replicas
        assert set(brokers) <= racks.keys()
    leaders = Counter(brokers[0] for brokers in placed.values())
    assert max(leaders.values()) <= -(-partitions // len(racks))


@given(st.integers(1, 4), st.integers(1, 20), st.integers(0, 11), st.integers(0, 11))
def test_every_rack_has_a_replica_before_any_has_two(
    per_rack: int, partitions: int, start: int, shift: int
) -> None:
    racks: dict[int, str | None] = {b: "abc"[b % 3] for b in range(3 * per_rack)}
    for replicas in range(1, len(racks) + 1):
        placed = place_replicas(racks, partitions, replicas, start=start % len(racks), shift=shift)
        for brokers in placed.values():
            used = Counter(racks[b] for b in brokers)
            assert len(used) == min(3, replicas)
            assert len(set(brokers)) == replicas
