"""Which record was refused, and what is said of it; both clusters are fake."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from pyrklog.mirror import Cluster, Names, Pace, Policy, refused
from pyrklog.mirror.copy import WRITTEN, Copier
from pyrklog.mirror.refused import Options, broken_bound, explain
from pyrklog.producing import ProduceError, RecordTooLargeError
from pyrklog.scanning import BrokerNotAvailableError, PartitionProgress

NAMES = Names("east", "west", Policy.PREFIX, "m")
HOUR_MS = 3_600_000
NO_LIMIT = str(2**63 - 1)
TOO_LARGE = "partition 1 of topic east.t takes no record so large (max.message.bytes): a record "
TOO_LARGE += "takes 2061 bytes"
NOT_WRITTEN = "partition 1 of topic east.t is not written (records are bad): "


class FakeAdmin:
    """Of a cluster; ``batches`` are those of any partition, from any place."""

    def __init__(self, alias: str, batches: list[pa.RecordBatch], **options: str) -> None:
        self.cluster = Cluster(alias, "h:1")
        self.batches = batches
        self.asked: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self._options = {name.replace("_", "."): value for name, value in options.items()}
        self.own: set[str] = set()

    def options(self, topics: Sequence[str]) -> dict[str, Options]:
        known = {name: (value, name in self.own) for name, value in self._options.items()}
        return dict.fromkeys(topics, known)


def read(admin: FakeAdmin, partitions: Any, **how: Any) -> Iterator[pa.RecordBatch]:
    admin.asked.append({"partitions": partitions, **how})
    if admin.failure is not None:
        raise admin.failure
    yield from (batch.select(list(how["columns"])) for batch in admin.batches)


@pytest.fixture(autouse=True)
def _without_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused, "_batches", read)


def records(offsets: Sequence[int], **others: dict[int, Any]) -> pa.RecordBatch:
    """``others``: keys and timestamps (ms) that some offsets have instead of the usual ones."""
    keys, times = others.get("keys", {}), others.get("times", {})
    now_ms = int(time.time() * 1000)
    return pa.record_batch(
        {
            "key": pa.array([keys.get(one, b"k") for one in offsets], pa.binary()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(
                [times.get(one, now_ms) for one in offsets], pa.timestamp("ms", "UTC")
            ).cast(pa.timestamp("us", "UTC")),
        }
    )


class Nothing:
    """A producer that takes all, and a scan that gives one batch."""

    def __init__(self, offsets: Sequence[int]) -> None:
        count = len(offsets)
        headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        columns = {
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array([b"v"] * count, pa.binary()),
            "topic": pa.array(["t"] * count),
            "partition": pa.array([1] * count, pa.int32()),
            "headers": pa.nulls(count, headers),
            "timestamp": pa.array([1] * count, pa.timestamp("us", "UTC")),
        }
        assert tuple(columns) == WRITTEN
        self._left = [pa.record_batch({**columns, "offset": pa.array(offsets, pa.int64())})]
        self._end = offsets[-1] + 1
        self.topic_ids = {"t": "id"}

    def send(self, batch: pa.RecordBatch) -> None:
        assert batch.num_rows

    def commit(self) -> None:
        raise RecordTooLargeError(TOO_LARGE)

    @property
    def has_ended(self) -> bool:
        return not self._left

    def next_batch(self, _timeout_s: float) -> Any:
        return self._left.pop() if self._left else None

    def progress(self) -> list[PartitionProgress]:
        return [PartitionProgress("t", 1, 0, self._end, self._end, 3, 1, 100, 0)]


def copying(offsets: Sequence[int]) -> Copier:
    """With an open transaction, which a target that ended at 70 did not take."""
    nothing = Nothing(offsets)
    copier = Copier(NAMES, nothing, {}, {("east.t", 1): 70}, Pace())
    with pytest.raises(RecordTooLargeError):
        copier.copy(nothing, until=1e9)
    return copier


def told(error: Exception, source: FakeAdmin, target: FakeAdmin, copier: Copier) -> Any:
    given: Any = (source, target)
    return explain(error, copier, *given)


OFFSETS = [5, 6, 9, 10, 14]


def test_as_many_as_the_target_has_come_before_the_refused_record() -> None:
    east = FakeAdmin("east", [records([5, 6]), records([9, 10, 14]), records([15])])
    west = FakeAdmin("west", [records([70, 71]), records([72])], max_message_bytes="2000")
    error = told(RecordTooLargeError(TOO_LARGE), east, west, copying(OFFSETS))
    assert error.what == (
        "offset 10 of partition 1 of topic t at east is not copied: the record takes 2061 bytes, "
        "and topic east.t at west takes at most 2000 (max.message.bytes)"
    )
    assert error.fix == (
        "raise max.message.bytes of topic east.t at west to 2061; or leave the topic out, so that "
        "others go on: --topics '(?!t$).*'"
    )
    assert west.asked[0]["partitions"] == {"east.t": [1]}
    assert (west.asked[0]["start"], west.asked[0]["isolation"]) == (70, "read_uncommitted")
    assert (east.asked[0]["partitions"], east.asked[0]["start"]) == ({"t": [1]}, 5)


def test_the_sources_own_limit_is_raised_there() -> None:
    east = FakeAdmin("east", [records(OFFSETS)], max_message_bytes="2000")
    east.own = {"max.message.bytes"}
    west = FakeAdmin("west", [], max_message_bytes="2000")
    error = told(RecordTooLargeError(TOO_LARGE), east, west, copying(OFFSETS))
    assert "offset 5 of partition 1" in error.what
    assert error.fix.startswith(
        "raise max.message.bytes of topic t at east, which is copied, to 2061;"
    )


@pytest.mark.parametrize(("hours", "which"), [(2, "after"), (-2, "before")])
def test_the_first_timestamp_of_the_batch_that_breaks_a_bound(hours: int, which: str) -> None:
    """One that was taken breaks it, too: the option may have been changed since."""
    at = int(time.time() * 1000) + hours * HOUR_MS
    east = FakeAdmin("east", [records(OFFSETS, times={5: at, 10: at, 14: at})])
    option = f"message_timestamp_{which}_max_ms"
    west = FakeAdmin("west", [records([70])], **{option: str(HOUR_MS)})
    error = told(ProduceError(NOT_WRITTEN + "INVALID_TIMESTAMP"), east, west, copying(OFFSETS))
    assert error.what.startswith("offset 10 of partition 1 of topic t at east is not copied: its")
    assert error.what.endswith(f"takes (message.timestamp.{which}.max.ms={HOUR_MS})")
    assert f"raise message.timestamp.{which}.max.ms of topic east.t at west;" in error.fix


def test_a_record_without_a_key() -> None:
    east = FakeAdmin("east", [records(OFFSETS, keys={9: None})])
    error = told(
        ProduceError(NOT_WRITTEN + "INVALID_RECORD"), east, FakeAdmin("west", []), copying(OFFSETS)
    )
    assert error.what.startswith("offset 9 of partition 1 of topic t at east is not copied: the ")
    assert error.fix.startswith("take compact out of cleanup.policy of topic east.t at west;")


@pytest.mark.parametrize("code", ["INVALID_TIMESTAMP", "INVALID_RECORD", "POLICY_VIOLATION"])
def test_of_other_refusals_the_batch_is_named(code: str) -> None:
    """So of a timestamp that only the broker's clock refuses."""
    east = FakeAdmin("east", [records(OFFSETS)])
    west = FakeAdmin("west", [records([70])])
    error = told(ProduceError(NOT_WRITTEN + code), east, west, copying(OFFSETS))
    assert error.what == (
        "a batch that begins with offset 6 of partition 1 of topic t at east is not copied: "
        f"{NOT_WRITTEN}{code}"
    )
    assert error.fix.startswith("leave the topic out")


