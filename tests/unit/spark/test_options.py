"""Options as Spark gives them, and every way to get them wrong."""

from __future__ import annotations

import re

import pytest

from pyrklog.spark.admission import Limits
from pyrklog.spark.given import OptionError
from pyrklog.spark.offsets import TopicPartition
from pyrklog.spark.option_names import SPELLING
from pyrklog.spark.options import (
    Assign,
    Pattern,
    SourceOptions,
    Subscribe,
    parse,
)
from pyrklog.spark.places import EARLIEST, LATEST, Kind, Place
from pyrklog.spark.planning import TaskLimits

REQUIRED = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


def stream(**options: str) -> SourceOptions:
    return parse(REQUIRED | options, is_stream=True)


def batch(**options: str) -> SourceOptions:
    return parse(REQUIRED | options, is_stream=False)


def kafka(name: str, value: str) -> SourceOptions:
    return parse(REQUIRED | {f"kafka.{name}": value}, is_stream=True)


def test_defaults_are_the_stock_connectors() -> None:
    options = stream()
    assert options.selection == Subscribe(("orders",))
    assert options.starting.everywhere == LATEST
    assert batch().starting.everywhere == EARLIEST
    assert batch().ending.everywhere == LATEST
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert not options.latest_if_no_record_is_so_late
    assert options.limits == Limits()
    assert options.tasks == TaskLimits()
    assert options.max_delay_s == 900
    assert options.commit_group is None
    assert not options.push_filters
    assert options.ignored == ()
    # But for this one.
    assert options.connection.isolation == "read_committed"


def test_filters_are_of_batches() -> None:
    assert batch(pushFilters="Once").push_filters
    assert not batch(pushFilters="false").push_filters
    assert batch(pushFilters="once").ignored == ()
    assert stream(pushFilters="once").ignored == ("pushFilters",)
    with pytest.raises(OptionError, match="it can be false or once"):
        batch(pushFilters="true")


def test_names_in_any_case() -> None:
    """Spark gives them in lower case."""
    options = parse(
        {name.lower(): value for name, value in REQUIRED.items()}
        | {"maxoffsetspertrigger": "5", "FAILONDATALOSS": "False"},
        is_stream=True,
    )
    assert options.limits == Limits(5)
    assert not options.fail_on_data_loss


def test_all_limits() -> None:
    options = stream(
        maxOffsetsPerTrigger="1000",
        maxBytesPerTrigger="2000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="90s",
        minPartitions="6",
        maxRecordsPerPartition="50",
        maxBytesPerPartition="70",
        commitGroup="etl",
    )
    assert options.limits == Limits(1000, 2000)
    assert options.min_records == 10
    assert options.max_delay_s == 90
    assert options.tasks == TaskLimits(6, 50, 70)
    assert options.commit_group == "etl"


def test_a_delay_without_a_unit_has_milliseconds() -> None:
    """As the stock connector reads it."""
    assert stream(maxTriggerDelay="90500").max_delay_s == 90.5


def test_every_option_of_the_stock_connectors_guide_is_taken() -> None:
    """By streams and by batches, where it has them."""
    both = {
        "startingTimestamp": "1000",
        "startingOffsetsByTimestamp": '{"a": {"0": 1000, "1": 3000}}',
        "startingOffsets": '{"a": {"0": 23, "1": -2}}',
        "startingOffsetsByTimestampStrategy": "latest",
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "120000",
        "fetchOffset.numRetries": "3",
        "fetchOffset.retryIntervalMs": "10",
        "minPartitions": "10",
        "maxRecordsPerPartition": "100",
        "groupIdPrefix": "spark-kafka-source",
        "kafka.group.id": "etl",
        "includeHeaders": "true",
    }
    of_streams = {
        "maxOffsetsPerTrigger": "100",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "15m",
    }
    of_batches = {
        "endingTimestamp": "1000",
        "endingOffsetsByTimestamp": '{"a": {"0": 1000, "1": 3000}}',
        "endingOffsets": '{"a": {"0": 50, "1": -1}}',
    }
    without_effect = (
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
        "kafka.group.id",
        "kafkaConsumer.pollTimeoutMs",
    )
    found = stream(**both, **of_streams)
    assert sorted(found.ignored) == sorted(without_effect)
    assert (found.latest_if_no_record_is_so_late, found.include_headers) == (True, True)
    found = batch(**both, **of_streams, **of_batches)
    assert sorted(found.ignored) == sorted((*without_effect, *of_streams))
    assert found.ending.option == "endingTimestamp"


