"""The feature table (docs/using/compared.md): the page, and the rows that are about no record.

The other rows are in the files that ``feature_table.MODULES`` names.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pyrklog.cli import completion
from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.support.commands import Run, create, runner
from tests.support.feature_claims import Claims, OtherTools, kcat
from tests.support.feature_table import (
    MODULES,
    NO,
    PAGE,
    PARTLY,
    ROOT,
    ROWS,
    RPK_MODULES,
    YES,
    page,
)
from tests.support.groups import fill
from tests.support.jvm import KAFKA_JARS
from tests.support.kafka_tools import KafkaTools
from tests.support.kcat import PROGRAM, needs_kcat

pytestmark = [
    pytest.mark.jvm,
    needs_kcat,
]
NewBroker = Callable[..., TestBroker]
OF_NO_CLUSTER = ("bench", "deploy", "completion", "consume", "serve")
"""What changes nothing, or only topics of its own and files that are new."""
READS = (
    *("list", "describe", "skew", "history", "export", "explain", "diff", "health", "brokers"),
    *("clients", "restart-safe", "plan", "status", "producers", "dump", "verify", "merge-state"),
    *("logs", "show", "convert", "lag"),
)
OTHER_FORMS = {
    "serve": "a broker's log: JSON, a line each, where that is no terminal",
    "mirror run": "the same",
    "dev logs": "--json",
    "consume": "-f jsonl",
    "cluster reassign auto": "a line for each look, until Ctrl-C",
    "config convert": "the file itself",
    "completion": "a script for a shell",
}
"""Commands whose output has a form of its own."""


# --- the page ------------------------------------------------------------------------------------


def test_the_page_is_what_the_tests_claim() -> None:
    assert PAGE.read_text() == page(), "python -m tests.support.feature_table"


@pytest.mark.parametrize("modules", [MODULES, RPK_MODULES], ids=["ours", "rpk"])
def test_each_row_is_one_test_of_its_name(modules: tuple[str, ...]) -> None:
    found = [name for module in modules for name in claiming_tests(ROOT / module)]
    assert sorted(found) == sorted(f"test_{row.slug}" for row in ROWS)


def claiming_tests(module: Path) -> Iterator[str]:
    """The tests in it that claim something."""
    for node in ast.parse(module.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
            if any(isinstance(call, ast.Name) and call.id == "claim" for call in calls):
                yield node.name


# --- at hand -------------------------------------------------------------------------------------


def test_pip_install_no_jvm(claim: Claims, fresh_broker: TestBroker) -> None:
    """The rest of pip's way is tests/clients/test_wheel.py."""
    [command] = entry_points(group="console_scripts", name="pyrklog")
    assert command.value.split(":")[0] == "pyrklog.cli"
    maps = Path(f"/proc/{fresh_broker.pid}/maps").read_text()
    assert "_core" in maps
    assert "libjvm" not in maps
    # Kafka's tools are classes, and kcat is a program that no package of Python's has.
    assert any(KAFKA_JARS.glob("kafka-tools-*.jar"))
    assert Path(PROGRAM or "").read_bytes()[:4] == b"\x7fELF"
    assert not entry_points(group="console_scripts", name="kcat")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Each command with its options."""
    command = command or typer.main.get_command(app)
    if not hasattr(command, "list_commands"):
        yield " ".join(path), {option for one in command.params for option in one.opts}
        return
    context = command.make_context("pyrklog", [], resilient_parsing=True)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name), (*path, name))


@pytest.fixture
def filled(broker: TestBroker, topic: str) -> str:
    """A topic with records, and a group of its name that has read some."""
    run = runner(broker.bootstrap)
    create(run, topic, "-p", "2")
    fill(broker.bootstrap, topic, 2, 5)
    run("consume", topic, "-g", topic, "-n", "3")
    return topic


def test_json_everywhere(
    claim: Claims, broker: TestBroker, filled: str, tools: KafkaTools, others: OtherTools
) -> None:
    run = runner(broker.bootstrap)
    lists = [
        *(["topic", "list"], ["topic", "describe", filled], ["topic", "skew", filled]),
        *(["group", "list"], ["group", "describe", filled], ["group", "history", filled]),
        *(["config", "describe", "topic", filled], ["config", "explain", "retention.ms"]),
        *(["cluster", "brokers"], ["cluster", "clients"], ["cluster", "txns", "list"]),
        *(["arena", "list"], ["deploy"], ["group", "export", filled]),
    ]
    for words in lists:
        told = json.loads(run(*words, "-o", "json"))
        assert told["schema"].startswith("pyrklog."), words
        assert isinstance(told["items"], list), words
    without = {name for name, options in commands() if "--output" not in options}
    assert without == OTHER_FORMS.keys()
    told = json.loads(run("topic", "create", f"{filled}-2", "-o", "json"))
    assert told["schema"] == "pyrklog.done/1"
    result = {"kind": "topic", "name": f"{filled}-2", "result": "created", "done": True}
    assert told["items"] == [result]
    at = ("-b", broker.bootstrap)
    assert json.loads(kcat(*at, "-L", "-J", "-t", filled))["topics"][0]["topic"] == filled
    assert filled in json.loads(kcat(*at, "-Q", "-J", "-t", f"{filled}:0:-1"))
    assert json.loads(kcat(*at, "-C", "-J", "-t", filled, "-c", "1", "-q"))["topic"] == filled
    told_dirs = tools("log-dirs", "--describe", "--bootstrap-server", broker.bootstrap)
    assert json.loads(told_dirs.lines[-1])["brokers"]
    for name in ("topics", "consumer-groups", "configs", "get-offsets"):
        assert "json" not in others.kafka[name].lower()
    claim(pyrklog=YES, kafka=PARTLY, kcat=YES)


def test_csv(
    claim: Claims, broker: TestBroker, filled: str, tools: KafkaTools, others: OtherTools
) -> None:
    run = runner(broker.bootstrap)
    [row] = csv.DictReader(io.StringIO(run("topic", "list", filled, "-o", "csv")))
    assert (row["name"], row["partitions"]) == (filled, "2")
    ours = run("group", "export", filled).splitlines()
    words = ("--reset-offsets", "--export", "--group", filled, "--topic", filled, "--to-current")
    told = tools("consumer-groups", "--bootstrap-server", broker.bootstrap, *words, "--dry-run")
    theirs = list(csv.reader(told.lines))
    [common] = [row for row in csv.reader(ours) if row in theirs]
    # Of one partition, whichever came first.
    assert [common[0], common[2]] == [filled, "3"]
    assert "csv" not in others.kafka["topics"].lower()
    others.kcat_lacks("output with csv", "-f csv")
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)


def test_documented_exit_codes(
    claim: Claims, broker: TestBroker, topic: str, tools: KafkaTools, others: OtherTools
) -> None:
    help_text = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    assert "2 usage, 3 unreachable, 4 not found, 5 exists" in help_text
    run = runner(broker.bootstrap)
    run("topic", "describe", topic, code=4)
    run("topic", "create", topic)
    run("topic", "create", topic, code=5)
    run("topic", "create", topic, "--no-such-option", code=2)
    runner(f"127.0.0.1:{free_port()}")("--timeout", "1", "topic", "list", code=3)
    at = ("--bootstrap-server", broker.bootstrap)
    told = {
        tools("topics", *at, "--describe", "--topic", f"{topic}-none").status,
        tools("topics", *at, "--create", "--topic", topic).status,
        tools("topics", *at, "--no-such-option").status,
    }
    assert told == {1}, "one code for all"
    others.lack("exit code", "exit status", "return code")
    kcat("-b", broker.bootstrap, "-C", "-e", "-t", f"{topic}-none", code=1)
    kcat("--no-such-option", code=1)
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_completion(
    claim: Claims, broker: TestBroker, filled: str, others: OtherTools, tmp_path: Path
) -> None:
    assert "complete" in CliRunner().invoke(app, ["completion", "bash"]).stdout
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    line = f"pyrklog topic describe -b {broker.bootstrap} {filled[:-1]}"
    assert filled in completion.lines(["bash", line, filled[:-1]], environ)
    others.lack("completion")
    assert not list(Path("/usr/share/bash-completion/completions").glob("kcat*"))
    claim(pyrklog=YES, kafka=NO, kcat=NO)


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line with profiles of its own."""
    monkeypatch.setenv("PYRKLOG_CONFIG", str(tmp_path / "config.toml"))

    def call(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, list(arguments))
        assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    return call


