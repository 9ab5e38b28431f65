"""``topic add-partitions``, ``trim``, ``copy`` and ``skew`` on our broker and on Apache Kafka."""

import csv
import io
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from tests.support.clock import START_MS
from tests.support.commands import Run, create, runner
from tests.support.groups import fill
from tests.support.waiting import wait_until

MINUTE_MS = 60_000
EACH = 10


def items(run: Run, *command: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(*command, "-o", "json"))["items"]
    return found


def starts(run: Run, topic: str) -> list[int]:
    (item,) = items(run, "topic", "describe", topic)
    return [one["start_offset"] for one in item["partitions"]]


def write_minutes(run: Run, topic: str, partitions: int) -> None:
    """A record a minute in each partition, the values their offsets."""
    lines = [
        json.dumps({"value": str(at), "partition": p, "timestamp_ms": START_MS + at * MINUTE_MS})
        for p in range(partitions)
        for at in range(EACH)
    ]
    create(run, topic, "-p", str(partitions))
    run("produce", topic, "-f", "jsonl", stdin="\n".join(lines))


# --- add-partitions ------------------------------------------------------------------------------


def test_added_partitions_and_the_keys_that_move(run: Run, topic: str) -> None:
    create(run, topic, "-p", "3")
    add = ["topic", "add-partitions", topic, "--to", "6"]
    keys = ["a", "order-17", "né"]
    for key in keys:
        add += ["-k", key]
    told = run(*add, "--dry-run").splitlines()
    assert told[0] == f"{topic}: about 50% of the keys go to another partition from now on"
    assert told[-1] == f"{topic}: partitions 3 -> 6 (not done)"
    assert len(items(run, "topic", "describe", topic)[0]["partitions"]) == 3
    before = {key: run("produce", topic, "v", "-k", key, "-v").split()[1] for key in keys}
    assert run(*add).splitlines()[:-1] == told[:-1]
    wait_until(
        lambda: len(items(run, "topic", "describe", topic)[0]["partitions"]) == 6, "six partitions"
    )
    after = {key: run("produce", topic, "v", "-k", key, "-v").split()[1] for key in keys}
    for key, line in zip(keys, told[1:], strict=False):
        old, new = before[key].split("@")[0], after[key].split("@")[0]
        moves = f"partition {old}" if old == new else f"partition {old} -> {new}"
        assert line == f"{topic}: key {key}: {moves}"


def test_partitions_that_cannot_be_added(run: Run, topic: str) -> None:
    create(run, topic, "-p", "2")
    told = run("topic", "add-partitions", topic, "--to", "2", code=1)
    assert f"topic {topic} has 2 partitions already" in told
    assert "does not exist" in run("topic", "add-partitions", f"{topic}-x", "--to", "2", code=4)
    run("topic", "add-partitions", topic, "--to", "0", code=2)
    run("topic", "add-partitions", topic, code=2)


def test_partitions_of_an_internal_topic_in_pyrklog(broker: TestBroker, topic: str) -> None:
    run = runner(broker.bootstrap)
    run("produce", topic, "v")
    run("consume", topic, "-e", "-g", topic)  # makes the topic of offsets
    wanted = ["__consumer_offsets", "--to", "60"]
    altered = ["topic", "alter", "__consumer_offsets", "-p", "60"]
    for command in (["topic", "add-partitions", *wanted], altered):
        told = run(*command, code=2)
        assert "with more of them it is lost; pyrklog's brokers refuse it" in told
        assert "-y" not in told
    done = CliRunner().invoke(
        app, ["-b", broker.bootstrap, "topic", "add-partitions", *wanted, "-y"]
    )
    assert (done.exit_code, done.stdout) == (1, "")
    assert "internal topic is fixed" in done.stderr


