"""Nobody waits for a hanging log volume or a log reader that stopped."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pyrklog.base import logs
from pyrklog.base.line_writer import LineWriter
from pyrklog.controller.state_log import FILE_NAME, StateChangeLog

PATIENCE_S = 30
LINES = 5_000


class Gate:
    """An output for lines that blocks until it is opened."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.is_asked = threading.Event()
        self._opened = threading.Event()

    def write(self, lines: Sequence[str]) -> None:
        self.is_asked.set()
        assert self._opened.wait(PATIENCE_S)
        self.written += lines

    def open(self) -> None:
        self._opened.set()


def test_log_lines_beyond_the_buffer_are_dropped_and_counted() -> None:
    gate = Gate()
    writer = LineWriter("test", gate.write, lambda count: f"{count} dropped", max_bytes=30)
    writer.put("the first")
    assert gate.is_asked.wait(PATIENCE_S)
    for number in range(10):
        writer.put(f"line {number:05}")
    assert not writer.flush(0.01)
    gate.open()
    assert writer.flush(PATIENCE_S)
    kept = ["line 00000", "line 00001", "line 00002"]
    assert gate.written == ["the first", *kept, "7 dropped"]
    writer.put("later")
    assert writer.flush(PATIENCE_S)
    assert gate.written[-1] == "later"


def test_closed_log_output_harms_nothing() -> None:
    written: list[str] = []

    def write(lines: Sequence[str]) -> None:
        if not written:
            written.append("lost")
            raise BrokenPipeError
        written.extend(lines)

    writer = LineWriter("test", write, str, max_bytes=1000)
    writer.put("a")
    assert writer.flush(PATIENCE_S)
    writer.put("b")
    assert writer.flush(PATIENCE_S)
    assert written == ["lost", "b"]


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> logs._Sink:
    """Logs before their configuration."""
    fresh = logs._Sink()
    monkeypatch.setattr(logs, "_sink", fresh)
    return fresh


@pytest.fixture
def pipe() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """Both ends; nobody reads."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        yield reading, stream
    os.close(reading)


@pytest.mark.parametrize("format_", ["json", "text"])
def test_full_log_pipe_blocks_no_task(
    sink: logs._Sink,
    pipe: tuple[int, io.TextIOWrapper],
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
) -> None:
    reading, stream = pipe
    monkeypatch.setattr(logs, "WAITING_BYTES_MAX", 100_000)
    logs.choose(level="info", format_=format_)
    logs.configure(stream)
    log = logs.get_logger("test")
    for number in range(LINES):
        log.info("numbered", number=number)
    assert not logs.flush(0.01), "the pipe takes 64 kB"
    # The writer empties a list, so lines between two dropped ones may be kept.
    received, dropped = b"", 0
    numbers: list[int] = []
    while len(numbers) + dropped < LINES:
        received += os.read(reading, 1 << 16)
        whole, _, received = received.rpartition(b"\n")
        for line in whole.decode().splitlines():
            event, value = _parsed(line, format_)
            if event == "numbered":
                numbers.append(value)
            else:
                assert event == "log_lines_dropped"
                dropped += value
    assert numbers == sorted(set(numbers))
    assert len(numbers) + dropped == LINES
    assert 0 < dropped < LINES


def _parsed(line: str, format_: str) -> tuple[str, int]:
    if format_ == "json":
        fields = json.loads(line)
        event = fields["event"]
        assert fields["level"] == ("info" if event == "numbered" else "warning")
        return event, fields["number" if event == "numbered" else "dropped"]
    event = "numbered" if "numbered" in line else "log_lines_dropped"
    assert event in line
    name = "number" if event == "numbered" else "dropped"
    return event, int(line.rpartition(f"{name}=")[2].split()[0])


def test_process_ends_although_its_output_is_not_read() -> None:
    """A clean shutdown waits a second for its last lines, not for ever."""
    program = (
        "from pyrklog.base import logs\n"
        "logs.configure()\n"
        "log = logs.get_logger('test')\n"
        "for number in range(5000): log.info('numbered', number=number)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout is not None
        process.stdout.close()


def test_the_last_lines_are_there_after_an_end() -> None:
    program = (
        "from pyrklog.base import logs\n"
        "logs.configure()\n"
        "for number in range(2000): logs.get_logger('test').info('numbered', number=number)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert [json.loads(line)["number"] for line in done.stdout.splitlines()] == list(range(2000))


def test_hanging_state_change_log_does_not_block_the_controller(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    os.mkfifo(path)  # opening it to write waits for a reader
    log = StateChangeLog(tmp_path)
    for number in range(100):
        log.write("partition_state", {"number": number})
    assert not log.flush(0.01)
    with path.open() as reader:
        assert log.flush(PATIENCE_S)
        lines = [json.loads(reader.readline()) for _ in range(100)]
        log.close()
    assert [line["number"] for line in lines] == list(range(100))


def test_an_end_does_not_wait_for_a_state_change_log_that_hangs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE_NAME)
    log = StateChangeLog(tmp_path)
    log.write("partition_state", {})
    log.close()
    with (tmp_path / FILE_NAME).open() as reader:
        assert "partition_state" in reader.readline()
