"""State-change logs of several brokers become one timeline."""

import json
from pathlib import Path
from typing import Any

import pytest

from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.state_changes import Filter, parse, read_paths, timeline

ALL = Filter()


def line(second: float, event: str = "partition_state", **fields: Any) -> bytes:
    at = f"2024-05-01T12:00:{second:06.3f}Z"
    return json.dumps({"at": at, "event": event, **fields}).encode() + b"\n"


def led(second: float, epoch: int, controller: int, topic: str = "t") -> bytes:
    return line(
        second, topic=topic, partition=0, leader_epoch=epoch, controller_epoch=controller, leader=1
    )


def merged(logs: dict[str, bytes], wanted: Filter = ALL) -> list[dict[str, Any]]:
    wrong: list[str] = []
    rows = list(timeline([parse(name, data, wrong) for name, data in logs.items()], wanted))
    assert wrong == []
    return rows


def times(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["source"], row["at"][17:-1]) for row in rows]


def test_lines_come_in_the_order_of_time() -> None:
    rows = merged({"a": led(1, 0, 1) + led(4, 2, 3), "b": led(2, 1, 2)})
    assert times(rows) == [("a", "01.000"), ("b", "02.000"), ("a", "04.000")]


def test_clock_that_went_back_keeps_the_order_within_a_log() -> None:
    rows = merged({"a": led(5, 0, 1) + led(1, 1, 1), "b": led(3, 0, 1, "u") + led(6, 1, 1, "u")})
    assert times(rows) == [("b", "03.000"), ("a", "05.000"), ("a", "01.000"), ("b", "06.000")]


def test_epochs_that_change_are_marked() -> None:
    log = led(1, 0, 1) + led(2, 0, 1) + led(3, 1, 1) + led(4, 4, 1) + led(5, 3, 2) + led(6, 3, 1)
    marks = [row["marks"] for row in merged({"a": log})]
    assert marks == [
        ["controller epoch 1", "leader epoch 0"],
        [],
        ["leader epoch 0 -> 1"],
        ["leader epoch 1 -> 4 (jump)"],
        ["controller epoch 1 -> 2", "leader epoch 4 -> 3 (back)"],
        ["controller epoch 2 -> 1 (back)"],
    ]


def test_filters_keep_the_epochs_of_the_controller() -> None:
    started = line(3, "controller_started", controller_epoch=2, brokers=[1, 2])
    log = led(1, 0, 1, "u") + led(2, 0, 1) + started + led(4, 1, 2, "u") + led(5, 1, 2)
    rows = merged({"a": log}, Filter(topic="t"))
    assert [(row["topic"], row["event"]) for row in rows] == [
        ("u", "partition_state"),
        ("t", "partition_state"),
        (None, "controller_started"),
        ("t", "partition_state"),
    ]
    assert rows[2]["more"] == {"brokers": [1, 2]}
    assert rows[3]["marks"] == ["leader epoch 0 -> 1"]
    other = merged({"a": log}, Filter(topic="t", partition=1))
    assert [row["event"] for row in other] == ["partition_state", "controller_started"]


def test_a_span_of_time_has_no_end_of_its_own() -> None:
    log = led(1, 0, 1) + led(2, 1, 1) + led(3, 2, 1)
    (begin,) = {one.time_ms for one in parse("a", led(2, 0, 1), [])}
    assert times(merged({"a": log}, Filter(since_ms=begin, until_ms=begin + 1000))) == [
        ("a", "02.000")
    ]


def test_malformed_lines_are_reported_and_skipped() -> None:
    wrong: list[str] = []
    data = led(1, 0, 1) + b"{\n" + b'{"at": 5, "event": "x"}\n[]\n' + led(2, 1, 1) + b'{"at": "20'
    assert len(parse("a", data, wrong)) == 2
    assert [text.split(":")[1] for text in wrong] == [
        f" line {number} is none of a state-change log" for number in (2, 3, 4)
    ]


def test_files_and_folders_are_read(tmp_path: Path) -> None:
    for broker in ("b1", "b2"):
        (tmp_path / broker / "meta").mkdir(parents=True)
        (tmp_path / broker / "meta" / "state-change.jsonl").write_bytes(b"new\n")
    (tmp_path / "b1" / "meta" / "state-change.jsonl.1").write_bytes(b"old\n")
    (tmp_path / "copy.jsonl").write_bytes(b"copy\n")
    found = read_paths([tmp_path / "b1", tmp_path / "b2", tmp_path / "copy.jsonl"])
    assert found == {
        str(tmp_path / "b1" / "meta"): b"old\nnew\n",
        str(tmp_path / "b2" / "meta"): b"new\n",
        str(tmp_path / "copy.jsonl"): b"copy\n",
    }


def test_a_path_without_a_log_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(CliError) as caught:
            read_paths([path])
        assert caught.value.code is Exit.NOT_FOUND