@pytest.mark.jvm
def test_partitions_of_an_internal_topic_in_kafka(apache_kafka: str) -> None:
    run = runner(apache_kafka)
    told = run("topic", "add-partitions", "__consumer_offsets", "--to", "60", code=2)
    assert "with more of them it is lost\n  fix: give -y to have it\n" in told
    told = run("topic", "alter", "__consumer_offsets", "-p", "60", code=2)
    assert "`pyrklog topic add-partitions TOPIC --to 60 -y` has it all the same" in told


# --- trim ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("4", 4),
        ("-2", 8),
        ("end", EACH),
        ("start", 0),
        (str(EACH), EACH),
        # Its own name: processes that share the tests must find the same names.
        pytest.param(f"@{START_MS + 3 * MINUTE_MS}", 3, id="time-of-the-fourth"),
        ("@now", EACH),
        ("@2001-01-01", 0),
    ],
)
def test_the_beginning_of_a_log_is_deleted(
    run: Run, topic: str, before: str, expected: int
) -> None:
    write_minutes(run, topic, 2)
    trim = ["topic", "trim", f"{topic}:1", "--before", before]
    (planned,) = items(run, *trim, "--dry-run")
    assert (planned["partition"], planned["start_before"], planned["end"]) == (1, 0, EACH)
    assert (planned["start_after"], planned["records"]) == (expected, expected)
    assert planned["remark"] == ""
    assert starts(run, topic) == [0, 0]
    (done,) = items(run, *trim, "-y")
    assert {**done, "bytes": 0} == {**planned, "bytes": 0}
    assert starts(run, topic) == [0, expected]


def test_a_trim_is_confirmed_and_said(run: Run, topic: str) -> None:
    write_minutes(run, topic, 1)
    told = run("topic", "trim", topic, "--before", "5", code=2)
    assert "needs to be confirmed" in told
    assert starts(run, topic) == [0]
    shown = run("topic", "trim", topic, "--before", "5", "-y")
    assert shown.splitlines()[0].split()[:4] == ["TOPIC", "PART", "START", "NEW"]
    assert shown.splitlines()[1].split()[:5] == [topic, "0", "0", "5", str(EACH)]
    again = run("topic", "trim", topic, "--before", "5", "-y", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(again))
    assert (row["start_before"], row["start_after"], row["records"]) == ("5", "5", "0")
    assert run("topic", "trim", topic, "--before", "6", "-y", "-q") == ""
    assert run("consume", topic, "-e").split() == ["6", "7", "8", "9"]


def test_trims_that_are_refused(run: Run, topic: str) -> None:
    create(run, topic, "-p", "1", "-c", "cleanup.policy=compact")
    run("produce", topic, "a", "b", "-k", "k")
    told = run("topic", "trim", topic, "--before", "end", "-y", code=1)
    assert f"error[PK37]: {topic} [0]: " in told
    assert "cleanup.policy has no delete" in told
    assert "no partition 7" in run("topic", "trim", f"{topic}:7", "--before", "1", "-y", code=4)
    assert "does not exist" in run("topic", "trim", f"{topic}-x", "--before", "1", "-y", code=4)
    for before in ("noon", "@noon", "", "+5"):
        told = run("topic", "trim", topic, "--before", before, "-y", code=2)
        assert told.startswith("error[PK41]: --before ")
    assert "takes TOPIC or TOPIC:PARTITION" in run("topic", "trim", ":", "--before", "1", code=2)


def test_an_offset_past_the_end_of_a_partition_deletes_nothing(run: Run, topic: str) -> None:
    create(run, topic, "-p", "2")
    run("produce", topic, "a", "b", "c", "-p", "0")
    run("produce", topic, "a", "-p", "1")
    for more in ([], ["-y"], ["--dry-run"]):
        told = run("topic", "trim", topic, "--before", "2", *more, code=1)
        assert told == (
            f"error[PK65]: {topic} [1] ends at 1, before 2; nothing was deleted\n"
            "  fix: name partitions as TOPIC:P, or give --before end\n"
        )
    assert starts(run, topic) == [0, 0]
    run("topic", "trim", f"{topic}:0", "--before", "2", "-y")
    (again,) = items(run, "topic", "trim", f"{topic}:0", "--before", "1", "-y")
    assert (again["records"], again["remark"]) == (0, "the log starts behind 1 already")
    assert starts(run, topic) == [2, 0]


