"""A broker's output for people and programs: log lines, banner, who holds a port."""

import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyrklog.base import logs
from pyrklog.base.diagnosis import lock_holder, port_holder
from pyrklog.config.listeners import Endpoint
from pyrklog.start.banner import banner, own_command, printable, seconds_since_exec
from pyrklog.start.folders import warn_of_full_disks


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> logs._Sink:
    fresh = logs._Sink()
    monkeypatch.setattr(logs, "_sink", fresh)
    return fresh


def test_lines_wait_for_configuration_and_keep_their_time(sink: logs._Sink) -> None:
    log = logs.get_logger("test")
    log.info("first", number=1)
    log.debug("unseen")
    at = sink.waiting[0][0]
    out = io.StringIO()
    logs.configure(out)
    log.warning("second", path=Path("/x"), event="kept out")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["event"], line["level"], line["logger"]) for line in lines] == [
        ("first", "info", "test"),
        ("second", "warning", "test"),
    ]
    assert lines[0]["number"] == 1
    assert lines[1]["path"] == "/x"
    assert lines[0]["timestamp"].endswith(f".{int(at % 1 * 1000):03d}Z")


def test_an_error_carries_its_traceback_in_one_line(sink: logs._Sink) -> None:
    out = io.StringIO()
    logs.configure(out)
    try:
        raise ValueError("a bug")
    except ValueError as error:
        logs.get_logger("test").error("failed", exc_info=error)
    (line,) = out.getvalue().splitlines()
    assert "ValueError: a bug" in json.loads(line)["exception"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("term", "no_color", "coloured"),
    [("xterm", None, True), ("dumb", None, False), ("xterm", "1", False), (None, None, True)],
)
def test_colours_are_for_terminals_that_have_them(
    sink: logs._Sink,
    monkeypatch: pytest.MonkeyPatch,
    term: str | None,
    no_color: str | None,
    coloured: bool,
) -> None:
    for name, value in (("TERM", term), ("NO_COLOR", no_color)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    out = Terminal()
    logs.configure(out)
    logs.get_logger("test").info("listening", port=9092)
    assert ("\x1b[" in out.getvalue()) is coloured


def test_a_terminal_gets_text(sink: logs._Sink) -> None:
    out = Terminal()
    logs.configure(out)
    logs.get_logger("test").info("listening", port=9092)
    (line,) = out.getvalue().splitlines()
    assert "listening" in line
    assert "9092" in line
    assert not line.startswith("{")


@pytest.mark.parametrize("is_journal", [True, False])
def test_the_journal_is_told_how_grave_a_line_is(
    sink: logs._Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_journal: bool
) -> None:
    path = tmp_path / "out"
    with path.open("a") as out:
        found = os.fstat(out.fileno())
        inode = found.st_ino if is_journal else found.st_ino + 1  # of an output before this one
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{inode}")
        logs.configure(out, level="debug")
        log = logs.get_logger("test")
        for level in (log.debug, log.info, log.warning, log.error):
            level("told")
        assert logs.flush(30)
    starts, ends = zip(*(line.split("{", 1) for line in path.read_text().splitlines()), strict=True)
    assert starts == (("<7>", "<6>", "<4>", "<3>") if is_journal else ("",) * 4)
    levels = [json.loads("{" + end)["level"] for end in ends]
    assert levels == ["debug", "info", "warning", "error"]


def test_a_log_that_is_copied_and_cut_goes_on_at_its_beginning(
    sink: logs._Sink, tmp_path: Path
) -> None:
    """As logrotate's copytruncate does with a file that is appended to."""
    path = tmp_path / "broker.log"
    with path.open("a") as out:
        logs.configure(out)
        log = logs.get_logger("test")
        log.info("before")
        assert logs.flush(30)
        os.truncate(path, 0)
        log.info("after")
        assert logs.flush(30)
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["event"] == "after"


def test_a_reader_that_went_away_harms_nothing(sink: logs._Sink) -> None:
    out = io.StringIO()
    logs.configure(out)
    out.close()
    logs.get_logger("test").info("unheard")


def test_banner_is_shown_by_terminals_without_its_characters(tmp_path: Path) -> None:
    text = banner([Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [tmp_path], 0.31)
    assert printable(text, "utf-8") == text
    assert printable(text, "ascii").splitlines()[0].endswith(" ? single node ? embedded metadata")


def test_banner_shows_address_data_and_start_time(tmp_path: Path) -> None:
    text = banner([Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [tmp_path], 0.31)
    assert "127.0.0.1:9092" in text
    assert str(tmp_path) in text
    assert "ready in 0.3 s" in text
    assert text.endswith("pyrklog produce hello")
    elsewhere = banner([Endpoint("PLAINTEXT", "::1", 9095)], [tmp_path], 0.31)
    assert "[::1]:9095" in elsewhere
    assert "produce -b [::1]:9095 hello" in elsewhere
    assert "single node · embedded metadata" in text
    place = "broker 2 · ZooKeeper 127.0.0.1:2181/pyrklog"
    of_a_cluster = banner([Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [tmp_path], 0.31, place)
    assert of_a_cluster.splitlines()[0].endswith(f" · {place}")
    assert "single node" not in of_a_cluster
    assert "memory" not in text, "no cache"
    cached = banner([Endpoint("PLAINTEXT", "::1", 9095)], [tmp_path], 0.31, place, 14_400_000_000)
    assert "memory   up to 14 GB of cache, given back when others need it" in cached
    assert "http" not in cached
    served = banner(
        [Endpoint("PLAINTEXT", "::1", 9095)], [tmp_path], 0.31, place, 0, ("127.0.0.1", 9192)
    )
    assert "http     http://127.0.0.1:9192  /metrics /health/ready" in served


def test_the_time_since_exec() -> None:
    first = seconds_since_exec()
    assert 0 < first <= seconds_since_exec()


def test_the_banner_of_a_directory_that_is_gone(tmp_path: Path) -> None:
    shown = banner([Endpoint("PLAINTEXT", "127.0.0.1", 9092)], [tmp_path / "gone"], 0.3)
    assert "gone  (No such file or directory)" in shown


@pytest.mark.parametrize(("free_bytes", "events"), [(101, []), (100, ["disk_nearly_full"])])
def test_a_disk_that_is_nearly_full(
    sink: logs._Sink,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free_bytes: int,
    events: list[str],
) -> None:
    usage = SimpleNamespace(total=5000, used=1000 - free_bytes, free=free_bytes)
    monkeypatch.setattr("pyrklog.start.folders.shutil.disk_usage", lambda _: usage)
    warn_of_full_disks([tmp_path])
    assert [event for _, _, _, event, _ in sink.waiting] == events
    for *_, fields in sink.waiting:
        assert "becomes read-only" in fields["fix"]


def test_holder_of_a_lock_is_named(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    assert lock_holder(path) is None
    assert lock_holder(tmp_path / "none") is None
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, 2); print(1, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code + "; sys.stdin.read()", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert lock_holder(path) == f"pid {holder.pid}"


def test_holder_of_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert f"pid {os.getpid()}" in (port_holder(port) or "")
    assert port_holder(port) is None


def test_descriptor_closed_during_the_search_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    row = "0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1"
    (tmp_path / "net" / "tcp").write_text(f"sl local_address ...\n{row}\n")
    process = tmp_path / "4121"
    (process / "fd").mkdir(parents=True)
    (process / "comm").write_text("java\n")
    for name in range(8):
        (process / "fd" / str(name)).touch()  # the link is no longer readable
        (process / "fd" / str(name + 8)).symlink_to(f"socket:[{70 + name}]")
    assert port_holder(0x2384, tmp_path) == "java pid 4121"


def test_a_proposed_command_can_be_typed_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "my env" / "bin" / "pyrklog"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [str(program)])
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir("/")
    assert own_command() == f"'{tmp_path.relative_to('/')}/my env/bin/pyrklog'"
    monkeypatch.chdir(tmp_path / "my env")
    assert own_command() == "bin/pyrklog"
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_command() == "pyrklog"
    monkeypatch.setattr("sys.argv", [str(tmp_path / "__main__.py")])  # python -m pyrklog
    assert own_command() == "pyrklog"
