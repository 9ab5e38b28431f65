"""Plans in Kafka's JSON, rates, limits and amounts."""

import json

import pytest

from pyrklog.balance.prediction import Limit
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.reassign_plan import (
    amount,
    duration,
    parse_fill,
    parse_limit,
    parse_log_dirs,
    parse_plan,
    parse_rate,
    parse_throttle,
    parse_topics,
    render_plan,
)

GB = 10**9


def test_amounts_and_times_for_people() -> None:
    assert (amount(999), amount(1500), amount(3 * 10**13)) == ("999 B", "2 kB", "30.0 TB")
    assert (duration(59), duration(600), duration(7200)) == ("59 s", "10 min", "2 h")


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (None, Limit()),
        ("50", Limit(partitions=50)),
        ("10GB", Limit(bytes=10 * GB)),
        ("64Mi", Limit(bytes=64 * 2**20)),
    ],
)
def test_a_batch_is_partitions_or_bytes(text: str | None, limit: Limit) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "0", "some", "-1", "9" * 30])
def test_malformed_batches_are_refused(text: str) -> None:
    with pytest.raises(CliError) as raised:
        parse_limit(text)
    assert raised.value.code is Exit.USAGE


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


@pytest.mark.parametrize(
    ("text", "share"),
    [(None, 0.9), ("85", 0.85), ("97.5%", 0.975), (" 99 % ", 0.99), ("1", 0.01), ("100%", 1.0)],
)
def test_a_fill_is_percents(text: str | None, share: float) -> None:
    assert parse_fill(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "0", "0.9", "101", "-5", "full", "90 %%", "9" * 400])
def test_malformed_fills_are_refused(text: str) -> None:
    with pytest.raises(CliError, match="--max-fill takes percents") as raised:
        parse_fill(text)
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


def test_log_directories_of_a_plan() -> None:
    assert parse_log_dirs(_with_log_dirs("any", "any"), "x") == {}
    assert parse_log_dirs(_with_log_dirs("any", "/disk2"), "x") == {(("t", 0), 2): "/disk2"}
    text = render_plan({("t", 0): (1, 2)}, {(("t", 0), 2): "/disk2"})
    assert json.loads(text)["partitions"][0]["log_dirs"] == ["any", "/disk2"]
    assert parse_log_dirs(text, "x") == {(("t", 0), 2): "/disk2"}


@pytest.mark.parametrize("log_dirs", [("any",), ("any", "disk2"), ("any", "any", "/d")])
def test_malformed_log_directories_are_refused(log_dirs: tuple[str, ...]) -> None:
    with pytest.raises(CliError, match=r"plan\.json is not what") as raised:
        parse_log_dirs(_with_log_dirs(*log_dirs), "plan.json")
    assert raised.value.code is Exit.USAGE