# --- copy ----------------------------------------------------------------------------------------

RECORDS = [
    {"key": "k", "value": "v", "partition": 0, "timestamp_ms": START_MS},
    {"key": None, "value": None, "partition": 0, "timestamp_ms": START_MS + 1},
    {
        "key": {"base64": "/w=="},
        "value": {"base64": "gIE="},
        "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}],
        "partition": 1,
        "timestamp_ms": START_MS + 2,
    },
    {"key": "", "value": "", "partition": 1, "timestamp_ms": START_MS + 3},
    {"key": "ж", "value": "\n", "partition": 1, "timestamp_ms": START_MS - 5},
]


def read(run: Run, topic: str) -> list[dict[str, Any]]:
    """Records by partition, without what a copy changes."""
    lines = run("consume", topic, "-e", "-f", "jsonl").splitlines()
    found = sorted(map(json.loads, lines), key=lambda one: (one["partition"], one["offset"]))
    return [
        {name: value for name, value in one.items() if name not in ("topic", "leader_epoch")}
        for one in found
    ]


def write_records(run: Run, topic: str, *options: str) -> None:
    create(run, topic, "-p", "2", *options)
    run("produce", topic, "-f", "jsonl", stdin="\n".join(map(json.dumps, RECORDS)))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_copy_is_identical(run: Run, topic: str, codec: str) -> None:
    write_records(run, topic, "-c", "retention.ms=7200000", "-c", "segment.bytes=1000000")
    copy = f"{topic}-copy"
    told = run("topic", "copy", topic, copy, code=4)
    assert "give --create" in told
    planned = items(run, "topic", "copy", topic, copy, "--create", "--dry-run")
    assert [one["records"] for one in planned] == [2, 3]
    run("topic", "describe", copy, code=4)
    done = items(
        run, "topic", "copy", topic, copy, "--create", "-c", "retention.ms=-1", "-z", codec
    )
    assert [(one["partition"], one["from"], one["to"]) for one in done] == [(0, 0, 2), (1, 0, 3)]
    assert [(one["records"], one["bytes"]) for one in done] == [(2, 2), (3, 9)]
    assert read(run, copy) == read(run, topic)
    (item,) = items(run, "topic", "describe", copy, "--configs")
    options = {one["name"]: one["value"] for one in item["configs"] if one["source"] == "topic"}
    assert options["retention.ms"] == "-1"
    assert options["segment.bytes"] == "1000000"


def test_a_part_is_copied(run: Run, topic: str) -> None:
    write_minutes(run, topic, 2)
    copy = f"{topic}-copy"
    create(run, copy, "-p", "2")
    part = ["topic", "copy", topic, copy, "-p", "1"]
    run(*part, "--from", "3", "--before", "-5")
    assert run("consume", copy, "-e").split() == ["3", "4"]
    shown = run(*part, "--from", f"@{START_MS + 7 * MINUTE_MS}", "--before", "1000")
    assert shown.splitlines()[1].split() == [topic, "1", "7", "10", "3", "3"]
    assert run("consume", copy, "-e").split() == ["3", "4", "7", "8", "9"]
    run(*part, "--from", "end", "-q")
    told = run(*part, "--from", "11", code=1)
    assert f"{topic} [1]: offset 11 is past the end of the log, which is 10" in told


def test_a_copy_from_past_all_ends_names_some_partitions(run: Run, topic: str) -> None:
    create(run, topic, "-p", "5")
    told = run("topic", "copy", topic, f"{topic}-copy", "--create", "--from", "1000", code=1)
    past = "offset 1000 is past the end of the log, which is 0"
    named = "".join(f"{topic} [{partition}]: {past}, " for partition in range(3))
    assert told == f"error[PK65]: {named}and 2 more\n  fix: give another --from\n"


