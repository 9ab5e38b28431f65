"""``redrive`` on our broker and on Apache Kafka."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

import pyrklog
from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from tests.support.bad_records import ID
from tests.support.commands import Run, create, runner
from tests.support.groups import fill
from tests.support.waiting import wait_until

ERROR = "__connect.errors."
NOW_MS = time.time_ns() // 1_000_000


def dead(value: str, topic: str | None, partition: int = 0, at: int = 0, **headers: str) -> str:
    """A line of JSON: a record in partition ``at`` of a dead-letter topic."""
    named = {f"{ERROR}topic": topic, f"{ERROR}partition": str(partition)} if topic else {}
    listed = [{"key": key, "value": one} for key, one in (named | headers).items()]
    line = {"value": value, "key": value, "headers": listed, "partition": at}
    return json.dumps(line | {"timestamp_ms": NOW_MS})


def bury(run: Run, dlq: str, *lines: str) -> None:
    run("produce", dlq, "-f", "jsonl", stdin="\n".join(lines))


def read(run: Run, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("consume", topic, "-e", "-f", "jsonl").splitlines()]


def values(run: Run, topic: str) -> list[str]:
    return sorted(one["value"] for one in read(run, topic))


def redriven(run: Run, *arguments: str, code: int = 0) -> dict[tuple[str, str], tuple[int, int]]:
    """Moved and skipped records by topic and reason; with an error, its text."""
    out = run("redrive", *arguments, "-o", "jsonl", code=code)
    rows = [json.loads(line) for line in out.splitlines()] if not code else []
    return {
        (one["topic"] or "", one["reason"] or ""): (one["moved"], one["skipped"]) for one in rows
    }


def test_records_go_back_once(run: Run, topic: str) -> None:
    dlq, other = f"{topic}-dlq", f"{topic}-other"
    create(run, topic, "-p", "3")
    create(run, other)
    create(run, dlq, "-p", "2")
    bury(run, dlq, *(dead(str(n), topic, n % 3, n % 2, trace=f"t{n}") for n in range(12)))
    bury(run, dlq, dead("x", other))
    assert redriven(run, dlq, "--dry-run") == {(topic, ""): (12, 0), (other, ""): (1, 0)}
    assert read(run, topic) == []
    assert redriven(run, dlq) == {(topic, ""): (12, 0), (other, ""): (1, 0)}
    found = {one["value"]: one for one in read(run, topic)}
    assert len(found) == 12
    for number in range(12):
        one = found[str(number)]
        place = f"{dlq}:{number % 2}@{number // 2}"
        assert (one["partition"], one["timestamp_ms"], one["key"]) == (
            number % 3,
            NOW_MS,
            str(number),
        )
        assert one["headers"] == [
            {"key": "trace", "value": f"t{number}"},
            {"key": "pyrklog.redrive.count", "value": "1"},
            {"key": "pyrklog.redrive.from", "value": place},
        ]
    assert redriven(run, dlq) == {}
    bury(run, dlq, dead("late", topic))
    assert redriven(run, dlq) == {(topic, ""): (1, 0)}
    assert redriven(run, dlq, "--again", "--to", other, "-n", "2") == {(other, ""): (2, 0)}
    assert redriven(run, dlq, "--to", other) == {(other, ""): (12, 0)}


def test_what_a_filter_leaves_comes_later(run: Run, topic: str) -> None:
    dlq = f"{topic}-dlq"
    create(run, topic)
    create(run, dlq)
    bury(run, dlq, *(dead(str(n), topic, why="late" if n % 3 else "bad") for n in range(9)))
    late = ["--filter", "header:why=late"]
    left = {("", "filter"): (0, 3)}
    assert redriven(run, dlq, *late) == {(topic, ""): (6, 0)} | left
    assert redriven(run, dlq, *late) == left
    assert redriven(run, dlq, *late, "--filter", "value>5", "--again") == {
        (topic, ""): (2, 0),
        ("", "filter"): (0, 7),
    }
    assert redriven(run, dlq) == {(topic, ""): (7, 0)}
    assert redriven(run, dlq) == {}
    assert Counter(values(run, topic)) == Counter("012345678") + Counter("124578")


def test_what_cannot_go_back_is_told(run: Run, topic: str) -> None:
    dlq, small = f"{topic}-dlq", f"{topic}-small"
    create(run, topic)
    create(run, small, "-c", "max.message.bytes=1000")
    create(run, dlq)
    lines = [dead("a", topic), dead("b", None), dead("c", f"{topic}-gone"), dead("d", dlq)]
    lines += [dead("e", "__consumer_offsets"), dead("f" * 2000, small), dead("g", small)]
    bury(run, dlq, *lines)
    told = run("redrive", dlq, code=9)
    assert "error[PK54]: 5 records cannot be redriven\n  fix: " in told
    assert (values(run, topic), values(run, small)) == (["a"], ["g"])
    assert "5 records cannot" in run("redrive", dlq, code=1)
    assert redriven(run, dlq, "--to", topic) == {(topic, ""): (5, 0)}
    assert redriven(run, dlq) == {}


def test_old_records_without_progress_may_have_gone_back(run: Run, topic: str) -> None:
    dlq, group = f"{topic}-dlq", f"redrive.{topic}-dlq"
    create(run, topic)
    create(run, dlq, "-c", "retention.ms=-1", "-p", "2")
    old = json.loads(dead("old", topic)) | {"timestamp_ms": NOW_MS - 8 * 86_400_000}
    bury(run, dlq, json.dumps(old), dead("new", topic), dead("other", topic, at=1))
    told = run("redrive", dlq, code=1)
    assert f"group {group} has no progress, and {dlq} has records older than 7d" in told
    assert "fix: --again redrives all of them" in told
    assert redriven(run, dlq, "--dry-run") == {(topic, ""): (3, 0)}
    assert values(run, topic) == []
    run("group", "seek", group, "--topic", dlq, "--to", "@-7d")
    assert redriven(run, dlq) == {(topic, ""): (2, 0)}
    assert values(run, topic) == ["new", "other"]
    run("group", "delete", group, "-y")
    assert "has no progress" in run("redrive", dlq, code=1)
    assert redriven(run, dlq, "--again", "-n", "1") == {(topic, ""): (1, 0)}
    assert redriven(run, dlq) == {(topic, ""): (2, 0)}
    assert values(run, topic) == ["new", "new", "old", "other", "other"]


def test_loops_end(run: Run, topic: str) -> None:
    dlq = f"{topic}-dlq"
    create(run, topic)
    create(run, dlq)
    bury(run, dlq, dead("v", topic))
    for count in ("1", "2"):
        assert redriven(run, dlq, "--max-redrives", "2") == {(topic, ""): (1, 0)}
        headers = {one["key"]: one["value"] for one in read(run, topic)[-1]["headers"]}
        assert headers["pyrklog.redrive.count"] == count
        bury(run, dlq, dead("v", topic, **headers))  # it fails again
    assert "1 record cannot" in run("redrive", dlq, "--max-redrives", "2", code=1)
    assert redriven(run, dlq) == {(topic, ""): (1, 0)}


def test_bad_records_of_a_scan(broker: TestBroker, topic: str) -> None:
    run, bad = runner(broker.bootstrap), f"{topic}-bad"
    create(run, topic)
    create(run, bad)
    run("produce", topic, '{"id": 1}', "nonsense")
    scan = pyrklog.scan(
        topic,
        decode="json",
        schema=ID,
        bad_records=bad,
        on_bad="drop",
        bootstrap_servers=broker.bootstrap,
    )
    assert sum(batch.num_rows for batch in scan.reader()) == 1
    assert redriven(run, bad) == {(topic, ""): (1, 0)}
    first, second = read(run, topic)[1:]
    assert first["value"] == second["value"] == "nonsense"
    assert first["timestamp_ms"] == second["timestamp_ms"]
    assert [one["key"] for one in second["headers"]] == [
        "pyrklog.redrive.count",
        "pyrklog.redrive.from",
    ]


def test_open_transactions_and_aborted_records(broker: TestBroker, topic: str) -> None:
    import confluent_kafka

    run, dlq = runner(broker.bootstrap), f"{topic}-dlq"
    create(run, topic)
    create(run, dlq)
    writer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": topic}
    )
    writer.init_transactions(30)
    for value, ends in (("aborted", writer.abort_transaction), ("done", writer.commit_transaction)):
        writer.begin_transaction()
        writer.produce(dlq, value, headers={f"{ERROR}topic": topic}, partition=0)
        writer.flush(30)
        ends(30)
    writer.begin_transaction()
    writer.produce(dlq, "open", headers={f"{ERROR}topic": topic}, partition=0)
    writer.flush(30)
    bury(run, dlq, dead("behind", topic))
    assert redriven(run, dlq) == {(topic, ""): (1, 0)}
    assert values(run, topic) == ["done"]
    writer.commit_transaction(30)
    assert redriven(run, dlq) == {(topic, ""): (2, 0)}
    assert values(run, topic) == ["behind", "done", "open"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["{dlq}", "--to", "{dlq}"], 2, "cannot be redriven to itself"),
        (["{dlq}", "--to", "__consumer_offsets"], 2, "is an internal topic"),
        (["{dlq}", "--to", "{dlq}-gone"], 4, "{dlq}-gone does not exist"),
        (["{dlq}", "--to", "header:"], 2, "not an empty text"),
        (["{dlq}", "--to", ""], 2, "not an empty text"),
        (["{dlq}", "-g", ""], 2, "not an empty text"),
        (["{dlq}", "--filter", "vlaue=1"], 2, "unknown field 'vlaue'"),
        (["{dlq}", "--rate", "0"], 2, "--rate takes 0.1 to 1e+06"),
        (["{dlq}", "--rate", "nan"], 2, "--rate takes 0.1 to 1e+06"),
        (["{dlq}-gone"], 4, "topic {dlq}-gone does not exist"),
    ],
)
def test_arguments_that_cannot_be(
    broker: TestBroker, topic: str, arguments: list[str], code: int, told: str
) -> None:
    run = runner(broker.bootstrap)
    create(run, topic)
    command = ["-b", broker.bootstrap, "redrive", *(one.format(dlq=topic) for one in arguments)]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout) == (code, "")
    assert told.format(dlq=topic) in done.stderr


@contextmanager
def process(broker: TestBroker, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "pyrklog", "-b", broker.bootstrap, "redrive", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            yield running
        except BaseException:
            running.kill()
            raise


def many(run: Run, broker: TestBroker, topic: str, each: int) -> str:
    """A dead-letter topic of two partitions with so many records in each."""
    dlq = f"{topic}-dlq"
    create(run, topic)
    create(run, dlq, "-p", "2")
    fill(broker.bootstrap, dlq, 2, each)
    return dlq


def test_ctrl_c_and_a_second_run(broker: TestBroker, topic: str) -> None:
    run = runner(broker.bootstrap)
    dlq = many(run, broker, topic, 20)
    # All together takes twenty seconds.
    with process(broker, dlq, "--to", topic, "--rate", "2") as first:
        wait_until(lambda: values(run, topic), "nothing was moved")
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
        assert first.returncode == 130
    before = len(read(run, topic))
    assert 0 < before < 40
    assert redriven(run, dlq, "--to", topic) == {(topic, ""): (40 - before, 0)}
    assert len(set(values(run, topic))) == len(values(run, topic)) == 40


def test_a_kill_loses_nothing(broker: TestBroker, topic: str) -> None:
    run = runner(broker.bootstrap)
    dlq = many(run, broker, topic, 20)
    session = ["-X", "session.timeout.ms=6000"]
    with process(broker, dlq, "--to", topic, "--rate", "5", *session) as first:
        wait_until(lambda: len(values(run, topic)) > 6, "nothing was moved")
        first.kill()
        first.communicate(timeout=60)
    before = len(read(run, topic))
    assert redriven(run, dlq, "--to", topic).keys() == {(topic, "")}
    found = values(run, topic)
    assert len(set(found)) == 40
    # At most the batch of the kill, about a second, is there twice.
    assert len(found) <= 40 + 5
    assert before < 40


def test_two_runs_at_a_time_share_the_partitions(broker: TestBroker, topic: str) -> None:
    run = runner(broker.bootstrap)
    dlq = many(run, broker, topic, 20)
    with process(broker, dlq, "--to", topic, "--rate", "4") as first:
        wait_until(lambda: values(run, topic), "nothing was moved")
        assert first.poll() is None
        redriven(run, dlq, "--to", topic)
        _, err = first.communicate(timeout=60)
        told = f"note: group redrive.{dlq} has no progress yet: it begins at the first record\n"
        assert (first.returncode, err) == (0, told)
    assert len(set(values(run, topic))) == len(values(run, topic)) == 40


def test_again_beside_another_run(broker: TestBroker, topic: str) -> None:
    run = runner(broker.bootstrap)
    dlq = many(run, broker, topic, 20)
    with process(broker, dlq, "--to", topic, "--rate", "1") as first:
        wait_until(lambda: values(run, topic), "nothing was moved")
        told = run("redrive", dlq, "--to", topic, "--again", code=1)
        assert "has members: another redrive of this topic runs" in told
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
