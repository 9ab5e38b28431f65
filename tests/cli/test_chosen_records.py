"""``consume --key`` and ``--filter``, ``produce --rate`` and ``--dry-run``."""

import json

import pytest

from pyrklog.testing import TestBroker
from tests.support.commands import Run, create, runner


def fill(run: Run, topic: str, count: int) -> None:
    lines = [
        json.dumps(
            {
                "key": f"k{number % 3}",
                "value": json.dumps({"n": number}),
                "headers": [{"key": "odd", "value": str(number % 2)}],
                "partition": 0,
            }
        )
        for number in range(count)
    ]
    create(run, topic)
    run("produce", topic, "-f", "jsonl", stdin="\n".join(lines))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (["--key", "k1"], [1, 4, 7, 10]),
        (["--key", "k1", "--filter", "header:odd=1"], [1, 7]),
        (["--filter", "value.n>=9"], [9, 10, 11]),
        (["--filter", "value.n>=3", "-n", "2"], [3, 4]),
        (["--filter", "offset<6", "--filter", "header:odd!=1", "-o", "2"], [2, 4]),
        (["--key", "other"], []),
    ],
)
def test_only_these_records_are_printed(
    run: Run, topic: str, chosen: list[str], expected: list[int]
) -> None:
    fill(run, topic, 12)
    printed = run("consume", topic, "-e", *chosen).splitlines()
    assert [json.loads(line)["n"] for line in printed] == expected


def test_a_group_goes_on_behind_the_last_record_that_was_looked_at(run: Run, topic: str) -> None:
    fill(run, topic, 12)
    group = ["-e", "-g", topic, "--filter", "header:odd=1"]
    assert run("consume", topic, *group, "-n", "2").splitlines() == ['{"n": 1}', '{"n": 3}']
    assert run("group", "export", topic) == f"{topic},0,4\n"
    assert len(run("consume", topic, *group).splitlines()) == 4
    assert run("group", "export", topic) == f"{topic},0,12\n"


def test_a_filter_that_makes_no_sense(broker: TestBroker, topic: str) -> None:
    run = runner(broker.bootstrap)
    told = run("consume", topic, "--filter", "vlaue=1", code=2)
    assert told.startswith("error[PK41]: --filter 'vlaue=1' has an unknown field 'vlaue'")


def test_a_dry_run_of_produce_reads_every_line(broker: TestBroker, topic: str) -> None:
    run = runner(broker.bootstrap)
    lines = ['{"value": "a"}', '{"value": "b"}']
    dry = ["produce", topic, "-f", "jsonl", "--dry-run"]
    told = f"2 records would be written to {topic}, which does not exist yet\n"
    assert run(*dry, stdin="\n".join(lines)) == told
    assert topic not in run("topic", "list", "-o", "name").split()
    create(run, topic)
    assert run(*dry, stdin=lines[0]) == f"1 record would be written to {topic}\n"
    assert "line 2 is not JSON" in run(*dry, stdin="\n".join([lines[0], "nonsense"]), code=2)
    assert run("consume", topic, "-e") == ""


def test_a_rate_writes_all_records(broker: TestBroker, topic: str) -> None:
    run = runner(broker.bootstrap)
    create(run, topic)
    run("produce", topic, "--rate", "50", stdin="a\nb\nc\n")
    assert run("consume", topic, "-e").split() == ["a", "b", "c"]
    assert "--rate takes 0.1 to" in run("produce", topic, "v", "--rate", "inf", code=2)
