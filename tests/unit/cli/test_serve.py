"""``pyrklog serve``: options parsed without typer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from pyrklog.cli import serve
from pyrklog.cli.app import app
from pyrklog.cli.serve import ServeOptions, parse_fast
from pyrklog.start.standing import note_standing
from pyrklog.testing.broker import free_port


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyrklog", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ServeOptions()),
        (["--data", "d", "--listen", ":0"], ServeOptions(data="d", listen=":0")),
        (["--data=d", "--config=f"], ServeOptions(data="d", config="f")),
        (["--adopt-zookeeper", "z:1/k"], ServeOptions(adopt_zookeeper="z:1/k")),
        (
            ["--zookeeper", "z:1/k", "--broker-id=3"],
            ServeOptions(zookeeper="z:1/k", broker_id="3"),
        ),
        (
            ["--log-level", "debug", "--log-format=json"],
            ServeOptions(log_level="debug", log_format="json"),
        ),
        (["--set", "a=1", "--set=b=2=3"], ServeOptions(sets=["a=1", "b=2=3"])),
        (
            ["--check", "--print-config", "--tmp"],
            ServeOptions(None, None, None, [], True, True, True),
        ),
    ],
)
def test_serve_options_are_parsed(arguments: list[str], expected: ServeOptions) -> None:
    assert parse_fast(arguments) == expected


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--nope"], ["x"], ["--data"], ["--data", "--check"], ["--check=1"]]
)
def test_usage_errors_and_help_are_left_to_typer(arguments: list[str]) -> None:
    assert parse_fast(arguments) is None


def test_both_parsers_know_the_same_options() -> None:
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    declared = {name: one.is_flag for one in command.params for name in one.opts}
    known = {**dict.fromkeys(serve._VALUES, False), **dict.fromkeys(serve._FLAGS, True)}
    assert {**known, "--set": False} == {k: v for k, v in declared.items() if k != "--help"}


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092"),
        (":9095", "PLAINTEXT://:9095"),
        ("[::1]:0", "PLAINTEXT://[::1]:0"),
        ("PLAINTEXT://a:1", "PLAINTEXT://a:1"),
    ],
)
def test_addresses_become_listeners(listen: str, expected: str) -> None:
    assert serve._listeners(listen) == expected


@pytest.mark.parametrize("listen", ["9092", "a:b", "a:99999", ""])
def test_a_bad_address_is_a_configuration_error(listen: str) -> None:
    done = run("serve", "--listen", listen, "--check")
    assert done.returncode == 78
    assert done.stderr.startswith("error[PK01]: --listen takes HOST:PORT")
    assert done.stderr.count("\n") == 2


def test_a_configuration_is_checked_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=7\nlog.retention.ms=5000\n")
    monkeypatch.delenv("PYRKLOG_CACHE_KEEP")  # it would be counted
    good = run("serve", "--config", str(properties), "--data", str(tmp_path / "d"), "--check")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout == "configuration is good: 3 options are given, and take effect\n"
    shown = run("serve", "--config", str(properties), "--set", "num.partitions=8", "--print-config")
    assert shown.returncode == 0
    assert "num.partitions=8  # --set" in shown.stdout
    assert "log.retention.ms=5000  # server.properties line 2" in shown.stdout
    flags = run("serve", "--listen", ":0", "--http", "none", "--print-config").stdout
    assert "listeners=PLAINTEXT://:0  # --listen" in flags
    assert "pyrklog.http.listener=none  # --http" in flags
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("sets", "line"),
    [
        ([], "socket.request.max.bytes=33554432  # default"),
        (["socket.request.max.bytes=50000000"], "socket.request.max.bytes=50000000  # --set"),
    ],
)
def test_a_bound_that_follows_from_the_memory_is_printed_as_it_acts(
    sets: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("pyrklog.plane.core_plane.memory_bytes", lambda: 512 * 2**20)
    assert serve._serve(ServeOptions(sets=sets, print_config=True), None) == 0
    assert line in capsys.readouterr().out.splitlines()


def test_an_unknown_option_names_the_nearest() -> None:
    done = run("serve", "--set", "num.partition=3", "--check")
    assert done.returncode == 78
    assert "did you mean num.partitions" in done.stderr


def test_temporary_data_excludes_a_directory(tmp_path: Path) -> None:
    done = run("serve", "--tmp", "--data", str(tmp_path))
    assert done.returncode == 78
    assert done.stderr.startswith("error[PK04]: --tmp and --data exclude each other")


def test_temporary_data_beside_log_directories_that_stay(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = run("serve", "--tmp", "--check", "--set", f"log.dirs={kept}")
    assert done.returncode == 78
    assert done.stderr.startswith(
        "error[PK04]: --tmp removes the broker's data at the end, but log.dirs"
    )
    assert str(kept) in done.stderr
    assert not kept.exists()


def test_an_empty_directory_name_is_not_the_default() -> None:
    done = run("serve", "--data", "", "--check")
    assert done.returncode == 78
    assert done.stderr.startswith("error[PK01]: --data takes a directory")


@pytest.mark.parametrize("option", ["--zookeeper", "--adopt-zookeeper", "--broker-id"])
def test_a_variable_that_is_not_set_is_not_the_default(option: str) -> None:
    """A broker without its cluster by mistake would take records that no other one has."""
    done = run("serve", option, "", "--check")
    assert done.returncode == 78
    assert done.stderr.startswith(f"error[PK01]: {option} takes ")
    assert f"fix: for example {option} " in done.stderr


def test_malformed_zookeeper_address_is_refused_before_the_start() -> None:
    done = run("serve", "--zookeeper", "here:port/x", "--check")
    assert done.returncode == 78
    assert done.stderr.startswith("error[PK01]: zookeeper.connect takes HOST:PORT")
    assert "Traceback" not in done.stderr


def test_an_address_of_another_machine_is_told(tmp_path: Path) -> None:
    done = run("serve", "--data", str(tmp_path), "--listen", "192.0.2.1:9092")
    assert done.returncode == 78
    assert "192.0.2.1:9092 is no address of this machine" in done.stderr
    assert "fix: listen on" in done.stderr


def test_starting_a_broker_loads_no_command_line_library() -> None:
    program = (
        "import sys; sys.argv = ['pyrklog', 'serve', '--check'];"
        "from pyrklog.cli import main\n"
        "try: main()\n"
        "finally: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(done.stdout.split())
    assert "pyrklog.config" in loaded
    assert not {"typer", "rich", "confluent_kafka", "click", "pydantic"} & loaded


@pytest.mark.parametrize("arguments", [["--log-level", "loud"], ["--log-format", "xml"]])
def test_unknown_log_levels_and_formats_are_refused(arguments: list[str]) -> None:
    done = run("serve", *arguments, "--check")
    assert done.returncode == 78
    assert f"error[PK01]: {arguments[0]} takes" in done.stderr


@pytest.mark.parametrize("is_member", [False, True])
def test_a_zookeeper_that_does_not_answer_is_told_once(tmp_path: Path, is_member: bool) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    if is_member:
        (tmp_path / "data" / "logs").mkdir(parents=True)
        note_standing([tmp_path / "data" / "logs"], nowhere)
    done = run(
        "serve",
        *("--data", str(tmp_path / "data"), "--zookeeper", nowhere, "--listen", "127.0.0.1:0"),
        *("--set", "zookeeper.connection.timeout.ms=3000", "--log-format", "json"),
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    told = [line for line in lines if line["event"] == "zookeeper_does_not_answer"]
    assert [(line["connect"], line["waits_seconds"]) for line in told] == [(nowhere, 3.0)]
    assert "refused" in told[0]["reason"]
    assert done.stderr.startswith("error[PK16]: No ZooKeeper answers")
    advice = "a broker that is to be alone starts with --set zookeeper.connect="
    assert (advice in done.stderr) == (not is_member)
    assert len(done.stderr.splitlines()) == 2
    assert done.returncode == 75


def test_port_out_of_range_is_reported() -> None:
    done = run("serve", "--listen", "127.0.0.1:99999", "--check")
    assert done.returncode == 78
    assert "the port of '127.0.0.1:99999' is out of range: 0 to 65535" in done.stderr


@pytest.mark.parametrize("more", [[], ["--check"]])
def test_a_host_without_an_address_is_told_before_anything_is_made(
    tmp_path: Path, more: list[str]
) -> None:
    data = tmp_path / "data"
    done = run("serve", "--data", str(data), "--listen", "nowhere.invalid:9092", *more)
    assert (done.returncode, done.stdout) == (78, "")
    # No line of a log: nothing was begun.
    assert done.stderr.startswith("error[PK08]: nowhere.invalid is no name that can be resolved")
    assert not data.exists()


def test_a_level_may_be_in_capitals() -> None:
    assert run("serve", "--log-level", "INFO", "--check").returncode == 0


def test_names_outside_utf8_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert serve._serve(ServeOptions(print_config=True), "a\udcff") == 0
    assert "pyrklog.data.dir=a\\xff  # --data\n" in capsys.readouterr().out