def test_what_is_no_refusal_of_a_mirrored_record_has_no_place() -> None:
    east, west = FakeAdmin("east", [records(OFFSETS)]), FakeAdmin("west", [])
    copier = copying(OFFSETS)
    for text in (
        "there is no topic x",
        "partition 0 of topic east.t is not written: POLICY_VIOLATION",
        "partition 1 of topic pyrklog-mirror.m.state.internal is not written: POLICY_VIOLATION",
    ):
        assert told(ProduceError(text), east, west, copier) is None
    assert east.asked == west.asked == []


@pytest.mark.parametrize("side", ["source", "target", "gone"])
def test_a_place_that_cannot_be_read_is_not_told(side: str) -> None:
    east, west = FakeAdmin("east", [records(OFFSETS)]), FakeAdmin("west", [])
    failure = BrokerNotAvailableError("away")
    if side == "gone":
        east.batches = []
    else:
        (east if side == "source" else west).failure = failure
    assert told(RecordTooLargeError(TOO_LARGE), east, west, copying(OFFSETS)) is None


@pytest.mark.parametrize(
    ("options", "past", "future"),
    [
        ({}, None, None),
        ({"before": NO_LIMIT, "after": NO_LIMIT, "difference": NO_LIMIT}, None, None),
        ({"before": "10", "after": "20"}, "before", "after"),
        ({"difference": "10"}, "difference", "difference"),
        ({"before": NO_LIMIT, "after": "5000", "difference": "10"}, "difference", None),
        ({"before": "1000", "after": "1000"}, None, None),
    ],
)
def test_which_bound_a_timestamp_breaks(
    options: dict[str, str], past: str | None, future: str | None
) -> None:
    """The older option counts where the newer one is not set, as in Kafka."""
    given = {f"message.timestamp.{name}.max.ms": (one, False) for name, one in options.items()}
    found = [broken_bound(now, given, 100_000) for now in (99_500, 100_500)]
    names = [None if one is None else one.option.split(".")[2] for one in found]
    assert names == [past, future]
    assert broken_bound(None, given, 100_000) is broken_bound(-1, given, 100_000) is None