def test_a_copy_leaves_out_partitions_that_end_before(run: Run, topic: str) -> None:
    create(run, topic, "-p", "2")
    run("produce", topic, "a", "b", "c", "-p", "0")
    run("produce", topic, "d", "-p", "1")
    copy = ["topic", "copy", topic, f"{topic}-copy", "--create", "--from", "2"]
    (first, second) = items(run, *copy, "--dry-run")
    assert (first["records"], first["bytes"], second["records"]) == (1, None, 0)
    (first, second) = items(run, *copy)
    assert (first["records"], first["bytes"]) == (1, 1)
    assert (second["from"], second["to"], second["records"]) == (1, 1, 0)
    assert run("consume", f"{topic}-copy", "-e").split() == ["c"]


def test_a_target_with_fewer_partitions(run: Run, topic: str) -> None:
    write_records(run, topic)
    copy = f"{topic}-copy"
    create(run, copy, "-p", "1")
    told = run("topic", "copy", topic, copy, code=1)
    assert f"{copy} has 1 partition, none of number 1" in told
    assert f"`pyrklog topic add-partitions {copy} --to 2`, or --repartition" in told
    run("topic", "copy", topic, copy, "--repartition")
    assert {one["partition"] for one in read(run, copy)} == {0}
    assert len(read(run, copy)) == len(RECORDS)


def test_copies_that_are_refused(run: Run, topic: str) -> None:
    write_records(run, topic)
    told = run("topic", "copy", topic, topic, code=2)
    assert "cannot be copied to itself" in told
    told = run("topic", "copy", "zzqqxx", topic, code=4)
    assert "does not exist\n  fix: see `pyrklog topic list`" in told
    assert "no partition 9" in run("topic", "copy", topic, "t", "--create", "-p", "9", code=4)
    assert "-c needs --create" in run("topic", "copy", topic, "t", "-c", "a=b", code=2)
    assert "no codec" in run("topic", "copy", topic, "t", "-z", "rar", code=2)
    told = run("topic", "copy", topic, "no/slash", "--create", code=1)
    assert "names have up to 249 letters" in told


def test_options_for_a_target_that_exists_are_refused(run: Run, topic: str) -> None:
    write_records(run, topic)
    copy = f"{topic}-copy"
    create(run, copy, "-p", "2")
    command = ["topic", "copy", topic, copy, "--create", "-c", "retention.ms=777"]
    for more in ([], ["--dry-run"]):
        told = run(*command, *more, code=5)
        assert told.startswith(
            f"error[PK62]: topic {copy} exists and keeps its options: -c is for a "
        )
        assert f"`pyrklog config alter topic {copy}`" in told
    assert read(run, copy) == []
    run("topic", "copy", topic, copy, "--create")
    assert read(run, copy) == read(run, topic)


def test_refused_options_of_a_target_are_explained(run: Run, topic: str) -> None:
    write_records(run, topic)
    copy = ["topic", "copy", topic, f"{topic}-copy", "--create", "-c"]
    assert "fix: did you mean retention.ms?" in run(*copy, "retention.mss=5", code=1)
    told = run(*copy, "retention.ms=soon", code=1)
    assert "fix: see `pyrklog config explain retention.ms`" in told
    told = run("topic", "create", f"{topic}-new", "-c", "retention.ms=soon", code=1)
    assert "fix: see `pyrklog config explain retention.ms`" in told
    told = run("topic", "alter", topic, "--set", "retention.ms=soon", code=1)
    assert "fix: see `pyrklog config explain retention.ms`" in told


def test_a_compacted_topic_takes_no_record_without_a_key(run: Run, topic: str) -> None:
    create(run, topic, "-p", "1", "-c", "cleanup.policy=compact")
    told = run("produce", topic, "value", code=1)
    assert "takes no records without a key: `produce` takes -k or -K" in told
    run("produce", topic, "value", "-k", "key")
    source = f"{topic}-source"
    create(run, source, "-p", "1")
    run("produce", source, "value")
    told = run("topic", "copy", source, topic, code=1)
    assert "fix: the target is compacted and takes no records without a key" in told
    assert "`produce`" not in told