def test_profiles(
    claim: Claims,
    broker: TestBroker,
    filled: str,
    profiles: Run,
    tools: KafkaTools,
    tmp_path: Path,
) -> None:
    profiles("profile", "create", "here", "-b", broker.bootstrap)
    profiles("profile", "create", "nowhere", "-b", f"127.0.0.1:{free_port()}", "--use")
    assert filled in profiles("-p", "here", "topic", "list", "-o", "name").splitlines()
    assert profiles("profile", "list", "-o", "name").splitlines() == ["here", "nowhere"]
    file = tmp_path / "kcat.conf"
    file.write_text(f"bootstrap.servers={broker.bootstrap}\n")
    assert filled in kcat("-F", str(file), "-L").decode()
    told = tools("topics", "--list", "--command-config", str(file))
    assert told.status == 1
    assert "bootstrap-server" in told.text
    claim(pyrklog=YES, kafka=NO, kcat=PARTLY)


def test_read_only(
    claim: Claims, broker: TestBroker, topic: str, profiles: Run, others: OtherTools
) -> None:
    profiles("profile", "create", "watch", "-b", broker.bootstrap, "--read-only", "--use")
    assert "read-only" in profiles("topic", "create", topic, code=6)
    assert topic not in profiles("topic", "list", "-o", "name").splitlines()
    others.lack("read-only", "readonly")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_universal_dry_run(
    claim: Claims, broker: TestBroker, filled: str, tools: KafkaTools, others: OtherTools
) -> None:
    changing = {
        name: options
        for name, options in commands()
        if not name.endswith(READS) and not name.startswith(OF_NO_CLUSTER)
    }
    assert {"topic delete", "group seek", "mirror run", "produce", "redrive"} <= changing.keys()
    assert {"arena drop", "dev kill", "profile use", "log export-kraft"} <= changing.keys()
    assert [name for name, options in changing.items() if "--dry-run" not in options] == []
    run = runner(broker.bootstrap)
    before = run("group", "export", filled)
    run("group", "seek", filled, "--to", "start", "--dry-run", "-q")
    words = ("--reset-offsets", "--group", filled, "--topic", filled, "--to-earliest", "--dry-run")
    assert tools("consumer-groups", "--bootstrap-server", broker.bootstrap, *words).status == 0
    assert run("group", "export", filled) == before
    run("topic", "delete", filled, "--dry-run")
    assert filled in run("topic", "list", "-o", "name").splitlines()
    for name in ("topics", "configs", "delete-records", "leader-election", "acls"):
        assert "dry-run" not in others.kafka[name]
    others.kcat_lacks("dry")
    claim(pyrklog=YES, kafka=PARTLY, kcat=NO)