def test_topics() -> None:
    assert stream(subscribe=" b , a,,b ").selection == Subscribe(("b", "a"))
    del_subscribe = {"kafka.bootstrap.servers": "h:1"}
    chosen = parse(del_subscribe | {"subscribePattern": "or.*"}, is_stream=True).selection
    assert chosen == Pattern(re.compile("or.*"))
    assigned = parse(del_subscribe | {"assign": '{"a": [2, 0, 2], "b": [1]}'}, is_stream=True)
    assert assigned.selection == Assign({"a": (0, 2), "b": (1,)})


def test_places() -> None:
    starting = stream(startingOffsets='{"a": {"0": 23, "1": -1, "2": -2}}').starting
    assert starting.single == {A0: Place(Kind.OFFSET, 23), A1: LATEST, A2: EARLIEST}
    assert starting.of(A1) == LATEST
    assert starting.of(TopicPartition("a", 3)) is None
    times = batch(endingOffsetsByTimestamp='{"a": {"0": 1700000000000}}').ending
    assert times.single == {A0: Place(Kind.TIMESTAMP, 1_700_000_000_000)}
    assert stream(startingTimestamp="17").starting.of(A2) == Place(Kind.TIMESTAMP, 17)


def test_the_order_of_starting_places_is_the_stock_connectors() -> None:
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a": {"0": 5}}',
        "startingTimestamp": "7",
    }
    assert stream(**given).starting.option == "startingTimestamp"
    del given["startingTimestamp"]
    assert stream(**given).starting.option == "startingOffsetsByTimestamp"


def test_kafkas_options() -> None:
    assert kafka("client.id", "x").connection.client_id == "x"
    assert kafka("client.rack", "r1").connection.rack == "r1"
    assert kafka("isolation.level", "read_uncommitted").connection.isolation == "read_uncommitted"
    assert kafka("default.api.timeout.ms", "1500").connection.timeout_s == 1.5
    assert kafka("request.timeout.ms", "250").connection.request_timeout_s == 0.25
    assert not kafka("check.crcs", "false").connection.check_crcs
    large = stream(largeBytes="200000000").connection.scan_arguments()
    assert large["large_bytes"] == 200_000_000
    assert stream().connection.scan_arguments()["large_bytes"] == 100 << 20
    assert kafka("bootstrap.servers", "a:1, [::1]:2,").connection.bootstrap_servers == "a:1,[::1]:2"
    assert kafka("security.protocol", "PLAINTEXT") == stream()


