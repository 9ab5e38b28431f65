"""The command line against a broker: ``--against HOST:PORT`` runs these tests against any Kafka."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pyrklog import cli
from pyrklog.cli.app import app

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Run = Callable[..., str]


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Runs a command, which must end with ``code``; its standard output (or error, if
    it failed)."""

    def call(*arguments: str, code: int = 0, stdin: str | bytes | None = None) -> str:
        command = ["-b", bootstrap, "--timeout", "20", *arguments]
        done = CliRunner().invoke(app, command, input=stdin)
        assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}{done.exception}"
        return done.stdout if code == 0 else done.stderr

    return call


def test_the_life_of_a_topic(run: Run, topic: str) -> None:
    assert run("topic", "create", topic, "-p", "3", "-c", "retention.ms=1000000") == (
        f"{topic}: created\n"
    )
    assert topic in run("topic", "list", "-o", "name").splitlines()
    (item,) = json.loads(run("topic", "list", topic, "-o", "json"))["items"]
    assert (item["partitions"], item["replication_factor"]) == (3, 1)
    assert (item["under_replicated"], item["offline"], item["internal"]) == (0, 0, False)
    changed = run("topic", "alter", topic, "--set", "retention.ms=5000", "--unset", "segment.ms")
    assert f"{topic}: retention.ms 1000000 -> 5000" in changed
    assert run("topic", "alter", topic, "-p", "4").splitlines() == [
        f"{topic}: about 75% of the keys go to another partition from now on",
        f"{topic}: partitions 3 -> 4",
    ]
    assert run("topic", "delete", topic, "-y") == f"{topic}: deleted\n"
    assert "does not exist" in run("topic", "describe", topic, code=4)


def test_describing_a_topic(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "2", "-c", "cleanup.policy=compact")
    run("produce", topic, "a", "b", "c", "-k", "k", "-p", "1")
    document = json.loads(run("topic", "describe", topic, "--configs", "-o", "json"))
    assert document["schema"] == "pyrklog.topic-details/1"
    assert document["cluster_id"]
    (item,) = document["items"]
    first, second = item["partitions"]
    assert (first["start_offset"], first["end_offset"]) == (0, 0)
    assert (second["start_offset"], second["end_offset"]) == (0, 3)
    assert first["replicas"] == first["isr"] == [first["leader"]]
    assert len(item["topic_id"]) == 22
    configs = {entry["name"]: (entry["value"], entry["source"]) for entry in item["configs"]}
    assert configs["cleanup.policy"] == ("compact", "topic")
    assert configs["min.insync.replicas"] == ("1", "default")
    with_options = run("topic", "describe", topic, "--configs", "-o", "csv")
    for row in csv.DictReader(io.StringIO(with_options)):
        assert json.loads(row["configs"])["cleanup.policy"] == "compact"
    rows = list(csv.DictReader(io.StringIO(run("topic", "describe", topic, "-o", "csv"))))
    assert [(row["name"], row["partition"]) for row in rows] == [(topic, "0"), (topic, "1")]
    page = run("topic", "describe", topic, "--configs")
    assert page.startswith(f"{topic}  2 partitions  replication factor 1  id ")
    assert "PARTITION  LEADER" in page
    assert "OPTION" in page


