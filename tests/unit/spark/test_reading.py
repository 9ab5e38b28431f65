"""A task's rows: in Spark's types, each once, and what happens when records are lost."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, InputPartition, LessThan
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampType

from pyrklog.scanning import (
    LeaderNotAvailableError,
    ListedOffset,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicDeletedError,
    UnknownTopicError,
)
from pyrklog.spark import reading, stream
from pyrklog.spark.cluster import ClusterError, KafkaCluster
from pyrklog.spark.columns import SchemaError, check_schema, converted, schema
from pyrklog.spark.connection import Connection
from pyrklog.spark.given import OptionError
from pyrklog.spark.offsets import OffsetRange, TopicPartition
from pyrklog.spark.reader import PyrklogReader, Task
from pyrklog.spark.reading import TASK_MEMORY_BYTES, TRUNCATIONS_MAX, read_range
from pyrklog.spark.sizes import OTHER_COLUMNS_BYTES, samples_of
from pyrklog.spark.source import PyrklogSource
from pyrklog.spark.stream import PyrklogStreamReader

CONNECTION = Connection("h:1", rack="r")
RANGE = OffsetRange("t", 3, 10, 20, 4)
HEADER = pa.field(
    "item",
    pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]),
    nullable=False,
)
# As scan.md says.
SCANNED = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("headers", pa.list_(HEADER)),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "key": None,
        "value": b"v",
        "topic": "t",
        "partition": 3,
        "offset": 10,
        "timestamp": datetime(2024, 5, 6, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    },
    {
        "key": b"k",
        "value": None,
        "topic": "t",
        "partition": 3,
        "offset": 11,
        "timestamp": None,
        "timestampType": -1,
        "headers": None,
    },
]


class FakeScans:
    """Stands for ``pyrklog.scan``: each call takes the next script, the offsets to give and then
    what to raise."""

    def __init__(self, *scripts: tuple[range, Exception | None]) -> None:
        self.scripts = list(scripts)
        self.calls: list[dict[str, Any]] = []
        self.closed = 0

    def __call__(self, topics: object, **arguments: Any) -> Any:
        self.calls.append({"topics": topics} | arguments)
        offsets, error = self.scripts.pop(0)
        if error is not None and not offsets:
            is_plan = isinstance(error, UnknownTopicError | TopicDeletedError)
            if is_plan:
                raise error
        place = arguments["start"]["t"][3]
        position = place[0] if isinstance(place, tuple) else place

        def batches() -> Iterator[int]:
            nonlocal position
            for offset in offsets:
                position = offset + 1
                yield offset
            if error is not None:
                raise error

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(
            reader=batches,
            close=close,
            progress=lambda: [SimpleNamespace(position=position)],
        )


def read(scans: FakeScans, *, fails: bool = True, topic_id: str = "") -> list[Any]:
    one = RANGE._replace(topic_id=topic_id)
    return list(read_range(one, ["offset"], CONNECTION, fail_on_data_loss=fails, open_scan=scans))


def test_one_scan_reads_a_range() -> None:
    scans = FakeScans((range(10, 20), None))
    assert read(scans) == list(range(10, 20))
    (call,) = scans.calls
    assert call["topics"] == {"t": [3]}
    assert call["start"] == {"t": {3: ListedOffset(10, 4)}}
    assert isinstance(call["start"]["t"][3], ListedOffset)
    assert call["end"] == {"t": {3: 20}}
    assert (call["missing"], call["threads"], call["rack"]) == ("fail", 1, "r")
    assert call["memory_bytes"] == TASK_MEMORY_BYTES
    assert scans.closed == 1


def test_without_an_epoch_an_offset_is_the_start() -> None:
    scans = FakeScans((range(0), None))
    list(
        read_range(
            RANGE._replace(epoch=-1), ["key"], CONNECTION, fail_on_data_loss=True, open_scan=scans
        )
    )
    assert scans.calls[0]["start"] == {"t": {3: 10}}


@pytest.mark.parametrize(
    "loss", [LogTruncatedError, OffsetOutOfRangeError, TopicDeletedError, UnknownTopicError]
)
def test_a_loss_fails_the_task(loss: type[Exception]) -> None:
    scans = FakeScans((range(10, 12), loss("lost")))
    with pytest.raises(loss, match="lost"):
        read(scans)
    assert scans.closed == 1


def test_after_a_truncation_reading_goes_on_behind_the_last_row() -> None:
    scans = FakeScans((range(10, 14), LogTruncatedError("cut")), (range(14, 20), None))
    assert read(scans, fails=False) == list(range(10, 20))
    assert scans.calls[1]["start"] == {"t": {3: 14}}
    assert scans.calls[1]["missing"] == "skip"
    assert scans.closed == 2


def test_a_truncation_at_the_start_drops_the_epoch() -> None:
    scans = FakeScans((range(0), LogTruncatedError("cut")), (range(10, 20), None))
    assert read(scans, fails=False) == list(range(10, 20))
    assert scans.calls[1]["start"] == {"t": {3: 10}}


@pytest.mark.parametrize("loss", [OffsetOutOfRangeError, TopicDeletedError])
def test_a_position_that_is_not_there_ends_the_range(loss: type[Exception]) -> None:
    scans = FakeScans((range(10, 12), loss("gone")))
    assert read(scans, fails=False) == [10, 11]
    assert len(scans.calls) == 1


ANOTHER = (range(0), TopicDeletedError("it has another id"))


def test_another_topic_of_the_same_name_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ABSENT_S", 0.0)
    scans = FakeScans(ANOTHER, ANOTHER)
    with pytest.raises(TopicDeletedError, match="created anew before offsets 10 to 19 of t-3"):
        read(scans, topic_id="id")
    assert read(scans, topic_id="id", fails=False) == []
    assert [call["topic_ids"] for call in scans.calls] == [{"t": "id"}] * 2


def test_without_an_id_any_topic_is_read() -> None:
    """As before Kafka 2.8."""
    scans = FakeScans((range(10, 20), None))
    assert read(scans) == list(range(10, 20))
    assert "topic_ids" not in scans.calls[0]


def test_a_topic_that_is_gone_before_the_scan_gives_no_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "ABSENT_S", 0.0)
    assert read(FakeScans((range(0), UnknownTopicError("gone"))), fails=False) == []


@pytest.mark.parametrize("fails", [True, False])
def test_brokers_that_still_know_the_topic_before(fails: bool) -> None:
    scans = FakeScans(ANOTHER, (range(10, 20), None))
    assert read(scans, topic_id="id", fails=fails) == list(range(10, 20))


@pytest.mark.parametrize("fails", [True, False])
def test_a_broker_that_does_not_know_a_new_partition_yet(fails: bool) -> None:
    unknown = (range(0), UnknownTopicError("there is no partition t-3"))
    scans = FakeScans(unknown, unknown, (range(10, 20), None))
    assert read(scans, fails=fails) == list(range(10, 20))


def test_truncations_without_end_fail_the_task() -> None:
    scans = FakeScans(*[(range(0), LogTruncatedError("cut"))] * (TRUNCATIONS_MAX + 1))
    with pytest.raises(LogTruncatedError):
        read(scans, fails=False)
    assert scans.scripts == []


def test_other_failures_fail_the_task_in_any_case() -> None:
    with pytest.raises(LeaderNotAvailableError):
        read(FakeScans((range(10, 11), LeaderNotAvailableError("away"))), fails=False)


class FakeEnd:
    """Stands for the leader's high watermark; None where nobody answers."""

    def __init__(self, end: int | None) -> None:
        self.end = end
        self.closed = 0

    def __call__(self, connection: object) -> FakeEnd:
        return self

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self.end is None:
            raise ClusterError("nobody answers")
        return dict.fromkeys(places, self.end)

    def close(self) -> None:
        self.closed += 1