def test_options_without_effect_are_named() -> None:
    assert kafka("max.poll.records", "5").ignored == ("kafka.max.poll.records",)
    assert stream(groupIdPrefix="x").ignored == ("groupIdPrefix",)
    assert batch(maxOffsetsPerTrigger="5").ignored == ("maxOffsetsPerTrigger",)
    assert stream(maxOffsetsPerTrigger="5").ignored == ()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("subscirbe", "no option subscirbe; did you mean subscribe?"),
        ("startingoffset", "did you mean startingOffsets?"),
        ("maxOffsetPerTrigger", "did you mean maxOffsetsPerTrigger?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("kafka.isolation", "no option kafka.isolation"),
        ("kafka.isolation.levl", "did you mean kafka.isolation.level?"),
        ("kafka.auto.offset.reset", "use startingOffsets"),
        ("kafka.enable.auto.commit", "use commitGroup"),
        ("kafka.sasl.jaas.config", "no effect: security.protocol is PLAINTEXT"),
        ("kafka.ssl.truststore.location", "no effect: security.protocol is PLAINTEXT"),
        ("delivery", "it is of writes"),
        ("txnAppId", "option txnAppId: it is of writes"),
        ("checkpointLocation", "option checkpointLocation: it is of writeStream"),
        ("path", "use option subscribe"),
        ("endingOffsets", "a stream has no end"),
        ("zzzzzzzz", "there is no option zzzzzzzz$"),
    ],
)
def test_a_wrong_name_is_named(name: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        stream(**{name: "x"})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("failOnDataLoss", "yes", "true or false"),
        ("includeHeaders", "", "true or false"),
        ("maxOffsetsPerTrigger", "0", "from 1"),
        ("maxOffsetsPerTrigger", "1e6", "from 1"),
        ("maxOffsetsPerTrigger", "9" * 5000, "from 1"),
        ("maxBytesPerTrigger", "-1", "from 1"),
        ("maxBytesPerTrigger", "10MB", "from 1"),
        ("minPartitions", "100001", "to 100000"),
        ("minPartitions", "²", "from 1"),
        ("maxTriggerDelay", "soon", "500ms, 10s"),
        ("maxTriggerDelay", "9" * 16, "500ms, 10s"),
        ("largeBytes", "65535", "from 65536 to 536870912"),
        ("largeBytes", "536870913", "from 65536 to 536870912"),
        ("largeBytes", "1g", "from 65536 to 536870912"),
        ("maxTriggerDelay", "36501d", "500ms, 10s"),
        ("commitGroup", " ", "needs a name"),
        ("subscribe", " , ", "names no topic"),
        ("subscribe", "orders.*", "a pattern is for option subscribePattern"),
        ("subscribe", "a/b", "no topic can have the name 'a/b'"),
        ("subscribe", "..", "no topic"),
        ("startingOffsets", "begin", "earliest, latest or"),
        ("startingOffsets", "{", "is no JSON"),
        ("startingOffsets", "[1]", "earliest, latest or"),
        ("startingOffsets", "{}", "names no partition"),
        ("startingOffsets", '{"a": 5}', "topic 'a' needs an object"),
        ("startingOffsets", '{"a": {"x": 5}}', "partition 'x'"),
        ("startingOffsets", '{"a": {"0": -3}}', "a-0 has -3"),
        ("startingOffsets", '{"a": {"0": 1.5}}', "a-0 has 1.5"),
        ("startingOffsets", '{"a": {"0": true}}', "a-0 has True"),
        ("startingOffsets", '{"a": {"0": 1, "0": 2}}', "'0' is there twice"),
        ("startingOffsets", '{"a": ' * 100_000, "is no JSON"),
        ("startingTimestamp", "2024-01-01", "milliseconds since 1970"),
        ("startingOffsetsByTimestamp", '{"a": {"0": -1}}', "a-0 has -1"),
        ("startingOffsetsByTimestamp", "latest", "is no JSON"),
        ("startingOffsetsByTimestampStrategy", "earliest", "error or latest"),
    ],
)
def test_a_wrong_value_is_told(name: str, value: str, told: str) -> None:
    with pytest.raises(OptionError, match=re.escape(told)) as caught:
        stream(**{name: value})
    assert name in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("bootstrap.servers", "localhost", "'localhost' is not HOST:PORT"),
        ("bootstrap.servers", "h:99999", "is not HOST:PORT"),
        ("bootstrap.servers", ",", "names no broker"),
        ("isolation.level", "serializable", "read_committed or read_uncommitted"),
        ("security.protocol", "SASL_SSL", "sasl.mechanism is needed"),
        ("request.timeout.ms", "0", "from 1"),
    ],
)
def test_a_wrong_value_of_kafkas_is_told(name: str, value: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        kafka(name, value)


def test_a_batch_starts_before_latest_and_ends_after_earliest() -> None:
    for name, value in (
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"a": {"0": -1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"a": {"0": -2}}'),
    ):
        with pytest.raises(OptionError, match=f"{name}: a batch cannot"):
            batch(**{name: value})


def test_one_selection_is_needed() -> None:
    with pytest.raises(OptionError, match=r"subscribe and subscribePattern are given"):
        stream(subscribePattern="x")
    with pytest.raises(OptionError, match="none is given"):
        parse({"kafka.bootstrap.servers": "h:1"}, is_stream=True)
    for name, value in (("subscribePattern", "("), ("assign", '{"a": []}'), ("assign", "a")):
        with pytest.raises(OptionError, match=name):
            parse({"kafka.bootstrap.servers": "h:1", name: value}, is_stream=True)


def test_limits_that_contradict() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger is 10, more than"):
        stream(minOffsetsPerTrigger="10", maxOffsetsPerTrigger="9")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        parse({"subscirbe": "a", "failOnDataLoss": "x", "minPartitions": "0"}, is_stream=True)
    told = str(caught.value).splitlines()
    assert len(told) == 5
    assert "kafka.bootstrap.servers is needed" in "".join(told)


def test_every_known_name_is_spelt_once() -> None:
    assert all(name == spelling.lower() for name, spelling in SPELLING.items())
    assert SPELLING["startingoffsetsbytimestampstrategy"] == "startingOffsetsByTimestampStrategy"


def test_a_table() -> None:
    options = parse({"kafka.bootstrap.servers": "h:1", "table": " users "}, is_stream=False)
    assert options.is_table
    assert options.selection == Subscribe(("users",))
    assert options.starting.everywhere == EARLIEST
    assert not batch().is_table


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("subscribe", "a", "subscribe and table are given"),
        ("startingOffsets", "earliest", "startingOffsets beside table: a table is the whole topic"),
        ("endingTimestamp", "5", "endingTimestamp beside table: a table is the whole topic"),
        ("minPartitions", "5", "minPartitions beside table: the last value of a key"),
        ("table", "a,b", "no topic can have the name 'a,b'"),
    ],
)
def test_what_makes_no_sense_beside_a_table_is_told(name: str, value: str, told: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "table": "users", name: value}
    with pytest.raises(OptionError, match=told):
        parse(given, is_stream=False)


def test_a_table_is_no_stream() -> None:
    with pytest.raises(OptionError, match=r"read it with spark\.read"):
        parse({"kafka.bootstrap.servers": "h:1", "table": "users"}, is_stream=True)
