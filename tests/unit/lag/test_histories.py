"""The histories of a broker, within their bounds."""

from collections import deque
from typing import Any

from pyrklog.lag.histories import HISTORY_BYTES, Histories, PartitionKey
from pyrklog.lag.shortening import LOOKED_MAX

START = 1_700_000_000_000
ID = bytes(16)


def key(number: int) -> PartitionKey:
    return PartitionKey("t", ID, number)


def fill(histories: Histories, number: int, count: int) -> None:
    """So many log ends that no line goes through."""
    end = 0
    for at in range(count):
        end += 1 if at % 2 else 1000
        histories.observe(key(number), START + at * 1000, end, unmoved_ms=START + at * 1000 - 1000)


def count_looks(histories: Histories) -> list[PartitionKey]:
    """Keys of the histories that shortening looks at from now on."""
    looked: list[PartitionKey] = []
    shortening: Any = histories._shortening

    class Counted(dict[PartitionKey, Any]):
        def get(self, key: PartitionKey, default: Any = None) -> Any:
            looked.append(key)
            return histories.by_key.get(key, default)

        def __iter__(self) -> Any:
            return iter(histories.by_key)

    shortening._by_key = Counted()
    return looked


def test_only_what_has_moved_is_told() -> None:
    histories = Histories(1 << 20)
    histories.observe(key(0), START, 5, unmoved_ms=0)
    histories.observe(key(1), START, 6, unmoved_ms=0)
    assert histories.take_moved() == {key(0): 5, key(1): 6}
    histories.observe(key(0), START + 1000, 5, unmoved_ms=START)
    histories.observe(key(1), START + 1000, 7, unmoved_ms=START)
    assert histories.take_moved() == {key(1): 7}
    assert histories.take_moved() == {}


def test_a_partition_that_has_not_moved_takes_no_points() -> None:
    histories = Histories(1 << 20)
    for at in range(100):
        histories.observe(key(0), START + at * 1000, 5, unmoved_ms=START)
    assert histories.points == 0


def test_points_are_counted() -> None:
    histories = Histories(1 << 20)
    for number in range(3):
        fill(histories, number, 50)
    assert histories.points == sum(one.points for one in histories.by_key.values()) > 100
    deque(histories.keep_only({key(1)}), 0)
    assert histories.points == histories.by_key[key(1)].points
    assert set(histories.by_key) == set(histories.moved) == {key(1)}


def test_the_unasked_are_shortened_at_the_bound() -> None:
    histories = Histories(2 * HISTORY_BYTES + 1000 * 16)
    fill(histories, 0, 300)
    histories.by_key[key(0)].asked_ms = START
    asked = histories.by_key[key(0)].points
    fill(histories, 1, 800)
    assert histories.forgotten > 0
    assert histories.points <= 1000
    assert histories.points == sum(one.points for one in histories.by_key.values())
    assert histories.by_key[key(0)].points == asked


def test_histories_that_cannot_be_shortened_cost_little() -> None:
    """More of them than have room: each sample looks at a few others only."""
    histories = Histories(100 * 16)
    looked = count_looks(histories)
    for at in range(40):
        for number in range(200):
            end = at * 1000 + (at % 2)
            at_ms = START + at * 1000
            before = len(looked)
            histories.observe(key(number), at_ms, end, unmoved_ms=at_ms - 1000)
            assert len(looked) - before <= LOOKED_MAX
    assert histories.points == sum(one.points for one in histories.by_key.values()) < 200 * 5


def test_a_bound_below_one_point_each_ends() -> None:
    histories = Histories(16)
    for number in range(5):
        fill(histories, number, 20)
    assert all(len(tier.times) <= 2 for one in histories.by_key.values() for tier in one.tiers)


def test_what_is_restored_is_within_the_bound() -> None:
    large = Histories(1 << 20)
    fill(large, 0, 500)
    small = Histories(HISTORY_BYTES + 100 * 16)
    deque(small.restore(large.by_key), 0)
    assert 0 < small.points <= 100
