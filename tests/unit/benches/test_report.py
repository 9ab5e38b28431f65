"""Figures: /proc, the generator's output, ratios, goals, files."""

import csv
import json
import os
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from benches import against_kafka, loadgen, metadata_probe, process, report
from benches.brokers import BenchError
from benches.report import Result

PAGE = 4096


def test_stat_is_read_past_a_command_name_with_parentheses() -> None:
    numbers = [str(number) for number in range(4, 53)]  # field 4 holds 4, and so on
    found = process.parse_stat(f"77 (a) b) S {' '.join(numbers)}\n", PAGE)
    ticks = os.sysconf("SC_CLK_TCK")
    assert found == process.Stat((14 + 15) / ticks, 24 * PAGE, 20, (16 + 17) / ticks)


@pytest.mark.parametrize("text", ["", "77 a S 1 2 3", "77 (a) S 1 2"])
def test_malformed_stat_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the content of a stat file"):
        process.parse_stat(text, PAGE)


def result_line(**changed: Any) -> str:
    line = {
        "mode": "produce",
        "topic": "t",
        "bytes": 10,
        "records": 2,
        "requests": 1,
        "mb_per_s": 1.5,
        "records_per_s": 2.0,
        "requests_per_s": 1.0,
        "latency_ms": {"p50": 1.0},
        "client_cpu_s_per_gb": 0.3,
        "started_ns": 1,
        "finished_ns": 2,
        "errors": {},
        "lost": 0,
    }
    return json.dumps(line | changed)


def test_report_refuses_a_load_with_errors_or_losses() -> None:
    assert loadgen.parse(result_line()).bytes == 10
    with pytest.raises(BenchError, match="NOT_LEADER_OR_FOLLOWER"):
        loadgen.parse(result_line(errors={"NOT_LEADER_OR_FOLLOWER": 3}))
    with pytest.raises(BenchError, match="4 records lost"):
        loadgen.parse(result_line(lost=4))


def pairs() -> list[Result]:
    figures = {1: (100.0, 250.0), 2: (200.0, 300.0), 3: (100.0, 220.0)}
    return [
        Result(pair, broker, "produce16k", {"mb_per_s": figure, "cpu_s_per_gb": 2.0 + place})
        for pair, both in figures.items()
        for place, (broker, figure) in enumerate(zip(("kafka", "pyrklog"), both, strict=True))
    ]


def test_ratios_are_taken_within_each_pair() -> None:
    found = {line.metric: line for line in report.lines(pairs())}
    speed = found["mb_per_s"]
    assert (speed.reference, speed.ours) == (100.0, 250.0)
    assert speed.ratios == (2.5, 1.5, 2.2)
    assert speed.ratio == 2.2
    assert speed.verdict() == "missed (>= 5x)"
    assert found["cpu_s_per_gb"].verdict() == "missed (<= 0.167x)"
    assert found["p50_ms"].ours is None
    assert found["p50_ms"].verdict() == ""


def test_report_of_one_broker_has_no_ratio_and_no_verdict() -> None:
    alone = [result for result in pairs() if result.broker == "kafka"]
    speed = report.lines(alone)[0]
    assert (speed.reference, speed.ours, speed.ratio, speed.verdict()) == (100.0, None, None, "")
    assert "| – |" in report.markdown([speed])


def test_a_floor_has_a_column_of_its_own() -> None:
    floor = [Result(1, "floor", "produce16k", {"mb_per_s": 240.0})]
    found = report.lines([*pairs(), *floor])
    speed = next(line for line in found if line.metric == "mb_per_s")
    assert (speed.floor, speed.ours, speed.verdict()) == (240.0, 250.0, "at the floor (>= 5x)")
    text = report.markdown(found)
    assert text.splitlines()[0].endswith("| floor |")
    assert all(line.count("|") == text.splitlines()[0].count("|") for line in text.splitlines())


def test_csv_has_every_figure_that_was_taken(tmp_path: Path) -> None:
    report.write_csv(tmp_path / "r.csv", pairs())
    with (tmp_path / "r.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert rows[1]["broker"] == "pyrklog"
    assert float(rows[1]["mb_per_s"]) == 250.0
    assert rows[1]["p99_ms"] == ""


def test_plot_is_a_picture(tmp_path: Path) -> None:
    from benches import plot

    plot.draw(tmp_path / "r.png", report.lines(pairs()), "test")
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def fake_broker(listener: socket.socket, replies: list[int]) -> None:
    connection, _ = listener.accept()
    with connection:
        for brokers in replies:
            connection.recv(1024)
            body = struct.pack(">ii", 1, brokers)
            connection.sendall(struct.pack(">i", len(body)) + body)


def test_the_probe_waits_until_a_broker_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = threading.Thread(target=fake_broker, args=(listener, [0, 0, 1]))
        served.start()
        before = time.monotonic()
        ready = metadata_probe.wait_for_metadata(
            listener.getsockname()[1], before + 10, lambda: True
        )
        served.join()
    assert before < ready <= time.monotonic()


def test_the_probe_gives_up_on_a_dead_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(metadata_probe.BrokerEnded):
        metadata_probe.wait_for_metadata(port, time.monotonic() + 10, lambda: False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "produce2k"], "no case 'produce2k'"),
        (["--brokers", "redis"], "no broker 'redis'"),
        (["--pairs", "0"], "--pairs: 0 is not at least 1"),
        (["--seconds", "nan"], "--seconds: nan is not above 0"),
        (["--many", "x"], "--many: invalid count value"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        against_kafka.parse(arguments)
    assert message in capsys.readouterr().err
