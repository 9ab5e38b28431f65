"""Where records of dead-letter topics go, by what different programs write into their headers."""

import struct
from typing import Any

import pytest

from pyrklog.cli.record_filter import parse_filters
from pyrklog.cli.records import Headers, Record
from pyrklog.cli.redrive_rules import Left, Moved, Reason, Rules

TOPICS = {"orders": 3, "payments": 1, "dlq": 2, "__consumer_offsets": 50, "__canary": 1}
TIME_MS, ORIGINAL_MS = 1_700_000_000_000, 1_600_000_000_000
CONNECT: Headers = (
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"2"),
    ("__connect.errors.offset", b"17"),
    ("__connect.errors.exception.message", b"bad"),
)
STREAMS: Headers = (
    ("__streams.errors.exception", b"E"),
    ("__streams.errors.topic", b"orders"),
    ("__streams.errors.partition", b"2"),
)
SPRING: Headers = (
    ("kafka_dlt-exception-fqcn", b"E"),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", struct.pack(">i", 2)),
    ("kafka_dlt-original-timestamp", struct.pack(">q", ORIGINAL_MS)),
)
SPRING_RETRY: Headers = (
    ("retry_topic-attempts", struct.pack(">i", 3)),
    ("kafka_original-topic", b"orders"),
    ("kafka_original-partition", struct.pack(">i", 2)),
    ("kafka_original-timestamp", struct.pack(">q", ORIGINAL_MS)),
    ("kafka_exception-message", b"bad"),
)
SPRING_CLOUD: Headers = (
    ("x-original-topic", b"orders"),
    ("x-original-partition", struct.pack(">i", 2)),
    ("x-original-timestamp", struct.pack(">q", ORIGINAL_MS)),
    ("x-exception-message", b"bad"),
)
SMALLRYE: Headers = (
    ("dead-letter-reason", b"bad"),
    ("dead-letter-topic", b"orders"),
    ("dead-letter-partition", b"2"),
)
OURS = (("pyrklog.redrive.count", b"1"), ("pyrklog.redrive.from", b"dlq:1@5"))


def record(headers: Headers) -> Record:
    return Record("dlq", 1, 5, TIME_MS, "CreateTime", 0, headers, b"k", b"v")


def rules(**more: Any) -> Rules:
    return Rules("dlq", TOPICS, **more)


@pytest.mark.parametrize(
    ("headers", "timestamp_ms"),
    [
        pytest.param(CONNECT, TIME_MS, id="connect"),
        pytest.param(STREAMS, TIME_MS, id="streams"),
        pytest.param(SPRING, ORIGINAL_MS, id="spring"),
        pytest.param(SPRING_RETRY, ORIGINAL_MS, id="spring-retry"),
        pytest.param(SPRING_CLOUD, ORIGINAL_MS, id="spring-cloud"),
        pytest.param(SMALLRYE, TIME_MS, id="smallrye"),
    ],
)
def test_a_record_goes_back_as_it_was(headers: Headers, timestamp_ms: int) -> None:
    own: Headers = (("trace", b"1"), ("trace", None))
    found = rules().decide(record((own[0], *headers, own[1])))
    assert isinstance(found, Moved)
    assert found.topic == "orders"
    assert found.record.headers == (*own, *OURS)
    assert (found.record.key, found.record.value) == (b"k", b"v")
    assert (found.record.partition, found.record.timestamp_ms) == (2, timestamp_ms)


def test_options_of_what_stays() -> None:
    found = rules(by_key=True, now=True, keeps_headers=True).decide(record(SPRING))
    assert isinstance(found, Moved)
    assert found.record.headers == (*SPRING, *OURS)
    assert (found.record.partition, found.record.timestamp_ms) == (None, None)


def test_the_last_headers_count() -> None:
    twice = (*SPRING, ("kafka_dlt-original-topic", b"payments"))
    found = rules().decide(record(twice))
    assert isinstance(found, Moved)
    assert (found.topic, found.record.partition) == ("payments", None)  # which has one partition
    other = rules().decide(record((*twice, *CONNECT)))
    assert isinstance(other, Moved)
    assert (other.topic, other.record.headers) == ("orders", OURS)


@pytest.mark.parametrize(
    "partition", [b"", b"-1", b"3", b"x", b"\xff\xff\xff\xff", b"9" * 30, b"\0\0\0\x02\0"]
)
def test_a_partition_that_cannot_be(partition: bytes) -> None:
    headers = (("__connect.errors.topic", b"orders"), ("__connect.errors.partition", partition))
    found = rules().decide(record(headers))
    assert isinstance(found, Moved)
    assert found.record.partition is None


def test_chosen_targets() -> None:
    found = rules(to="payments").decide(record(CONNECT))
    assert isinstance(found, Moved)
    assert (found.topic, found.record.partition) == ("payments", None)
    named = rules(header="origin").decide(record((*CONNECT, ("origin", b"payments"))))
    assert isinstance(named, Moved)
    assert named.topic == "payments"
    assert named.record.headers == (("origin", b"payments"), *OURS)
    same = rules(to="orders").decide(record(CONNECT))
    assert isinstance(same, Moved)
    assert same.record.partition == 2
    assert rules(header="origin").decide(record(CONNECT)) == Left(Reason.NO_HEADER)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ((), Reason.NO_HEADER),
        ((("__connect.errors.topic", None),), Reason.NO_HEADER),
        ((("__connect.errors.topic", b""),), Reason.NO_HEADER),
        ((("__connect.errors.topic", b"\xff"),), Reason.NO_HEADER),
        ((("__connect.errors.topic", b"gone"),), Reason.NO_TOPIC),
        ((("__connect.errors.topic", b"g" * 10_000_000),), Reason.NO_TOPIC),
        ((("__connect.errors.topic", b"dlq"),), Reason.SAME_TOPIC),
        ((("__connect.errors.topic", b"__consumer_offsets"),), Reason.INTERNAL),
        ((("__connect.errors.topic", b"__pyrklog_spark_sink"),), Reason.INTERNAL),
    ],
)
def test_a_record_that_stays(headers: Headers, reason: Reason) -> None:
    found = rules().decide(record(headers))
    assert isinstance(found, Left)
    assert found.reason is reason
    assert len(found.topic or "") < 250


def test_a_filter_comes_first() -> None:
    conditions = parse_filters(["header:trace"], TIME_MS)
    assert rules(conditions=conditions).decide(record(())) == Left(Reason.FILTER)
    found = rules(conditions=conditions).decide(record((*CONNECT, ("trace", b"1"))))
    assert isinstance(found, Moved)


@pytest.mark.parametrize(
    ("count", "most", "after"),
    [
        (None, 1, b"1"),
        (b"1", 1, None),
        (b"1", 2, b"2"),
        (b"2", 3, b"3"),
        (b"3", 3, None),
        (b"1000", 3, None),
        (b"not a count", 3, b"1"),
        (b"9" * 5000, 3, b"1"),
    ],
)
def test_redrives_are_counted_and_end(count: bytes | None, most: int, after: bytes | None) -> None:
    headers = CONNECT if count is None else (*CONNECT, ("pyrklog.redrive.count", count))
    found = rules(max_redrives=most).decide(record(headers))
    if after is None:
        assert found == Left(Reason.TOO_OFTEN, "orders")
    else:
        assert isinstance(found, Moved)
        counts = [value for name, value in found.record.headers if name == "pyrklog.redrive.count"]
        assert counts == [after]


def test_underscores_make_no_topic_internal() -> None:
    found = rules().decide(record((("__connect.errors.topic", b"__canary"),)))
    assert isinstance(found, Moved)
    assert found.topic == "__canary"
