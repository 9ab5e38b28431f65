"""What a batch takes: never more than allowed, never nothing, and nobody is forgotten."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from pyrklog.spark.admission import NO_LIMITS, Limits, Turns, admit, share, should_wait
from pyrklog.spark.offsets import TopicPartition

PLACES = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 20))
BACKLOGS = st.dictionaries(PLACES, st.integers(0, 2**45), max_size=20)
LIMITS = st.integers(1, 2**46)


def place(number: int) -> TopicPartition:
    return TopicPartition("a", number)


@given(LIMITS, BACKLOGS, st.integers(0, 2**63))
def test_a_limit_is_shared_out_whole(
    limit: int, backlogs: dict[TopicPartition, int], number: int
) -> None:
    shares = share(limit, backlogs, Turns().order(backlogs, number))
    assert sum(shares.values()) == min(limit, sum(backlogs.values()))
    assert all(0 < taken <= backlogs[one] for one, taken in shares.items())
    waiting = [one for one, size in backlogs.items() if size]
    if limit >= len(waiting):
        assert shares.keys() == set(waiting)


@given(st.integers(20, 10_000), st.dictionaries(PLACES, st.integers(1, 5000), min_size=1))
def test_shares_follow_the_backlogs(limit: int, backlogs: dict[TopicPartition, int]) -> None:
    """Within two records of the exact proportion, which the first record for each shifts."""
    shares = share(limit, backlogs, sorted(backlogs))
    total = sum(backlogs.values())
    if total <= limit:
        assert shares == backlogs
        return
    rest, left = limit - len(backlogs), total - len(backlogs)
    for one, size in backlogs.items():
        exact = 1 + rest * (size - 1) / max(left, 1) if limit > len(backlogs) else 1
        assert abs(shares.get(one, 0) - exact) <= 1


@given(st.integers(1, 6), st.integers(7, 15))
def test_everyone_has_its_turn_under_a_small_limit(limit: int, partitions: int) -> None:
    """Backlogs that never end, one huge: nobody waits for longer than a round."""
    backlogs = {place(number): 10**9 if number == 3 else 1000 for number in range(partitions)}
    taken = dict.fromkeys(backlogs, 0)
    turns = Turns()
    for batch in range(math.ceil(partitions / limit)):
        shares = share(limit, backlogs, turns.order(backlogs, 12_345 + batch))
        turns.note(shares, backlogs, 12_345 + batch)
        for one, count in shares.items():
            taken[one] += count
    assert all(taken.values())


@given(st.lists(st.sets(st.integers(1, 5)), min_size=12, max_size=12), st.integers(0, 99))
def test_nobody_waits_for_longer_than_a_round_beside_any_others(
    others: list[set[int]], begin: int
) -> None:
    """One partition always, any of five others beside it; a batch has room for one."""
    turns, waited = Turns(), 0
    for number, beside in enumerate(others, begin):
        waiting = [place(0), *map(place, sorted(beside))]
        first = turns.order(waiting, number)[0]
        turns.note({first: 1}, map(place, range(6)), number)
        waited = 0 if first == place(0) else waited + 1
        assert waited <= 5
    assert turns.order([place(0)], 0) == [place(0)]
    assert Turns().order([], 3) == []


def test_without_limits_everything_is_taken() -> None:
    backlogs = {place(0): 7, place(1): 0, place(2): 10**12}
    taken = admit(NO_LIMITS, backlogs, {}, list(backlogs))
    assert taken == {place(0): 7, place(2): 10**12}
    assert admit(Limits(bytes=1), {}, {}, []) == {}


@given(
    st.integers(1, 10**9),
    st.none() | st.integers(1, 10**6),
    st.dictionaries(
        PLACES, st.tuples(st.integers(0, 10**6), st.floats(1, 10**7)), min_size=1, max_size=20
    ),
    st.integers(0, 10**6),
)
def test_bytes_and_records_are_limited_together(
    limit_bytes: int,
    limit_records: int | None,
    sized: dict[TopicPartition, tuple[int, float]],
    number: int,
) -> None:
    backlogs = {one: size for one, (size, _) in sized.items()}
    sizes = {one: each for one, (_, each) in sized.items()}
    turns = Turns().order(backlogs, number)
    taken = admit(Limits(limit_records, limit_bytes), backlogs, sizes, turns)
    assert all(0 <= count <= backlogs[one] for one, count in taken.items())
    total = sum(taken.values())
    assert total <= (limit_records or total)
    assert (total > 0) == any(backlogs.values())
    # A batch's bytes exceed the limit by one record at most.
    largest = max((sizes[one] for one, count in taken.items() if count), default=0)
    used = sum(count * sizes[one] for one, count in taken.items())
    assert used <= limit_bytes + largest + 1e-3


def test_a_large_record_comes_through_a_small_share() -> None:
    """One record of 10 MB beside a flood of small ones, and a limit of 1 MB."""
    backlogs, sizes = {place(0): 1, place(1): 10**6}, {place(0): 1e7, place(1): 100.0}
    taken = admit(Limits(bytes=10**6), backlogs, sizes, list(backlogs))
    assert taken[place(0)] == 1
    assert taken[place(1)] > 0


def test_small_batches_are_put_off_for_a_time() -> None:
    assert should_wait(9, 10, 0.0, 60.0)
    assert not should_wait(10, 10, 0.0, 60.0)
    assert not should_wait(9, 10, 60.0, 60.0)
    assert not should_wait(0, None, 0.0, 60.0)
