"""What ``topic list`` measures, and ``topic describe --groups``, on our broker and Apache Kafka."""

import csv
import io
import json
import time
from typing import Any

import pytest

from tests.support.commands import Run, create
from tests.support.waiting import wait_until

DAY_MS = 86_400_000


def listed(run: Run, *arguments: str) -> dict[str, dict[str, Any]]:
    items = json.loads(run("topic", "list", *arguments, "-o", "json"))["items"]
    return {one["name"]: one for one in items}


def write(run: Run, topic: str, count: int, size: int, age_ms: int = 0) -> None:
    time_ms = time.time_ns() // 1_000_000 - age_ms
    line = {"value": "v" * size, "partition": 0, "timestamp_ms": time_ms}
    run("produce", topic, "-f", "jsonl", stdin="\n".join([json.dumps(line)] * count))


@pytest.fixture
def three(run: Run, topic: str) -> list[str]:
    """A topic with old records, one with new ones, and an empty one."""
    names = [f"{topic}-{kind}" for kind in ("old", "new", "none")]
    for name in names:
        create(run, name, "-p", "2", "-c", "retention.ms=-1")
    write(run, names[0], 20, 1000, age_ms=8 * DAY_MS)
    write(run, names[1], 30, 100)
    run("consume", names[1], "-e", "-g", names[1])
    return names


def test_sizes_rates_and_groups(run: Run, three: list[str]) -> None:
    old, new, none = three
    wait_until(lambda: listed(run, old)[old]["size"] > 20_000, "the bytes are not told")
    found = listed(run, *three)
    assert list(found) == sorted(three)
    assert found[none]["size"] == 0
    assert (found[old]["skew"], found[none]["skew"]) == (2.0, 1.0)
    assert [found[name]["groups"] for name in three] == [0, 1, 0]
    assert found[new]["records_per_second"] == pytest.approx(30 / 60, abs=0.002)
    assert found[new]["bytes_per_second"] == pytest.approx(found[new]["size"] / 60, abs=1)
    assert [found[name]["records_per_second"] for name in (old, none)] == [0, 0]
    (heading, row) = run("topic", "list", old).splitlines()
    assert heading.split() == ["NAME", "PARTS", "RF", "SIZE", "IN/S", "GROUPS", "UNDER-REP"]
    assert row.split()[-1] == "0"
    (told,) = csv.DictReader(io.StringIO(run("topic", "list", new, "-o", "csv")))
    assert (told["groups"], told["under_replicated"]) == ("1", "0")


def test_topics_are_sorted_and_cut(run: Run, topic: str, three: list[str]) -> None:
    old, new, none = three
    wait_until(lambda: listed(run, old)[old]["size"] > 20_000, "the bytes are not told")
    mine = ["--regex", f"^{topic}-"]

    def names(*arguments: str) -> list[str]:
        return run("topic", "list", *mine, *arguments, "-o", "name").split()

    assert names() == sorted(three)
    assert names("--limit", "2") == sorted(three)[:2]
    assert names("--sort", "size") == [old, new, none]
    assert names("--sort", "size", "--limit", "1") == [old]
    assert names("--sort", "rate") == [new, none, old]
    assert names("--sort", "skew")[-1] == none
    assert "--sort bytes is unknown" in run("topic", "list", "--sort", "bytes", code=2)


def test_topics_without_new_records(run: Run, topic: str, three: list[str]) -> None:
    old, _, none = three
    mine = ["--regex", f"^{topic}-"]

    def stale(age: str) -> list[str]:
        return run("topic", "list", *mine, "--stale", age, "-o", "name").split()

    assert stale("7d") == sorted([old, none])
    assert stale("9d") == [none]
    assert "--stale takes a time" in run("topic", "list", "--stale", "soon", code=2)


def test_groups_of_a_topic(run: Run, three: list[str]) -> None:
    _, new, _ = three
    write(run, new, 5, 10)
    (item,) = json.loads(run("topic", "describe", new, "--groups", "-o", "json"))["items"]
    assert item["groups"] == [{"group": new, "partitions": 1, "lag": 5}]
    assert [one["leader_epoch"] for one in item["partitions"]] == [0, 0]
    assert item["partitions"][1]["size"] == 0
    page = run("topic", "describe", new, "--groups").splitlines()
    assert page[-2].split() == ["GROUP", "PARTITIONS", "LAG"]
    assert page[-1].split() == [new, "1", "5"]
    row = next(csv.DictReader(io.StringIO(run("topic", "describe", new, "--groups", "-o", "csv"))))
    assert json.loads(row["groups"]) == {new: 5}