AWAY = LeaderNotAvailableError("the end does not come")
CUT = (range(10, 12), LogTruncatedError("cut"))


def read_cut(scans: FakeScans, end: FakeEnd, *, fails: bool = False) -> list[Any]:
    return list(
        read_range(
            RANGE,
            ["offset"],
            CONNECTION,
            fail_on_data_loss=fails,
            open_scan=scans,
            high_watermarks=end,
        )
    )


def test_after_a_truncation_the_range_ends_where_the_log_does() -> None:
    scans, end = FakeScans(CUT, (range(12, 14), AWAY), (range(14, 15), None)), FakeEnd(15)
    assert read_cut(scans, end) == list(range(10, 15))
    assert [call["end"]["t"][3] for call in scans.calls] == [20, 20, 15]
    assert scans.calls[2]["start"] == {"t": {3: 14}}
    assert (scans.closed, end.closed) == (3, 1)


def test_after_a_truncation_all_that_is_left_may_be_read() -> None:
    scans, end = FakeScans(CUT, (range(12, 14), AWAY)), FakeEnd(14)
    assert read_cut(scans, end) == list(range(10, 14))


@pytest.mark.parametrize("shown", [None, 20, 25])
def test_a_leader_that_is_away_after_a_truncation_fails_the_task(shown: int | None) -> None:
    scans, end = FakeScans(CUT, (range(12, 14), AWAY)), FakeEnd(shown)
    with pytest.raises(LeaderNotAvailableError):
        read_cut(scans, end)
    assert end.closed == 1


def test_an_end_that_does_not_come_is_no_loss_without_a_truncation() -> None:
    scans, end = FakeScans((range(10, 14), AWAY)), FakeEnd(14)
    with pytest.raises(LeaderNotAvailableError):
        read_cut(scans, end)
    assert end.closed == 0


