"""Items of ``topic list`` from made-up measures."""

from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import Listing, render
from pyrklog.cli.topic_description import readers_of
from pyrklog.cli.topic_listing import COLUMNS, Measures, _item, for_people
from pyrklog.cli.topic_measures import PartitionPlace, Rate, Sizes, TopicStates

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
