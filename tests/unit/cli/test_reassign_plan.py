"""Plans: nothing is lost, little is copied, brokers end alike."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.reassign_plan import (
    amount,
    cost,
    duration,
    parse_plan,
    parse_rate,
    parse_throttle,
    parse_topics,
    propose,
    render_plan,
    skew,
)

GB = 10**9


def topic(*replicas: tuple[int, ...], name: str = "t") -> dict[PartitionKey, tuple[int, ...]]:
    return {(name, index): members for index, members in enumerate(replicas)}


def test_a_new_broker_gets_its_share() -> None:
    current = topic(*[(1, 2), (2, 1)] * 6)
    sizes = dict.fromkeys(current, GB)
    plan = propose(current, sizes, [1, 2, 3])
    told = cost(current, plan, sizes, [1, 2, 3])
    assert told.copied_bytes == 8 * GB
    assert told.skew == (1.5, 1.0)
    assert told.leader_skew == (1.5, 1.0)


def test_a_broker_is_emptied_and_nothing_else_is_moved() -> None:
    current = topic((1, 2), (2, 3), (3, 1), (4, 1))
    sizes = dict.fromkeys(current, GB)
    plan = propose(current, sizes, [1, 2, 3], balance=False)
    assert {place: plan[place] for place in plan if plan[place] != current[place]}.keys() == {
        ("t", 3)
    }
    assert plan["t", 3][0] == 1
    assert 4 not in plan["t", 3]


def test_more_and_fewer_replicas() -> None:
    current = topic((1, 2), (2, 3))
    three = propose(current, {}, [1, 2, 3], replication_factor=3, balance=False)
    assert three == {("t", 0): (1, 2, 3), ("t", 1): (2, 3, 1)}
    one = propose(current, {}, [1, 2, 3], replication_factor=1, balance=False)
    assert one == {("t", 0): (1,), ("t", 1): (2,)}
    with pytest.raises(CliError, match="4 replicas need 4 brokers, and there are only 3"):
        propose(current, {}, [1, 2, 3], replication_factor=4)
    with pytest.raises(CliError, match="2 replicas need 2 brokers, and there are only 1"):
        propose(current, {}, [1])


def test_racks_are_kept_apart() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = propose(
        topic((1,), (3,), (2,), (4,)), {}, [1, 2, 3, 4], replication_factor=2, racks=racks
    )
    for replicas in plan.values():
        assert {racks[broker] for broker in replicas} == {"a", "b"}


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 5)),
        st.tuples(
            st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True),
            st.integers(0, 10 * GB),
        ),
        max_size=12,
    ),
    st.sets(st.integers(1, 6), min_size=3),
    st.booleans(),
)
def test_generated_plans_are_valid(
    found: dict[PartitionKey, tuple[list[int], int]], brokers: set[int], balance: bool
) -> None:
    current = {place: tuple(replicas) for place, (replicas, _) in found.items()}
    sizes = {place: size for place, (_, size) in found.items()}
    plan = propose(current, sizes, sorted(brokers), balance=balance)
    assert plan.keys() == current.keys()
    for place, replicas in plan.items():
        assert len(replicas) == len(set(replicas)) == len(current[place])
        assert set(replicas) <= brokers
    if not balance:
        # A replica that may stay stays.
        for place, replicas in plan.items():
            assert set(current[place]) & brokers <= set(replicas)
    elif current:
        must = propose(current, sizes, sorted(brokers), balance=False)
        weight = {place: size + 1 for place, size in sizes.items()}

        def load(placement: dict[PartitionKey, tuple[int, ...]]) -> list[int]:
            return [
                sum(weight[place] for place, members in placement.items() if broker in members)
                for broker in sorted(brokers)
            ]

        assert max(load(plan)) <= max(load(must))
    assert parse_plan(render_plan(plan), "x") == plan


def test_the_cost_in_words() -> None:
    current = topic((1,), (1,))
    told = cost(current, {("t", 0): (2,)}, {("t", 0): 6 * GB, ("t", 1): 6 * GB}, [1, 2])
    assert told.line(50 * 10**6) == (
        "moves 1 of 2 partitions · copies 6 GB · about 2 min at 50 MB/s\n"
        "skew by bytes 2.00 -> 1.00 · leaders 2.00 -> 1.00"
    )
    assert skew([]) == skew([0, 0]) == 1.0
    assert (amount(999), amount(1500), amount(3 * 10**13)) == ("999 B", "2 kB", "30.0 TB")
    assert (duration(59), duration(600), duration(7200)) == ("59 s", "10 min", "2 h")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("50MB/s", 50 * 10**6), ("1000", 1000), ("1.5k", 1500), ("2 Mi", 2 * 2**20), ("3GB", 3 * GB)],
)
def test_rates_are_parsed(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-1", "0", "1i", "10 QB", "9" * 400])
def test_malformed_rates_are_refused(text: str) -> None:
    with pytest.raises(CliError) as raised:
        parse_rate(text)
    assert raised.value.code is Exit.USAGE


@pytest.mark.parametrize("text", ["5", "9999", "1kB/s", "0.009MB"])
def test_throttle_too_low_to_progress_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="too slow") as raised:
        parse_throttle(text)
    assert raised.value.code is Exit.USAGE
    assert "50MB/s" in str(raised.value.fix)


def test_a_throttle_without_a_unit_is_bytes_a_second() -> None:
    assert parse_throttle("10000") == 10_000
    assert parse_throttle("5MB") == 5_000_000


def test_plan_is_rendered_as_kafkas_json() -> None:
    plan = {("t", 1): (3, 1), ("a", 0): (2,)}
    assert json.loads(render_plan(plan)) == {
        "version": 1,
        "partitions": [
            {"topic": "a", "partition": 0, "replicas": [2], "log_dirs": ["any"]},
            {"topic": "t", "partition": 1, "replicas": [3, 1], "log_dirs": ["any", "any"]},
        ],
    }
    assert parse_topics('{"version":1,"topics":[{"topic":"t"}]}', "x") == ["t"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"partitions":{}}',
        '{"partitions":[{"topic":"t","partition":0}]}',
        '{"partitions":[{"topic":"t","partition":"x","replicas":[1]}]}',
        '{"partitions":[3]}',
        '{"partitions":[{"topic":"t","partition":0,"replicas":"12"}]}',
        '{"partitions":[{"topic":"t","partition":0,"replicas":[99999999999]}]}',
        '{"partitions":[{"topic":"t","partition":0,"replicas":[true]}]}',
        '{"partitions":[{"topic":"t","partition":1.7,"replicas":[1]}]}',
        '{"partitions":[{"topic":"t","partition":-1,"replicas":[1]}]}',
        '{"partitions":[{"topic":null,"partition":0,"replicas":[1]}]}',
        '{"partitions":[{"topic":"t","partition":0,"replicas":[1]},'
        '{"topic":"t","partition":0,"replicas":[2]}]}',
    ],
)
def test_malformed_plan_is_refused(text: str) -> None:
    with pytest.raises(CliError, match=r"plan\.json is not what") as raised:
        parse_plan(text, "plan.json")
    assert raised.value.code is Exit.USAGE


def _with_log_dirs(*log_dirs: str) -> str:
    item = {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": log_dirs}
    return json.dumps({"version": 1, "partitions": [item]})


def test_a_plan_that_names_log_directories_is_refused() -> None:
    assert parse_plan(_with_log_dirs("any", "any"), "plan.json") == {("t", 0): (1, 2)}
    with pytest.raises(CliError, match="t-0 to a log directory") as raised:
        parse_plan(_with_log_dirs("any", "/disk2"), "plan.json")
    assert raised.value.code is Exit.USAGE