def test_a_reader_that_stops_early_closes_the_scan() -> None:
    scans = FakeScans((range(10, 20), None))
    rows = read_range(RANGE, ["offset"], CONNECTION, fail_on_data_loss=True, open_scan=scans)
    assert next(iter(rows)) == 10
    rows.close()  # type: ignore[attr-defined]
    assert scans.closed == 1


@pytest.mark.parametrize("with_headers", [True, False])
def test_batches_have_exactly_sparks_schema(with_headers: bool) -> None:
    """Spark refuses batches that differ in nullability or in names of elements."""
    names = SCANNED.names if with_headers else SCANNED.names[:-1]
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCANNED).select(names)
    wanted = schema(with_headers=with_headers)
    (given,) = converted([batch], wanted)
    assert to_arrow_schema(wanted, timezone="UTC").equals(given.schema)
    assert given.to_pylist() == [{name: row[name] for name in names} for row in ROWS]


def test_some_columns_in_another_order() -> None:
    full = schema(with_headers=True)
    some = StructType([full["timestamp"], full["value"]])
    check_schema(some)
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCANNED).select(["timestamp", "value"])
    (given,) = converted([batch], some)
    assert given.schema.names == ["timestamp", "value"]


def test_a_schema_that_does_not_fit_is_told() -> None:
    wrong = StructType([StructField("value", TimestampType()), StructField("id", TimestampType())])
    with pytest.raises(SchemaError) as caught:
        check_schema(wrong)
    assert "column value is binary, and not timestamp" in str(caught.value)
    assert "there is no column id" in str(caught.value)
    with pytest.raises(SchemaError, match="without columns"):
        check_schema(StructType([]))


def source(**options: str) -> PyrklogSource:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | options
    return PyrklogSource({name.lower(): value for name, value in given.items()})


def test_readers_are_pickled_without_connections() -> None:
    full = schema(with_headers=False)
    for reader in (source().reader(full), source().streamReader(full)):
        again = pickle.loads(pickle.dumps(reader))
        assert isinstance(again, (PyrklogReader, PyrklogStreamReader))
    task = pickle.loads(pickle.dumps(Task(RANGE)))
    assert task.one == RANGE


@pytest.mark.parametrize("failing", ["require_bad_topic", "KafkaHighWatermarks", "KafkaGroup"])
def test_a_stream_that_cannot_begin_closes_its_cluster(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    closed: list[KafkaCluster] = []

    def fail(*_: object) -> None:
        raise OSError("no descriptor is left")

    monkeypatch.setattr(KafkaCluster, "close", lambda cluster: closed.append(cluster))
    monkeypatch.setattr(stream, failing, fail)
    reader = source(commitGroup="g").streamReader(schema(with_headers=False))
    with pytest.raises(OSError, match="no descriptor"):
        reader.initialOffset()
    assert len(closed) == 1


def test_filters_are_pushed_down_only_where_it_is_asked_for() -> None:
    """Spark refuses each reader that could, unless its configuration allows it."""
    full = schema(with_headers=False)
    assert not can_push(source().reader(full))
    assert not can_push(source(pushFilters="false").reader(full))
    assert can_push(source(pushFilters="once").reader(full))


def can_push(reader: DataSourceReader) -> bool:
    """As Spark finds it out."""
    return getattr(reader.pushFilters, "__func__", None) is not DataSourceReader.pushFilters


def test_all_filters_are_given_back_as_they_are() -> None:
    """Spark knows them by their identity."""
    reader = source(pushFilters="once").reader(schema(with_headers=False))
    filters = [EqualTo(("partition",), 3), LessThan(("timestamp",), datetime(2026, 1, 1))]
    assert [id(one) for one in reader.pushFilters(list(filters))] == [id(one) for one in filters]


def test_sparks_own_partition_has_no_rows() -> None:
    """Spark makes one if a plan has none."""
    reader = source().reader(schema(with_headers=False))
    assert list(reader.read(InputPartition(None))) == []


def test_the_schema_follows_include_headers() -> None:
    assert "headers" not in source().schema().fieldNames()
    assert source(includeHeaders=" True ").schema().fieldNames()[-1] == "headers"
    assert PyrklogSource.name() == "pyrklog"


def test_options_are_checked_before_anything_is_asked() -> None:
    with pytest.raises(OptionError, match="a stream has no end"):
        source(endingOffsets="latest").streamReader(schema(with_headers=False))
    with pytest.raises(OptionError, match="did you mean minPartitions"):
        source(minPartition="3").reader(schema(with_headers=False))


def test_sampled_bytes() -> None:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SCANNED)
    plain = batch.select(["topic", "partition", "offset", "key", "value"])
    place = TopicPartition("t", 3)
    sample = samples_of(plain)[place]
    assert sample.bytes == 2 + 2 * OTHER_COLUMNS_BYTES
    assert [sample.first, sample.last] == [row["offset"] for row in ROWS]
    assert samples_of(batch)[place].bytes > sample.bytes
    assert samples_of(plain.slice(0, 0)) == {}
