"""The first offset at which replicas differ, found by digests of ranges only."""

import random
from collections.abc import Mapping, Sequence

import pytest

from pyrklog.cli.replica_compare import (
    NO_OFFSET,
    BatchDigest,
    Difference,
    Digest,
    first_damage,
    first_difference,
)

PIECE_BATCHES = 7
Log = Sequence[BatchDigest]


def log_of(sizes: Sequence[int], epoch: int = 0) -> list[BatchDigest]:
    """Batches of so many records each, all different."""
    batches, offset = [], 0
    for number, size in enumerate(sizes):
        batches.append(BatchDigest(offset, offset + size - 1, epoch, 1000 + number))
        offset += size
    return batches


class Replicas:
    """Brokers that digest as rust/storage/src/replica_digest.rs does, a few batches at a time."""

    def __init__(self, logs: Mapping[int, Log], damaged: Mapping[int, int] | None = None) -> None:
        """``damaged``: the offset from which a broker's log is unreadable."""
        self._logs = logs
        self._damaged = damaged or {}
        self.asked = 0

    def __call__(self, start: int, end: int, max_bytes: int | None) -> dict[int, Digest]:
        self.asked += 1
        limit = PIECE_BATCHES if max_bytes is None else 1
        return {number: self._digest(number, start, end, limit) for number in self._logs}

    def _digest(self, number: int, start: int, end: int, limit: int) -> Digest:
        taken: list[BatchDigest] = []
        at = start
        broken = self._damaged.get(number)
        for batch in self._logs[number]:
            if batch.last_offset < start:
                continue
            if at >= end or len(taken) == limit:
                break
            if batch.base_offset == broken:
                return _digest(at, taken, at)
            if batch.last_offset >= end:
                at = end
                break
            taken.append(batch)
            at = batch.last_offset + 1
        else:
            at = at if at >= end or len(taken) == limit else end
        return _digest(at, taken, NO_OFFSET)


def _digest(at: int, taken: Sequence[BatchDigest], damaged: int) -> Digest:
    return Digest(at, hash(tuple(taken)), damaged, taken[0] if taken else None)


def compare(logs: Mapping[int, Log], start: int = 0, leader: int = 1) -> Difference | None:
    end = min(log[-1].last_offset + 1 for log in logs.values())
    return first_difference(Replicas(logs), start, end, leader)


def changed(log: Log, index: int, **fields: int) -> list[BatchDigest]:
    copy = list(log)
    copy[index] = copy[index]._replace(**fields)
    return copy


def test_replicas_that_are_equal_do_not_differ() -> None:
    log = log_of([3, 1, 5, 2] * 20)
    assert compare({1: log, 2: log, 3: log}) is None
    assert first_difference(Replicas({1: [], 2: []}), 0, 0, 1) is None


@pytest.mark.parametrize("index", [0, 1, 6, 7, 8, 13, 40, 79])
def test_the_first_batch_that_is_another_is_found(index: int) -> None:
    log = log_of([3, 1, 5, 2] * 20)
    other = changed(changed(log, index, crc=1), 79, crc=2)
    found = compare({1: log, 2: other, 3: log})
    assert found is not None
    assert found.offset == log[index].base_offset
    assert found.brokers == [2]
    assert found.damaged == []


def test_the_same_records_of_another_epoch_differ() -> None:
    log = log_of([4] * 10)
    found = compare({1: log, 2: log, 3: changed(log, 5, leader_epoch=9)})
    assert found is not None
    assert (found.offset, found.brokers) == (20, [3])
    assert found.batches[3] == BatchDigest(20, 23, 9, 1005)


def test_batches_of_other_sizes_differ_where_the_first_of_them_begins() -> None:
    one = log_of([4, 4, 4, 4, 4])
    other = [*one[:2], BatchDigest(8, 9, 0, 7), BatchDigest(10, 15, 0, 8), *one[4:]]
    found = compare({1: one, 2: other, 3: one})
    assert found is not None
    assert (found.offset, found.brokers) == (8, [2])


def test_of_two_replicas_the_follower_is_named() -> None:
    log = log_of([4] * 10)
    other = changed(log, 3, crc=5)
    assert compare({1: log, 2: other}) == compare({2: other, 1: log})
    found = compare({1: log, 2: other}, leader=2)
    assert found is not None
    assert found.brokers == [1]


def test_a_leader_that_is_alone_is_named() -> None:
    log = log_of([4] * 10)
    found = compare({1: changed(log, 3, crc=5), 2: log, 3: log}, leader=1)
    assert found is not None
    assert found.brokers == [1]


def test_a_start_within_a_batch_compares_that_batch() -> None:
    log = log_of([10] * 6)
    other = changed(log, 2, crc=5)
    found = compare({1: log, 2: other}, start=25)
    assert found is not None
    assert found.offset == 25, "what lies before was not asked about"
    assert compare({1: log, 2: other}, start=30) is None


def test_a_log_that_cannot_be_followed_is_damaged_there() -> None:
    log = log_of([4] * 30)
    found = first_difference(Replicas({1: log, 2: log, 3: log}, {3: 80}), 0, 120, 1)
    assert found is not None
    assert (found.offset, found.brokers, found.damaged) == (80, [3], [3])


def test_damage_in_all_replicas_is_damage() -> None:
    log = log_of([4] * 30)
    found = first_difference(Replicas({1: log, 2: log}, {1: 40, 2: 40}), 0, 120, 1)
    assert found is not None
    assert (found.offset, found.damaged) == (40, [1, 2])


def test_any_difference_is_found_with_few_questions() -> None:
    chance = random.Random(7)
    for _ in range(200):
        log = log_of([chance.randint(1, 9) for _ in range(chance.randint(1, 60))])
        index = chance.randrange(len(log))
        replicas = Replicas({1: log, 2: changed(log, index, crc=1), 3: log})
        found = first_difference(replicas, 0, log[-1].last_offset + 1, 1)
        assert found is not None
        assert (found.offset, found.brokers) == (log[index].base_offset, [2])
        # The pieces up to the different one, its halves, and its content.
        assert replicas.asked <= len(log) / PIECE_BATCHES + 1 + 6 + 2


def test_compacted_replicas_may_have_gaps_in_different_places() -> None:
    log = log_of([2] * 50)
    thinned = [batch for batch in log if batch.base_offset % 3]
    assert first_damage(Replicas({1: log, 2: thinned, 3: thinned[30:]}), 0, 100) is None
    assert first_damage(Replicas({1: log, 2: log}), 0, 0) is None


@pytest.mark.parametrize("broken", [4, 40, 94])
def test_damage_of_a_compacted_replica_is_found(broken: int) -> None:
    log = log_of([2] * 50)
    thinned = [batch for batch in log if batch.base_offset % 3]
    found = first_damage(Replicas({1: log, 2: thinned, 3: thinned}, {2: broken}), 0, 100)
    assert found is not None
    assert (found.offset, found.brokers, found.damaged) == (broken, [2], [2])
    assert found.batches[2] is None
