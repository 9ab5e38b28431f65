"""How far plans are, and how long they still take: beside a cluster of known rates."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from pyrklog.balance.filling import Fill, Filling
from pyrklog.balance.model import Cluster, Partition, PartitionKey, Placement
from pyrklog.balance.prediction import Limit, RateFrom, in_batches, predict
from pyrklog.balance.progress import (
    MEASURED_AFTER_S,
    SURE_AFTER_S,
    Seen,
    There,
    corrected,
    mark_of,
    measured,
    progress,
)
from pyrklog.balance.record import Record, begun
from pyrklog.balance.throttle import AUTO
from tests.unit.balance.clusters import GB, broker, cluster_of

MB = 10**6
RATE = 100 * MB
CHANGED = {("t", 0): (1, 3), ("t", 1): (3, 2), ("t", 2): (2, 1)}
CLOSE = 0.2
"""What a prediction after ten seconds may be off by."""


def record_of(
    cluster: Cluster,
    changed: Placement,
    *,
    limit: Limit | None = None,
    rate: int = RATE,
    rate_from: RateFrom = RateFrom.ASSUMED,
    throttle: str | None = None,
    filling: Filling | None = None,
) -> Record:
    """Of a plan that begins at 0."""
    filling = filling or Filling()
    batches = in_batches(cluster, changed, limit)
    found = predict(cluster, changed, batches, rate, filling)
    found = replace(found, rate_from=rate_from)
    known = begun("id", 0, cluster.placement, changed, found, {}, throttle)
    entries = {}
    for key, one in known.entries.items():
        partition = cluster.partitions[key]
        size = partition.size_bytes * len(one.targets)
        is_filled = key in filling.at_end
        entries[key] = replace(
            one,
            copied_bytes=0 if is_filled else size,
            filled_bytes=size if is_filled else 0,
            source=partition.leader_now,
            rate_in=partition.rate_in,
        )
    return replace(known, entries=entries, at_end=frozenset(filling.at_end))


def small() -> Record:
    cluster = cluster_of([(1, 2)] * 3, [1, 2, 3], [GB, 3 * GB, GB])
    return record_of(cluster, CHANGED, rate_from=RateFrom.GIVEN)


# --- what a look tells ---------------------------------------------------------------------------


def test_progress_in_bytes_and_the_time_left() -> None:
    one = small()
    nothing = progress(one, Seen(0))
    assert (nothing.percent, nothing.left_bytes) == (0.0, 4 * GB)
    assert nothing.left_s == one.predicted_s
    half = progress(one, Seen(21_000, {("t", 0)}, {("t", 1): There(3 * GB, {3: GB})}))
    assert (half.percent, half.left_bytes, half.partitions_done) == (50.0, 2 * GB, 1)
    assert half.left_s == 20.0
    assert half.rate_from is RateFrom.GIVEN
    more = progress(one, Seen(21_000, {("t", 0)}, {("t", 1): There(9 * GB, {3: 9 * GB})}))
    assert more.left_bytes == 0, "what was written meanwhile is no progress"
    done = progress(one, Seen(60_000, CHANGED.keys()))
    assert (done.percent, done.left_s) == (100.0, 0.0)


def test_without_bytes_partitions_count() -> None:
    cluster = cluster_of([(1, 2)] * 2, [1, 2])
    one = record_of(cluster, {("t", 0): (2, 1), ("t", 1): (2, 1)})
    assert progress(one, Seen(1_000, {("t", 0)})).percent == 50.0


def test_bytes_that_are_not_known_yet_tell_no_time() -> None:
    known = small()
    entries = {key: replace(one, copied_bytes=0) for key, one in known.entries.items()}
    first = replace(known, entries=entries, predicted_s=None)
    assert progress(first, Seen(1_000)).left_s is None


def at(seconds: float, count: int) -> Seen:
    """Broker 3 has so many bytes of ``t-1``, and nothing else."""
    there = {("t", 0): There(GB, {3: 0}), ("t", 1): There(3 * GB, {3: count})}
    return Seen(int(seconds * 1000), set(), there)


def test_rate_that_was_given_holds_unless_it_is_not_reached() -> None:
    one = small()
    slow = at(SURE_AFTER_S + 1, 500 * MB)
    found = progress(one, slow)
    assert (found.rate_from, found.rate_bytes) == (RateFrom.MEASURED, 50 * MB)
    assert found.left_s == pytest.approx(3500 / 50)
    assert progress(one, at(SURE_AFTER_S + 1, 900 * MB)).rate_bytes == RATE, "an average is rough"
    assert progress(one, at(SURE_AFTER_S - 1, 100 * MB)).rate_bytes == RATE, "it has just begun"


def test_assumption_gives_way_after_seconds() -> None:
    one = replace(small(), rate_from=RateFrom.ASSUMED)
    early = progress(one, at(MEASURED_AFTER_S, 10 * MB))
    assert early.rate_from is RateFrom.ASSUMED
    found = progress(one, at(MEASURED_AFTER_S + 2, 40 * MB))
    assert (found.rate_from, found.rate_bytes) == (RateFrom.MEASURED, 10 * MB)
    assert corrected(one, at(MEASURED_AFTER_S + 2, 40 * MB), found) is None, "it is too early"
    late = at(SURE_AFTER_S + 1, 100 * MB)
    better = corrected(one, late, progress(one, late))
    assert better is not None
    assert better.seconds == pytest.approx(11 + 3900 / 10)
    assert progress(one, at(60, 0)).rate_from is RateFrom.ASSUMED, "nothing is known of it"


def test_speed_since_an_earlier_look() -> None:
    one = replace(small(), throttle=AUTO, rate_from=RateFrom.ASSUMED)
    soon = mark_of(one, at(1, 0))
    assert measured(one, at(11, GB), soon) == (RATE * 10 // 9, False), "the rate rises still"
    first, last = mark_of(one, at(3600, GB)), at(3610, 2 * GB)
    assert measured(one, last, first) == (RATE, True)
    found = progress(one, last, first)
    assert found.left_s == pytest.approx(20.0)
    over = mark_of(one, Seen(3_600_000, CHANGED.keys()))
    assert (over.carried, over.over) == ({}, {0})
    assert measured(one, Seen(3_700_000, CHANGED.keys()), over) is None, "it was over before"


def test_load_that_has_ended_adds_nothing() -> None:
    """It ended in the minute before the plan began, so that it counted as going on."""
    one = replace(small(), rate_from=RateFrom.ASSUMED)
    written = {key: replace(entry, rate_in=90.0 * MB) for key, entry in one.entries.items()}
    busy = replace(one, entries=written)
    late = at(SURE_AFTER_S + 1, 1_000 * MB)
    assert progress(busy, late).left_s == progress(one, late).left_s == pytest.approx(30.0)


def test_batch_that_has_just_begun_does_not_look_slow() -> None:
    """Its first bytes come after a second."""
    cluster = cluster_of([(1, 2)] * 2, [1, 2, 3], [GB, 3 * GB])
    changed = {("t", 0): (1, 3), ("t", 1): (1, 3)}
    one = record_of(cluster, changed, limit=Limit(partitions=1), rate_from=RateFrom.GIVEN)
    assert one.batches() == [[("t", 1)], [("t", 0)]]

    def look(second: float, count: int) -> Seen:
        return Seen(int(second * 1000), {("t", 1)}, {("t", 0): There(GB, {3: count})})

    first = mark_of(one, look(32, 0))
    assert (first.carried, first.over) == ({}, {0})
    assert measured(one, look(35.5, 250 * MB), first) is None
    assert measured(one, look(36, 300 * MB), first) == (RATE, False)
    soon = progress(one, look(36, 150 * MB), first)
    assert (soon.rate_from, soon.is_sure) == (RateFrom.GIVEN, False), "an average is rough"
    slow = progress(one, look(43, 500 * MB), first)
    assert (slow.rate_bytes, slow.rate_from, slow.is_sure) == (50 * MB, RateFrom.MEASURED, True)


def test_replicas_that_only_follow_tell_no_speed() -> None:
    """They have caught up, and wait for something else."""
    one = replace(small(), rate_from=RateFrom.ASSUMED)

    def look(second: int, first: int, other: int) -> Seen:
        there = {("t", 0): There(first, {3: first}), ("t", 1): There(other, {3: other})}
        return Seen(1000 * second, {("t", 2)}, there)

    mark = mark_of(one, look(90, 1900 * MB, 3900 * MB))
    last = look(100, 2000 * MB, 4000 * MB)
    assert measured(one, last, mark) is None
    assert progress(one, last, mark).rate_from is RateFrom.ASSUMED


# --- back-fills ----------------------------------------------------------------------------------


def filled(rates: Mapping[int, int], retention_s: float | None = None) -> Record:
    """Broker 3 gets both partitions from their ends."""
    cluster = cluster_of([(1, 2)] * 2, [1, 2, 3], [GB, 3 * GB])
    changed = {("t", 0): (1, 3), ("t", 1): (2, 3)}
    filling = Filling(changed.keys(), rates, dict.fromkeys(changed, retention_s))
    return record_of(cluster, changed, filling=filling)


def test_back_fill_takes_its_bytes_at_its_rate() -> None:
    one = filled({3: 20 * MB})
    assert one.fill == Fill(4 * GB, 1.0, 201.0, None, {3: 20 * MB})
    assert one.predicted_s == 201.0
    assert one.total_bytes == 0
    begun = progress(one, Seen(0))
    assert (begun.percent, begun.left_s, begun.has_tail) == (0.0, 201.0, False)
    # Broker 3 has 2 GB of new records besides a part of the old ones, as the leader has.
    there = {
        ("t", 0): There(2 * GB, {3: 2 * GB}, frozenset({3})),
        ("t", 1): There(4 * GB, {3: 2 * GB}, frozenset({3})),
    }
    half = progress(one, Seen(101_000, set(), there))
    assert (half.percent, half.fill_left_bytes, half.has_tail) == (50.0, 2 * GB, True)
    assert half.left_s == 100.0
    assert progress(one, Seen(101_000, set(), there, {3: 40 * MB})).left_s == pytest.approx(
        100.0
    ), "it was told to be faster, and is not"
    assert progress(one, Seen(5_000, set(), there, {3: 40 * MB})).left_s == 50.0


def test_without_back_fill_retention_ends_it_or_nothing() -> None:
    one = filled({3: 0}, 3600.0)
    assert one.fill is not None
    assert one.fill.is_by_retention
    assert one.predicted_s == 3601.0
    there = {key: There(5 * GB, {3: GB}, frozenset({3})) for key in one.entries}
    assert progress(one, Seen(600_000, set(), there)).left_s == 3001.0
    never = filled({3: 0})
    assert never.predicted_s is None
    assert progress(never, Seen(600_000, set(), there)).left_s is None
    assert filled({3: 20 * MB}, 60.0).predicted_s == 61.0, "retention may be sooner"


def test_retention_that_is_late_tells_no_time() -> None:
    one = filled({3: 0}, 3600.0)
    there = {key: There(5 * GB, {3: GB}, frozenset({3})) for key in one.entries}
    assert progress(one, Seen(3_700_000, set(), there)).left_s is None
    slow = progress(filled({3: MB}, 60.0), Seen(100_000, set(), there))
    assert slow.left_s == 8000.0, "the back-fill goes on"


def test_back_fill_that_is_slower_than_told_corrects_the_prediction() -> None:
    one = filled({3: 20 * MB})
    there = {("t", 0): There(GB, {3: GB}), ("t", 1): There(3 * GB, {3: 0})}
    look = Seen(101_000, set(), there)
    found = progress(one, look)
    assert found.fill_rate_bytes == 10 * MB
    assert corrected(one, look, found) == (101.0, 10 * MB, 401.0)
    early = Seen(6_000, set(), there)
    assert progress(one, early).fill_rate_bytes is None, "it has just begun"
    fast = Seen(51_000, set(), there)
    assert corrected(one, fast, progress(one, fast)) is None, "it is as fast as it was told to be"
    little = {("t", 0): There(GB, {3: GB // 2}), ("t", 1): There(3 * GB, {3: 0})}
    segment = Seen(101_000, set(), little)
    assert corrected(one, segment, progress(one, segment)) is None, "segments are still under way"
    auto = replace(one, throttle=AUTO)
    assert corrected(auto, fast, progress(auto, fast)) == (51.0, 20 * MB, 201.0)


def test_batches_are_back_filled_one_after_the_other() -> None:
    """Retention deletes what a batch lacks in an hour; each begins when the one before is whole."""
    cluster = cluster_of([(1, 2)] * 2, [1, 2, 3], [GB, 3 * GB])
    changed = {("t", 0): (1, 3), ("t", 1): (2, 3)}
    filling = Filling(changed.keys(), {3: 0}, dict.fromkeys(changed, 3600.0))
    one = record_of(cluster, changed, limit=Limit(partitions=1), filling=filling)
    assert one.fill == Fill(4 * GB, 3602.0, 7202.0, 7202.0, {3: 0})
    assert one.predicted_s == 7202.0
    assert progress(one, Seen(0)).left_s == pytest.approx(7202.0, abs=2)


# --- a cluster of known rates --------------------------------------------------------------------


@dataclass
class Copying:
    """Copies as brokers do: each gives and takes so many bytes a second, shared by all that it
    copies. Nothing of :mod:`pyrklog.balance.prediction` is in it."""

    record: Record
    cluster: Cluster
    rate: float
    lag_s: float = 0.7
    """Until a batch copies, and from its last byte to the next batch."""
    step_s: float = 0.1
    now_s: float = 0.0
    there: dict[tuple[PartitionKey, int], float] = field(default_factory=dict)
    done: list[PartitionKey] = field(default_factory=list)
    looks: list[Seen] = field(default_factory=list)

    def size(self, key: PartitionKey) -> float:
        one = self.cluster.partitions[key]
        return one.size_bytes + one.rate_in * self.now_s

    def run(self) -> float:
        """Returns when all was done."""
        for keys in self.record.batches():
            begin_s = self.now_s
            left = [key for key in keys if self.record.entries[key].targets]
            self.done += [key for key in keys if key not in left]
            while left:
                if self.now_s - begin_s > self.lag_s / 2:
                    self._copy(left)
                # Before producers write more.
                whole = [key for key in left if self._is_whole(key)]
                self._pass(left)
                self.done += whole
                left = [key for key in left if key not in whole]
            for _ in range(int(self.lag_s / 2 / self.step_s)):
                self._pass([])
        return self.now_s

    def _pass(self, left: list[PartitionKey]) -> None:
        self.now_s += self.step_s
        moving = {
            key: There(
                int(self.size(key)),
                {
                    target: int(self.there.get((key, target), 0))
                    for target in self.record.entries[key].targets
                },
            )
            for key in left
        }
        self.looks.append(Seen(int(self.now_s * 1000), frozenset(self.done), moving))

    def _is_whole(self, key: PartitionKey) -> bool:
        targets = self.record.entries[key].targets
        return all(self.there.get((key, target), 0) >= self.size(key) - 1 for target in targets)

    def _copy(self, left: list[PartitionKey]) -> None:
        """Everybody gets a bit in turn, until what lets it has no more."""
        flows = [
            (key, target)
            for key in left
            for target in self.record.entries[key].targets
            if self.there.get((key, target), 0) < self.size(key)
        ]
        room: dict[tuple[str, int], float] = {}
        for key, target in flows:
            source = self.record.entries[key].source
            room["out", source] = room["in", target] = self.rate * self.step_s
        bit = self.rate * self.step_s / 20
        while flows:
            still = []
            for key, target in flows:
                ends = ("out", self.record.entries[key].source), ("in", target)
                lacks = self.size(key) - self.there.get((key, target), 0)
                if lacks <= 0 or min(room[end] for end in ends) < bit / 2:
                    continue
                got = min(bit, lacks)
                self.there[key, target] = self.there.get((key, target), 0) + got
                for end in ends:
                    room[end] -= got
                still.append((key, target))
            flows = still


def off(record: Record, cluster: Cluster, rate: float) -> tuple[float, float]:
    """By how much the prediction of the beginning, and that after ten seconds, are off."""
    copying = Copying(record, cluster, rate)
    took_s = copying.run()
    for look in copying.looks:
        better = corrected(record, look, progress(record, look))
        if better is not None:
            break
    assert better is not None
    assert better.after_s == pytest.approx(SURE_AFTER_S, abs=0.1)
    first_s = math.inf if record.predicted_s is None else record.predicted_s
    return first_s / took_s - 1, better.seconds / took_s - 1


@pytest.mark.parametrize("rate", [12 * MB, 170 * MB])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_after_ten_seconds_an_assumption_is_right(rate: int, share: float) -> None:
    """One broker comes to three that are full; producers write a share of what it can copy."""
    sizes = [int(rate * (4 + index % 5)) for index in range(12)]
    members = [(1 + index % 3, 1 + (index + 1) % 3) for index in range(12)]
    partitions = {
        ("t", index): Partition(replicas, sizes[index], rate * share / 6)
        for index, replicas in enumerate(members)
    }
    cluster = Cluster({number: broker(number) for number in (1, 2, 3, 4)}, partitions)
    changed = {("t", index): (members[index][0], 4) for index in range(0, 12, 2)}
    for limit in (None, Limit(partitions=2)):
        record = record_of(cluster, changed, limit=limit, rate=50 * MB)
        first, better = off(record, cluster, rate)
        assert abs(first) > CLOSE, "the assumption was wrong"
        assert abs(better) < CLOSE


@pytest.mark.parametrize("seed", range(8))
def test_after_ten_seconds_any_steady_plan_is_predicted(seed: int) -> None:
    dice = random.Random(seed)
    rate = dice.randint(5 * MB, 400 * MB)
    numbers = list(range(1, 7))
    partitions = {}
    changed = {}
    for index in range(8):
        replicas = tuple(dice.sample(numbers, 2))
        size = int(rate * dice.uniform(3, 20))
        partitions["t", index] = Partition(replicas, size, rate * dice.uniform(0, 0.05))
        new = dice.choice([one for one in numbers if one not in replicas])
        changed["t", index] = (replicas[0], new)
    partitions["t", 99] = Partition((1, 2), 25 * rate)
    changed["t", 99] = (1, 6)
    cluster = Cluster({number: broker(number) for number in numbers}, partitions)
    limit = Limit(partitions=3) if seed % 2 else None
    _, better = off(record_of(cluster, changed, limit=limit, rate=50 * MB), cluster, rate)
    assert abs(better) < CLOSE
