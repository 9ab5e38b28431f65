"""What is kept of a plan while it is carried out."""

import json
from dataclasses import replace

import pytest

from pyrklog.balance.filling import Fill
from pyrklog.balance.model import Cluster
from pyrklog.balance.prediction import Limit, RateFrom, in_batches, predict
from pyrklog.balance.record import (
    Corrected,
    Record,
    RecordError,
    begun,
    cancelled,
    from_json,
    to_json,
)
from tests.unit.balance.clusters import GB, cluster_of

RATE = 100_000_000
CHANGED = {("t", 0): (1, 3), ("t", 1): (3, 2), ("t", 2): (2, 1)}


def cluster() -> Cluster:
    return cluster_of([(1, 2)] * 3, [1, 2, 3], [GB, 3 * GB, GB])


def record(limit: Limit | None = None) -> Record:
    found = cluster()
    batches = in_batches(found, CHANGED, limit)
    prediction = predict(found, CHANGED, batches, RATE)
    copied = {("t", 0): GB, ("t", 1): 3 * GB, ("t", 2): 0}
    return begun("id", 1_000_000, found.placement, CHANGED, prediction, copied, "100MB/s")


def test_it_is_read_as_it_was_written() -> None:
    one = record(Limit(partitions=1))
    assert from_json(to_json(one)) == one
    assert one.batches() == [[("t", 2)], [("t", 1)], [("t", 0)]]
    assert one.before == dict.fromkeys(CHANGED, (1, 2))
    assert one.after == CHANGED
    done = one.finished(1_050_000, 4 * GB, is_watched=True)
    assert from_json(to_json(done)) == done
    assert done.real_s == 50.0
    told = json.loads(to_json(done))
    assert told["real"] == {"seconds": 50.0, "bytes": 4 * GB, "watched": True}
    assert told["predicted"]["seconds"] == one.predicted_s == 43.0
    assert told["predicted"]["brokers"] == [
        {"broker": 1, "in_bytes": 0, "out_bytes": 4 * GB},
        {"broker": 3, "in_bytes": 4 * GB, "out_bytes": 0},
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema":"pyrklog.reassign-progress/2"}',
        '{"schema":"pyrklog.reassign-progress/1"}',
        to_json(record()).replace('"batch": 0', '"batch": null', 1),
        to_json(record()).replace('"begun_ms": 1000000', '"begun_ms": "soon"'),
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        from_json(text)


def test_what_makes_a_topic_another_one() -> None:
    one = replace(record(), topic_ids={"t": "T"})
    assert from_json(to_json(one)) == one
    assert one.is_anew("t", {"t": "other"})
    assert not one.is_anew("t", {"t": "T"})
    assert not one.is_anew("t", {}), "no broker tells"
    assert not record().is_anew("t", {"t": "T"}), "kept by an older version"
    assert not record().is_anew("t", {})


def test_what_a_plan_may_leave_behind() -> None:
    one = replace(record(), handed_over={("t", 1): (2, 1)}, is_begun=False)
    assert from_json(to_json(one)) == one
    assert one.left_behind(("t", 0)) == {(1, 2), (1, 3)}
    # A cancelled move to 3,2 leaves 2,1.
    assert one.left_behind(("t", 1)) == {(1, 2), (2, 1), (3, 2)}
    assert cancelled((1, 2, 3), (3, 4, 1)) == (3, 1, 2)


def test_a_record_of_an_older_version() -> None:
    told = json.loads(to_json(record()))
    del told["topic_ids"], told["begun"]
    assert from_json(json.dumps(told)) == record()


def test_what_was_predicted_of_back_fills_and_what_was_learned() -> None:
    known = record()
    entry = replace(known.entries["t", 0], filled_bytes=GB, source=2, rate_in=12.5)
    one = replace(
        known,
        entries={**known.entries, ("t", 0): entry},
        at_end=frozenset({("t", 0)}),
        rate_from=RateFrom.ASSUMED,
        fill=Fill(GB, 1.0, 50.0, None, {3: 20_000_000}),
        corrected=Corrected(10.0, 30_000_000, 140.5),
        real_tail_s=1.5,
    )
    assert from_json(to_json(one)) == one
    assert one.fill_bytes == GB
    assert one.copies(("t", 0)) == [], "it copies nothing"
    (copy,) = one.copies(("t", 1))
    assert (copy.source, copy.target, copy.size_bytes) == (1, 3, 3 * GB)