def test_a_record_that_the_target_refuses_ends_the_copy(run: Run, topic: str) -> None:
    copy = f"{topic}-copy"
    create(run, topic, "-p", "2")
    run("produce", topic, "small", "-p", "0")
    run("produce", topic, "x" * 5000, "-p", "1")
    create(run, copy, "-p", "2", "-c", "max.message.bytes=1000")
    told = run("topic", "copy", topic, copy, code=9)
    assert "1 of 2 records not written" in told
    assert told.endswith("fix: raise the target's max.message.bytes\n")
    assert run("consume", copy, "-e").split() == ["small"]


@pytest.mark.jvm
def test_a_copy_to_another_cluster(apache_kafka: str, broker: TestBroker, topic: str) -> None:
    theirs, ours = runner(apache_kafka), runner(broker.bootstrap)
    write_records(theirs, topic)
    theirs("topic", "copy", topic, topic, "--to", broker.bootstrap, "--create")
    assert read(ours, topic) == read(theirs, topic)


@pytest.mark.parametrize(
    ("address", "code", "fix"),
    [
        ("127.0.0.1:1", 3, "start one with `pyrklog serve`, or name another with --to HOST:PORT"),
        ("ftp://127.0.0.1:1", 2, "for example --to 127.0.0.1:9092"),
    ],
)
def test_a_wrong_address_of_the_target_names_its_option(
    run: Run, topic: str, address: str, code: int, fix: str
) -> None:
    write_records(run, topic)
    told = run("topic", "copy", topic, topic, "--to", address, "--create", code=code)
    assert told.endswith(f"\n  fix: {fix}\n")
    assert " -b" not in told


# --- skew ----------------------------------------------------------------------------------------


def test_uneven_partitions_are_seen(run: Run, either: str, topic: str) -> None:
    create(run, topic, "-p", "2")
    fill(either, topic, 1, 1000)
    (item,) = items(run, "topic", "skew", topic)
    (broker,) = item["brokers"]
    assert (broker["leaders"], broker["replicas"]) == (2, 2)
    assert broker["bytes"] > 1000
    assert item["by"] == "bytes"
    assert item["max_over_mean"] == {"leaders": 1.0, "replicas": 1.0, "bytes": 1.0}
    assert item["partitions_max_over_mean"] == 2.0
    first = item["largest"][0]
    assert (first["topic"], first["partition"], first["bytes"]) == (topic, 0, broker["bytes"])
    lines = run("topic", "skew", topic).splitlines()
    assert lines[0].split() == ["BROKER", "LEADERS", "REPLICAS", "BYTES"]
    assert lines[1].endswith("█" * 20)
    assert lines[2] == "leaders 1.00 · replicas 1.00 · bytes 1.00 (max/mean of brokers)"
    assert lines[3].startswith(f"partitions by bytes 2.00 (max/mean) · largest {topic}-0 ")
    rate = run("topic", "skew", "--by", "rate", "--over", "0.2")
    assert rate.splitlines()[0].split()[-1] == "RATE"
    (row,) = csv.DictReader(io.StringIO(run("topic", "skew", topic, "-o", "csv")))
    assert (row["leaders"], row["replicas"]) == ("2", "2")


def test_skews_that_cannot_be_shown(run: Run, topic: str) -> None:
    assert "does not exist" in run("topic", "skew", f"{topic}-x", code=4)
    assert "one of leaders, replicas, bytes, rate" in run("topic", "skew", "--by", "age", code=2)
    for over in ("nan", "0", "inf", "61"):
        told = run("topic", "skew", "--by", "rate", "--over", over, code=2)
        assert "--over takes 0.1 to 60 seconds" in told