def test_creating_an_existing_topic_fails(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    error = run("topic", "create", topic, code=5)
    assert error.startswith(f"error[PK62]: topic {topic}: ")
    assert "fix:" in error
    assert run("topic", "create", topic, "--if-not-exists") == f"{topic}: exists already\n"
    assert "exists" in run("topic", "create", f"{topic}-2", topic, code=9)


def test_a_dry_run_changes_nothing(run: Run, topic: str) -> None:
    assert run("topic", "create", topic, "--dry-run") == f"{topic}: would be created\n"
    run("topic", "describe", topic, code=4)
    run("topic", "create", topic, "-p", "1")
    run("topic", "alter", topic, "--set", "retention.ms=7", "-p", "5", "--dry-run")
    run("topic", "delete", topic, "--dry-run")
    (item,) = json.loads(run("topic", "describe", topic, "--configs", "-o", "json"))["items"]
    assert len(item["partitions"]) == 1
    assert {entry["value"] for entry in item["configs"]} >= {"604800000"}


def test_the_broker_s_refusals_are_told(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "2")
    assert "retention.mss" in run("topic", "alter", topic, "--set", "retention.mss=5", code=1)
    assert "error[PK68]: " in run("topic", "alter", topic, "--set", "retention.ms=soon", code=1)
    assert "error[PK66]: " in run("topic", "alter", topic, "-p", "1", code=1)
    assert "error[PK37]: " in run("topic", "create", "no/slash", code=1)
    assert "error[PK37]: " in run("topic", "create", f"{topic}-x", "-r", "9", code=1)
    assert "give -y" in run("topic", "delete", topic, code=2)
    assert f"did you mean {topic}?" in run("topic", "describe", topic + "x", code=4)


def test_advice_about_names_is_given_for_illegal_names(run: Run, topic: str) -> None:
    advice = "fix: names have up to 249 letters"
    assert advice in run("topic", "create", "no/slash", code=1)
    assert advice in run("produce", "no/slash", "x", code=1)
    run("topic", "create", f"{topic}_x")
    like = f"{topic}.x"  # legal, but metrics would show both under one name
    told = run("topic", "create", like, code=1)
    assert "collides" in told
    assert "fix:" not in told
    told = run("produce", like, "x", code=1)
    assert f"fix: `pyrklog topic create {like}` tells why" in told


def test_records_come_back_as_they_went(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "2")
    lines = "k1:v1\nk2:v:2\n"
    where = run("produce", topic, "-K", ":", "-p", "0", "-v", stdin=lines)
    assert where == f"{topic} 0@0\n{topic} 0@1\n"
    assert run("produce", topic, "plain", "-p", "0", "-v") == f"{topic} 0@2\n"
    headers = '"headers": [{"key": "b"}]'
    line = f'{{"key": "kk", "value": "né", {headers}}}'
    options = ["-p", "1", "-H", "a=1", "-H", "a=2"]
    run("produce", topic, "-f", "jsonl", *options, stdin=line)
    run("produce", topic, "--tombstone", "-k", "k1", "-p", "0")
    out = run("consume", topic, "-e", "-p", "0", "-f", r"%t %p %o %k %v %K %V\n", "-Z", "NULL")
    assert out.splitlines() == [
        f"{topic} 0 0 k1 v1 2 2",
        f"{topic} 0 1 k2 v:2 2 3",
        f"{topic} 0 2 NULL plain -1 5",
        f"{topic} 0 3 k1 NULL 2 -1",
    ]
    assert run("consume", topic, "-e", "-p", "1", "-f", r"%h %v\n") == "b=NULL,a=1,a=2 né\n"
    assert run("consume", topic, "-c", "2", "-p", "0", "-K", "=") == "k1=v1\nk2=v:2\n"


def test_a_line_without_a_key_ends_what_is_produced(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    told = run("produce", topic, "-K", ":", stdin="k1:v1\nplain\nk2:v2\n", code=9)
    assert told == (
        "error[PK54]: line 2 has no ':' after a key (-K); 1 record before it was written\n"
        "  fix: give -k KEY for such lines, or leave out -K\n"
    )
    assert run("consume", topic, "-e").split() == ["v1"]
    assert "-H takes K=V, not 'foo'" in run("produce", topic, "x", "-H", "foo", code=2)


def test_a_record_that_is_too_large_is_told_with_its_line_and_size(
    run: Run, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_text("a\n" + "x" * 3_000_000 + "\n")
    told = run("produce", topic, "--from", str(file), code=9)
    assert told.startswith("error[PK54]: line 2, a record of 3000000 bytes, not written: ")
    assert (
        "Message size too large; 1 record before it was written\n  fix: raise the topic's" in told
    )
    file.write_text('\n{"value": "a"}\n\n{"key": "k", "value": "' + "x" * 3_000_000 + '"}\n')
    told = run("produce", topic, "-f", "jsonl", "--from", str(file), code=9)
    assert told.startswith("error[PK54]: line 4, a record of 3000001 bytes, not written: ")
    told = run("produce", topic, "b", "x" * 100_000, "-X", "message.max.bytes=1000", code=9)
    assert told.startswith("error[PK54]: record 2, a record of 100000 bytes, not written: ")


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression_is_written_and_read(run: Run, topic: str, codec: str) -> None:
    run("topic", "create", topic, "-p", "1")
    lines = [f"{number} {'x' * 200}" for number in range(500)]
    run("produce", topic, "-z", codec, stdin="\n".join(lines) + "\n")
    assert run("consume", topic, "-e").splitlines() == lines


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("beginning", range(10)),
        ("7", range(7, 10)),
        ("-3", range(7, 10)),
        ("2:5", range(2, 5)),
        (":end", range(10)),
        ("-4:-1", range(6, 9)),
        ("end", range(0)),
        ("@0:end", range(10)),
        ("@1500:@3500", range(2, 4)),
        ("@99999:end", range(0)),
    ],
)
def test_ranges(run: Run, topic: str, offset: str, expected: range) -> None:
    # The records are of 1970: a retention by time would delete them.
    run("topic", "create", topic, "-p", "1", "-c", "retention.ms=-1")
    lines = "".join(
        json.dumps({"value": str(number), "timestamp_ms": 1000 * number or 1}) + "\n"
        for number in range(10)
    )
    run("produce", topic, "-f", "jsonl", stdin=lines)
    out = run("consume", topic, "-o", offset, "-e")
    assert [int(line) for line in out.splitlines()] == list(expected)


def test_offsets_outside_of_the_log(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, "a")
    told = run("consume", topic, "-o", "2", "-e", code=1)
    assert f"{topic} [0]: offset 2 is past the end of the log, which is 1\n  fix: give" in told
    assert "has no partition 3" in run("consume", topic, "-p", "3", code=4)
    assert "not written" in run("produce", topic, "x", "-p", "3", code=4)


def said(*arguments: str) -> tuple[str, str]:
    """A command's standard output and error; it must end well."""
    done = CliRunner().invoke(app, ["--timeout", "20", *arguments])
    assert done.exit_code == 0, done.stderr
    return done.stdout, done.stderr


def test_ranges_that_not_every_partition_has(run: Run, bootstrap: str, topic: str) -> None:
    run("topic", "create", topic, "-p", "2")
    run("produce", topic, "a", "b", "c", "-p", "0")
    run("produce", topic, "d", "-p", "1")
    out, err = said("-b", bootstrap, "consume", topic, "-o", "2", "-e")
    assert (out, err) == (
        "c\n",
        f"note: {topic} [1]: offset 2 is past the end of the log, which is 1\n",
    )
    assert said("-b", bootstrap, "consume", topic, "-o", ":2", "-e")[1] == ""
    assert "ends before it begins" in run("consume", topic, "-o", "5:2", code=2)


def test_an_end_past_the_log_is_waited_for(run: Run, bootstrap: str, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, "a", "b")
    command = ["-b", bootstrap, "consume", topic, "-o", ":3"]
    with subprocess.Popen(
        [sys.executable, "-m", "pyrklog", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["a\n", "b\n"]
        run("produce", topic, "c", "d")
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "c\n"), err
    assert err == (
        f"note: {topic} [0] ends at 2, before 3: waiting for records; -e stops at the end\n"
    )


def test_what_kafkas_console_clients_are_given(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    told = run("produce", topic, "v", "--property", "parse.key=true", code=2)
    assert 'configuration property: "parse.key"\n  fix: `produce -K TEXT` takes lines' in told
    told = run("consume", topic, "-e", "--property", "print.key=true", code=2)
    assert 'configuration property: "print.key"\n  fix: `consume -K TEXT` prints' in told


def test_internal_topics_are_guarded(run: Run, bootstrap: str, topic: str) -> None:
    run("topic", "create", topic)
    run("produce", topic, "v")
    run("consume", topic, "-e", "-g", topic)  # makes the topic of offsets
    name = "__consumer_offsets"
    told = run("topic", "alter", name, "-p", "60", code=2)
    assert f"what {name} holds (" in told
    assert "with more of them it is lost" in told
    out, err = said("-b", bootstrap, "topic", "delete", name, "--dry-run")
    assert (out, err) == (
        f"{name}: 50 partitions would be deleted\n",
        f"note: deleting {name} loses the committed offsets of all groups\n",
    )
    told = run("topic", "delete", name, "-y", code=2)
    assert "loses the committed offsets of all groups\n  fix: give --internal, too" in told
    assert name in run("topic", "list", "--internal", "-o", "name").splitlines()
    assert "internal topic takes no records" in run("produce", name, "v", code=1)
    assert "would be deleted" in run("topic", "delete", topic, "--dry-run")


def test_json_lines_copy_a_topic_without_loss(run: Run, topic: str) -> None:
    copy = f"{topic}-copy"
    for name in (topic, copy):
        run("topic", "create", name, "-p", "3", "-c", "retention.ms=-1")  # the records are old
    lines = [
        {"key": None, "value": "text", "partition": 0, "timestamp_ms": 5},
        {"key": "", "value": "", "partition": 2, "timestamp_ms": 1_600_000_000_000},
        {"key": {"base64": "/w=="}, "value": None, "partition": 1, "timestamp_ms": 7},
        {
            "key": "k",
            "value": {"base64": "AP8="},
            "partition": 1,
            "timestamp_ms": 8,
            "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}],
        },
    ]
    run("produce", topic, "-f", "jsonl", stdin="".join(json.dumps(one) + "\n" for one in lines))
    read = run("consume", topic, "-e", "-f", "jsonl")
    run("produce", copy, "-f", "jsonl", stdin=read)

    def contents(text: str) -> list[dict[str, object]]:
        records = [json.loads(line) for line in text.splitlines()]
        for record in records:
            del record["topic"]
        return sorted(records, key=lambda record: (record["partition"], record["offset"]))

    assert contents(run("consume", copy, "-e", "-f", "jsonl")) == contents(read)
    assert [record["value"] for record in contents(read)] == [
        "text",
        None,
        {"base64": "AP8="},
        "",
    ]


def test_record_shows_its_metadata(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "1", "-c", "message.timestamp.type=LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    run("produce", topic, "a", "b")
    out = run("consume", topic, "-c", "1", "-f", "%T %d{iso} %e %a %[ %| %]")
    timestamp, iso, epoch, kind, *marks = out.split()
    assert before_ms - 5000 < int(timestamp) < before_ms + 60_000
    assert iso.endswith("Z")
    assert (epoch, kind, marks) == ("0", "LogAppendTime", ["0", "2", "2"])


def test_a_topic_that_is_missing_is_made_by_the_first_record(run: Run, topic: str) -> None:
    assert run("produce", topic, "hello", "-v") == f"{topic} 0@0\n"
    assert run("consume", topic, "-c", "1") == "hello\n"


def test_following_a_topic_until_interrupted(bootstrap: str, run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    command = [sys.executable, "-m", "pyrklog", "consume", topic, "-o", "end", "-b", bootstrap]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stderr is not None
            # "end" is resolved some time after the start: write until the first record arrives.
            os.set_blocking(reader.stdout.fileno(), False)
            deadline = time.monotonic() + 60
            while reader.stdout.readline() != "tick\n":
                assert time.monotonic() < deadline, "nothing was read"
                assert reader.poll() is None, reader.stderr.read()
                run("produce", topic, "tick")
            reader.send_signal(signal.SIGINT)
            assert reader.wait(60) == 130
            assert reader.stderr.read() == ""
        finally:
            reader.kill()


@pytest.mark.parametrize("is_busy", [False, True])
def test_partitions_that_are_added_are_read(
    bootstrap: str, run: Run, topic: str, *, is_busy: bool
) -> None:
    run("topic", "create", topic, "-p", "1")
    command = [sys.executable, "-m", "pyrklog", "consume", topic, "-b", bootstrap]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stderr is not None
            run("produce", topic, "old")
            assert reader.stdout.readline() == "old\n"
            run("topic", "add-partitions", topic, "--to", "3")
            run("produce", topic, "new", "-p", "2")
            os.set_blocking(reader.stdout.fileno(), False)
            deadline = time.monotonic() + 60
            while (line := reader.stdout.readline()) != "new\n":
                assert line in ("", "tick\n")
                assert time.monotonic() < deadline, "the new partition was not read"
                if is_busy:
                    run("produce", topic, "tick", "-p", "0")
            reader.send_signal(signal.SIGINT)
            assert reader.wait(60) == 130
            told = f"note: 2 new partitions: {topic} [1], {topic} [2]\n"
            assert reader.stderr.read() == told
        finally:
            reader.kill()


def test_a_reader_that_goes_away_is_no_error(bootstrap: str, run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "1")
    run("produce", topic, stdin="".join(f"{number}\n" for number in range(20_000)))
    command = f"{sys.executable} -m pyrklog consume {topic} -e -b {bootstrap}"
    script = f'{command} | head -1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_properties_of_librdkafka_are_handed_on(run: Run, topic: str) -> None:
    assert "no.such.property" in run("topic", "list", "-X", "no.such.property=1", code=2)
    run("topic", "list", "-X", "socket.timeout.ms=20000")


def test_bad_line_reports_the_records_written_before(run: Run, topic: str) -> None:
    lines = '{"value": "a"}\n{"value": "b"}\nnonsense\n'
    error = run("produce", topic, "-f", "jsonl", stdin=lines, code=9)
    assert error.startswith("error[PK54]: line 3 is not JSON")
    assert error.endswith("; 2 records before it were written\n")
    assert run("consume", topic, "-e") == "a\nb\n"
    error = run("produce", topic, "-f", "jsonl", stdin="nonsense\n", code=2)
    assert error.startswith("error[PK49]: line 1 is not JSON")
    assert "written" not in error


def test_the_only_broker_is_never_safe_to_restart(run: Run, bootstrap: str, topic: str) -> None:
    run("topic", "create", topic, "-p", "20")
    asked = ["-b", bootstrap, "cluster", "restart-safe", "1"]
    said = CliRunner().invoke(app, asked)
    sentence = "no: it is the only broker, and a restart stops all service until it is back\n"
    assert (said.exit_code, said.stdout, said.stderr) == (8, sentence, "")
    document = json.loads(CliRunner().invoke(app, [*asked, "-o", "json"]).stdout)
    assert len(document["items"][0]["partitions"]) >= 20


def test_an_option_letter_for_numbers_means_how_many_are_wanted() -> None:
    """Of records, rebalances, lines, brokers: what the command itself prints or starts."""

    found: set[str] = set()

    def look(command: Any) -> None:
        for one in getattr(command, "commands", {}).values():
            look(one)
        found.update(one.name for one in command.params if "-n" in one.opts)

    look(typer.main.get_command(app))
    assert found == {"count", "limit", "lines", "records"}


def test_every_schema_has_our_name() -> None:
    folder = Path(cli.__file__).parent
    sources = "".join(file.read_text() for file in folder.glob("*.py"))
    schemas = re.findall(r'"([\w.-]+/\d+)"', sources)
    assert len(schemas) > 10
    assert [name for name in schemas if not name.startswith("pyrklog.")] == []
