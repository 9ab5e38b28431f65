"""``pyrklog bench`` on our broker and on Apache Kafka."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyrklog.testing import TestBroker
from tests.support.commands import Run, create, runner
from tests.support.jvm import KAFKA_JARS
from tests.support.waiting import wait_until

RECORDS = 20_000
ENGINES = ["native", "librdkafka", pytest.param("java", marks=pytest.mark.jvm)]


@pytest.fixture
def ours(broker: TestBroker) -> Run:
    return runner(broker.bootstrap)


def items(run: Run, *command: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run("bench", *command, "-o", "json"))["items"]
    return found


def of_engine(engine: str) -> list[str]:
    more = ["--kafka-home", str(KAFKA_JARS)] if engine == "java" else []
    return ["--engine", engine, *more]


def topics(run: Run) -> list[str]:
    return [one for one in run("topic", "list", "-o", "name").split() if "bench" in one]


@pytest.mark.parametrize("engine", ENGINES)
def test_produce_writes_the_records(run: Run, topic: str, engine: str) -> None:
    create(run, topic, "-p", "3")
    (item,) = items(run, "produce", "-t", topic, "-n", str(RECORDS), *of_engine(engine))
    assert (item["mode"], item["engine"], item["errors"]) == ("produce", engine, 0)
    assert RECORDS <= item["records"] < RECORDS + 200
    assert 0 < item["p50"] <= item["p99"] <= item["max"]
    assert item["client_cpu_s_per_gb"] > 0
    described = json.loads(run("topic", "describe", topic, "-o", "json"))["items"][0]
    assert sum(one["end_offset"] for one in described["partitions"]) == item["records"]


@pytest.mark.parametrize("engine", ENGINES)
def test_consume_reads_the_last_records(run: Run, topic: str, engine: str) -> None:
    create(run, topic, "-p", "2")
    written = items(run, "produce", "-t", topic, "-n", str(RECORDS))[0]["records"]
    read = items(run, "consume", "-t", topic, *of_engine(engine), "-n", str(written))
    assert [one["records"] for one in read] == [written]
    if engine == "native":
        assert items(run, "consume", "-t", topic)[0]["records"] == written
        last = items(run, "consume", "-t", topic, "-n", "1000")[0]["records"]
        assert 1000 <= last < 1400


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_topic_of_its_own_goes_again(ours: Run, engine: str) -> None:
    for mode in ("produce", "consume"):
        found = items(ours, mode, "-n", str(RECORDS), "--partitions", "4", "--engine", engine)
        assert found[0]["records"] >= RECORDS
    assert topics(ours) == []


def test_a_topic_of_its_own_may_stay(ours: Run) -> None:
    (item,) = items(ours, "produce", "-n", "100", "--keep")
    assert topics(ours) == [item["topic"]]
    ours("topic", "delete", "-y", item["topic"])


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_a_pair_reads_what_it_writes(ours: Run, engine: str) -> None:
    written, read = items(ours, "pair", "-n", str(RECORDS), "--partitions", "2", "--engine", engine)
    assert (written["mode"], read["mode"]) == ("produce", "consume")
    assert read["records"] == written["records"] >= RECORDS


@pytest.mark.parametrize("engine", ["native", "librdkafka"])
def test_latency_is_of_every_record(ours: Run, engine: str) -> None:
    more = ("--rate", "200", "--for", "1s", "--warm-up", "0.2s", "--engine", engine)
    (item,) = items(ours, "latency", *more)
    assert item["mode"] == "latency"
    assert item["lost"] == 0
    # Fewer than asked for where the machine is busy.
    assert 0 < item["records"] <= 201
    assert 0 < item["p50"] <= item["p99.9"] <= item["max"]


def test_files_of_a_run(ours: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        ours("bench", "produce", "-n", str(RECORDS), "--rate", "40000", "--out", str(out))
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["records"]) >= RECORDS for row in rows] == [True, True]
    with (out / "progress.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) >= 2
    assert json.loads((out / "environment.json").read_text())["processors"] >= 1
    assert (out / "throughput.svg").read_text().startswith("<?xml")


def test_a_sweep_compares_two_brokers(ours: Run, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    with TestBroker(tmp_path / "other") as other:
        command = ["bench", "sweep", "--out", str(out), "--against", other.bootstrap]
        command += ["--var", "size=50,500", "--repeat", "1", "-n", "2000", "-q"]
        first = ours(*command)
        assert ours(*command) == first, "the second finds all runs there"
    assert first.count("size") == 6
    assert (out / "sweep-size.svg").exists()
    with (out / "results.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["produce", "--engine", "fast"], 2, "native, librdkafka, java"),
        (["produce", "--acks", "2"], 2, "0, 1 or all"),
        (["produce", "--for", "0s"], 2, "--for takes"),
        (["produce", "-t", "no-such-topic"], 4, "does not exist"),
        (["produce", "-X", "linger.ms=5"], 2, "--engine librdkafka"),
        (["produce", "-X", "security.protocol=SSL"], 2, "--engine librdkafka"),
        (["produce", "--engine", "java", "--kafka-home", "/nowhere"], 4, "kafka-tools"),
        (["produce", "--rf", "3"], 1, "--rf"),
        (["latency", "--size", "4"], 2, "8 or more"),
        (["pair", "-t", "t"], 2, "leave out --topic"),
        (["sweep", "--out", "{}"], 2, "--preset article"),
        (["sweep", "--out", "{}", "--var", "colour=1"], 2, "--var takes"),
        (["sweep", "--var", "size=10"], 2, "fix: give --out DIR"),
        (["sweep", "--var", "siz=10,20"], 2, "fix: did you mean size?; give --out DIR"),
    ],
)
def test_mistakes(ours: Run, tmp_path: Path, arguments: list[str], code: int, told: str) -> None:
    placed = [one.format(tmp_path / "sweep") if one == "{}" else one for one in arguments]
    assert told in ours("bench", *placed, code=code)
    assert topics(ours) == []


def test_a_refused_record_is_told(ours: Run, topic: str) -> None:
    create(ours, topic, "-c", "max.message.bytes=1000")
    assert "MESSAGE_TOO_LARGE" in ours("bench", "produce", "-t", topic, "-n", "100", code=1)


def test_interrupted_it_shows_what_was_measured(broker: TestBroker) -> None:
    words = [sys.executable, "-m", "pyrklog", "-b", broker.bootstrap, "bench", "produce"]
    words += ["--rate", "1000", "-o", "json", "--for", "60s"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    run = runner(broker.bootstrap)

    def is_under_way() -> bool:
        found = topics(run)
        if not found:
            return False
        one = json.loads(run("topic", "describe", found[0], "-o", "json"))["items"][0]
        return bool(one["partitions"][0]["end_offset"])

    wait_until(is_under_way, "nothing is written")
    process.send_signal(signal.SIGINT)
    shown, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(shown)["items"][0]["records"] > 0, errors
    assert topics(run) == []