def test_pytest_plug_in(claim: Claims, others: OtherTools, tmp_path: Path) -> None:
    """More of it is in tests/testing/test_plugin.py."""
    (tmp_path / "test_it.py").write_text(
        "def test_it(pyrklog, pyrklog_topic):\n"
        "    assert pyrklog.records(pyrklog_topic.name) == []\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    plugins = [one.value for one in entry_points(group="pytest11")]
    assert "pyrklog.testing.plugin" in plugins
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "1 passed" in done.stdout, done.stdout
    others.lack("pytest", "fixture")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_dashboards_shipped(claim: Claims, others: OtherTools, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["deploy", "grafana", "--to", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    boards = [json.loads(one.read_text()) for one in tmp_path.rglob("*.json")]
    assert len(boards) == 3
    assert all(board["panels"] for board in boards)
    assert "alert:" in CliRunner().invoke(app, ["deploy", "alerts"]).stdout
    others.lack("grafana", "dashboard")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_sweep_plot_compare(
    claim: Claims, broker: TestBroker, apache_kafka: str, others: OtherTools, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    words = ["--out", str(out), "--against", apache_kafka, "--var", "size=50,500"]
    runner(broker.bootstrap)("bench", "sweep", *words, "--repeat", "1", "-n", "500", "-q")
    assert (out / "sweep-size.svg").read_text().startswith("<?xml")
    with (out / "results.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 4
    others.lack("sweep", "plot", ".svg")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_diagnostic_bundle(
    claim: Claims, broker: TestBroker, others: OtherTools, tmp_path: Path
) -> None:
    """What it has and lacks is in test_doctor.py."""
    bundle = tmp_path / "doctor.tar.gz"
    CliRunner().invoke(app, ["-b", broker.bootstrap, "doctor", "--bundle", str(bundle)])
    assert bundle.read_bytes()[:2] == b"\x1f\x8b"
    others.lack("bundle", "diagnos")
    claim(pyrklog=YES, kafka=NO, kcat=NO)


def test_advertised_address_diagnosis(
    claim: Claims, new_broker: NewBroker, tools: KafkaTools, tmp_path: Path
) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    options = {"advertised.listeners": f"PLAINTEXT://{nowhere}"}
    broker = new_broker(options=options).start()
    done = CliRunner().invoke(app, ["-b", broker.bootstrap, "doctor", "-o", "json"])
    told = {one["check"]: one for one in json.loads(done.stdout)["items"]}["advertised"]
    assert nowhere in told["what"]
    assert "advertised.listeners" in told["fix"]
    text = kcat("-b", broker.bootstrap, "-C", "-t", "t", "-e", "-m", "2", code=1).decode()
    assert "advertised" not in text
    patience = tmp_path / "client.properties"
    patience.write_text("default.api.timeout.ms=2000\nrequest.timeout.ms=1000\n")
    at = ("--bootstrap-server", broker.bootstrap, "--command-config", str(patience))
    failed = tools("topics", "--describe", *at)
    assert failed.status == 1
    assert "advertised" not in failed.text
    claim(pyrklog=YES, kafka=NO, kcat=NO)


# --- not there yet -------------------------------------------------------------------------------


def is_unknown(*words: str) -> bool:
    """Whether pyrklog has no such command; a sentence says which there are."""
    done = CliRunner().invoke(app, [*words, "--help"])
    return done.exit_code == 2 and "No such command" in done.stderr


def test_search_budget_and_resume(claim: Claims, others: OtherTools) -> None:
    assert is_unknown("search")
    others.lack("budget", "resume")
    claim(pyrklog=NO, kafka=NO, kcat=NO)


def test_capped_tail_drop_count(claim: Claims, others: OtherTools) -> None:
    assert is_unknown("tail")
    options = dict(commands())["consume"]
    assert not {"--rate", "--cap"} & options
    others.lack("dropped")
    claim(pyrklog=NO, kafka=NO, kcat=NO)


def test_acl_explain(claim: Claims, others: OtherTools) -> None:
    assert is_unknown("acl")
    others.lack("explain", "deciding rule")
    claim(pyrklog=NO, kafka=NO, kcat=NO)


def test_masking(claim: Claims, others: OtherTools) -> None:
    assert is_unknown("console")
    others.lack("masking", "redact")
    claim(pyrklog=NO, kafka=NO, kcat=NO)


def test_dialog_shows_command(claim: Claims, others: OtherTools) -> None:
    assert is_unknown("console")
    others.lack("dialog")
    claim(pyrklog=NO, kafka=NO, kcat=NO)
