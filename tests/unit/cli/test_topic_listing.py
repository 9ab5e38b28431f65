"""Items of ``topic list`` from made-up measures."""

from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Listing, render
from pyrklog.cli.topic_description import readers_of
from pyrklog.cli.topic_listing import COLUMNS, Measures, _item, for_people
from pyrklog.cli.topic_measures import PartitionPlace, Rate, Sizes, TopicStates, _adding
from pyrklog.protocol.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from pyrklog.protocol.reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

PARTITIONS = [PartitionPlace(0, 1, [1, 2], [1, 2]), PartitionPlace(1, -1, [1, 2], [2])]
SIZES = Sizes({("t", 0): 3_000_000, ("t", 1): 1_000_000})
RATES = {("t", 0): Rate(2.0, 100), ("t", 1): Rate(0.0, 0)}


def test_all_is_known() -> None:
    item = _item("t", PARTITIONS, Measures(SIZES, RATES, {"t": 2}))
    assert item == {
        "name": "t",
        "partitions": 2,
        "replication_factor": 2,
        "under_replicated": 1,
        "offline": 1,
        "internal": False,
        "size": 4_000_000,
        "skew": 1.5,
        "records_per_second": 2.0,
        "bytes_per_second": 60_000,
        "groups": 2,
    }
    assert render(for_people(Listing("x/1", COLUMNS, [item])), OutputFormat.TABLE) == (
        "NAME  PARTS  RF  SIZE     IN/S  GROUPS  UNDER-REP\n"
        "t         2   2  4 MB  60 kB/s       2          1\n"
    )


@pytest.mark.parametrize(
    ("name", "is_internal"),
    [
        ("__consumer_offsets", True),
        ("__transaction_state", True),
        ("__share_group_state", True),
        ("__pyrklog_spark_sink", True),
        ("__debezium-heartbeat.x", False),
        ("__strimzi_canary", False),
        ("__CruiseControlMetrics", False),
    ],
)
def test_internal_topics_are_known_by_name(name: str, *, is_internal: bool) -> None:
    assert _item(name, PARTITIONS, Measures())["internal"] is is_internal


def test_replicas_that_are_being_added_lack_nothing() -> None:
    moving = PartitionPlace(0, 1, [3, 1, 2], [1, 2], adding=[3])
    assert _item("t", [moving], Measures())["under_replicated"] == 0
    assert _item("t", [moving._replace(isr=[1])], Measures())["under_replicated"] == 1


def test_the_controller_tells_what_is_being_added() -> None:
    asked = []

    def ask(address: tuple[str, int], api: Any, _request: object) -> Any:
        asked.append((address, api.name))
        if isinstance(answer, CliError):
            raise answer
        return answer

    def adding(isr: list[int], controller: int = 2) -> dict[tuple[str, int], list[int]]:
        partition = MetadataPartition(0, 0, 1, 0, [1, 2, 3], isr, [])
        topic = MetadataTopic(0, "t", False, [partition])
        brokers = [MetadataBroker(number, f"h{number}", 9092) for number in (1, 2)]
        told = MetadataResponse(0, brokers, "id", controller, [topic])
        requests: Any = SimpleNamespace(ask=ask)
        return _adding(requests, told)

    moving = OngoingPartitionReassignment(0, [1, 2, 3], [3], [])
    answer: Any = ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment("t", [moving])]
    )
    assert adding([1, 2]) == {("t", 0): [3]}
    assert asked == [(("h2", 9092), LIST_PARTITION_REASSIGNMENTS.name)]
    assert adding([1, 2, 3]) == adding([1, 2], controller=-1) == {}
    assert len(asked) == 1, "nothing is behind, or nobody knows"
    answer = CliError(Problem.NOT_SERVED, "Kafka before 2.4")
    assert adding([1, 2]) == {}


def test_what_is_not_measured_is_unknown() -> None:
    item = _item("t", PARTITIONS, Measures())
    wanted = ("size", "skew", "records_per_second", "bytes_per_second", "groups")
    assert {item[name] for name in wanted} == {None}
    assert render(for_people(Listing("x/1", COLUMNS, [item])), OutputFormat.TABLE) == (
        "NAME  PARTS  RF  SIZE  IN/S  GROUPS  UNDER-REP\n"
        "t         2   2     -     -       -          1\n"
    )


def test_a_part_is_not_told_as_the_whole() -> None:
    sizes = Sizes({("t", 0): 5}, silent=[2])
    item = _item("t", PARTITIONS, Measures(sizes, RATES, {}))
    assert (item["size"], item["records_per_second"], item["bytes_per_second"]) == (None, 2.0, None)
    assert item["groups"] == 0
    some = _item("t", PARTITIONS, Measures(SIZES, {("t", 0): RATES["t", 0]}, {}))
    assert (some["records_per_second"], some["bytes_per_second"]) == (None, None)


def test_a_topic_without_partitions() -> None:
    item = _item("t", [], Measures(Sizes(), {}, {}))
    assert (item["size"], item["skew"], item["bytes_per_second"]) == (0, 1.0, 0)


def test_partitions_with_a_leader() -> None:
    states = TopicStates("c", {}, {"t": PARTITIONS, "u": PARTITIONS})
    assert states.led(["u"]) == {("u", 0): 1}


def test_groups_of_a_topic() -> None:
    readers = {"b": {("t", 0): 3, ("t", 1): 9, ("u", 0): 1}, "a": {("t", 1): 1}, "c": {("u", 0): 1}}
    assert readers_of("t", {("t", 0): 10, ("u", 0): 50}, readers) == [
        {"group": "a", "partitions": 1, "lag": None},
        {"group": "b", "partitions": 2, "lag": 7},
    ]
