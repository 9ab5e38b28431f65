"""rpk and the rows of the feature table (docs/using/compared.md) that are about no record."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.support.commands import Run, create
from tests.support.feature_table import NO, PARTLY, YES
from tests.support.groups import fill
from tests.support.rpk import AdminApi, Commands, Rpk, RpkClaims, program

WITHOUT_JSON = (
    *("topic", "topic list", "topic describe", "group", "group list", "group describe"),
    *("group seek", "cluster", "cluster metadata", "cluster logdirs", "cluster logdirs describe"),
)
"""Commands have the options of those above them, too."""


@pytest.fixture
def filled(either: str, run: Run, topic: str) -> str:
    create(run, topic, "-p", "2")
    fill(either, topic, 2, 5)
    return topic


def test_pip_install_no_jvm(claim: RpkClaims) -> None:
    """A program without a JVM, which no package of Python's has."""
    assert Path(program()).read_bytes()[:4] == b"\x7fELF"
    assert not entry_points(group="console_scripts", name="rpk")
    claim(rpk=NO)


def test_multi_broker_one_command(claim: RpkClaims, alone: Rpk, commands: Commands) -> None:
    """Containers of Redpanda."""
    assert "--nodes" in commands.helps["container start"]
    assert "Docker" in alone("container", "start", "-n", "3", code=1)
    claim(rpk=PARTLY)


def test_multi_broker_real_no_docker(claim: RpkClaims, alone: Rpk, commands: Commands) -> None:
    """One node of a Redpanda that is installed. It is not started here, since it writes in /etc."""
    told = commands.helps["redpanda start"]
    assert "Directory where redpanda has" in told
    assert "--nodes" not in told
    assert "dev-container" in alone("redpanda", "start", "--mode", "help")
    claim(rpk=PARTLY)


def test_chaos_verbs(claim: RpkClaims, commands: Commands) -> None:
    """`container stop` stops all nodes, and `redpanda stop` the server of this machine."""
    assert commands.under("container") == {"purge", "start", "status", "stop"}
    assert "--node" not in commands.helps["container stop"]
    assert commands.saying("sigkill") == {"redpanda stop"}
    commands.lack("pause", "isolate")
    claim(rpk=NO)


@pytest.mark.jvm
def test_json_everywhere(
    claim: RpkClaims, rpk: Rpk, admin: AdminApi, filled: str, commands: Commands
) -> None:
    """Of records, transactions and producers. What else has JSON asks Redpanda or a registry."""
    found = rpk.records(filled)
    assert sorted(one["value"] for one in found) == [f"{p}:{n}" for p in (0, 1) for n in range(5)]
    words = ("cluster", "txn", "describe-producers", "--topics", filled, "--format", "json")
    producers = json.loads(rpk(*words))
    assert {one["partition"] for one in producers} == {0, 1}
    assert {one["topic"] for one in producers} == {filled}
    for name in WITHOUT_JSON:
        assert "--format" not in commands.helps[name], name
    rpk("cluster", "partitions", "list", filled, "--format", "json", code=1)
    assert admin.asked
    claim(rpk=PARTLY)


def test_csv(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("csv")
    claim(rpk=NO)


@pytest.mark.jvm
def test_documented_exit_codes(
    claim: RpkClaims, rpk: Rpk, alone: Rpk, run: Run, topic: str, commands: Commands
) -> None:
    create(run, topic)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in rpk("topic", "describe", f"{topic}-none", code=1)
    assert "TOPIC_ALREADY_EXISTS" in rpk("topic", "create", topic, code=1)
    rpk("topic", "create", topic, "--no-such-option", code=1)
    nowhere = f"brokers=127.0.0.1:{free_port()}"
    assert "refused" in alone("topic", "list", "-X", nowhere, code=1)
    # Where a command has commands, an unknown one is no fault.
    assert "Available Commands:" in alone("topic", "no-such-command")
    commands.lack("exit code", "exit status", "return code")
    claim(rpk=NO)


def test_completion(claim: RpkClaims, alone: Rpk) -> None:
    """Commands and options; no topics and no groups."""
    for shell in ("bash", "zsh", "fish"):
        assert "__complete" in alone("generate", "shell-completion", shell)
    told = [line.split("\t")[0] for line in alone("__complete", "topic", "").splitlines()]
    assert {"consume", "describe", "produce"} <= set(told)
    claim(rpk=YES)


@pytest.mark.jvm
def test_profiles(claim: RpkClaims, either: str, alone: Rpk, filled: str) -> None:
    alone("profile", "create", "here", "--set", f"brokers={either}")
    alone("profile", "create", "nowhere", "--set", f"brokers=127.0.0.1:{free_port()}")
    assert [row[0] for row in alone.rows("profile", "list")] == ["here", "nowhere*"]
    assert filled in [row[0] for row in alone.rows("topic", "list", "--profile", "here")]
    alone("topic", "list", code=1)
    alone("profile", "use", "here")
    assert filled in [row[0] for row in alone.rows("topic", "list")]
    claim(rpk=YES)


def test_pyrklog_imports_the_profiles_that_rpk_writes(
    broker: TestBroker, alone: Rpk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a program of today, beside those of tests/unit/cli."""
    alone("profile", "create", "here", "--set", f"brokers={broker.bootstrap}")
    monkeypatch.setenv("PYRKLOG_CONFIG", str(tmp_path / "config.toml"))
    file = alone.home / ".config" / "rpk" / "rpk.yaml"
    for words in (["profile", "import", "rpk", str(file)], ["-p", "here", "cluster", "brokers"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, f"{words}: {done.stdout}{done.stderr}"
    assert str(broker.port) in done.stdout


def test_read_only(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("read-only", "readonly")
    claim(rpk=NO)


@pytest.mark.jvm
def test_universal_dry_run(
    claim: RpkClaims, rpk: Rpk, run: Run, topic: str, commands: Commands
) -> None:
    create(run, topic)
    assert rpk.rows("topic", "create", f"{topic}-dry", "--dry") == [[f"{topic}-dry", "OK"]]
    assert f"{topic}-dry" not in run("topic", "list", "-o", "name").splitlines()
    altered = rpk.rows("topic", "alter-config", topic, "--set", "retention.ms=60001", "--dry")
    assert altered == [[topic, "OK"]]
    told = run("config", "describe", "topic", topic, "-o", "json")
    assert "retention.ms" in told
    assert "60001" not in told
    for name in ("topic delete", "topic add-partitions", "topic trim-prefix", "group seek"):
        assert "--dry" not in commands.helps[name]
    claim(rpk=PARTLY)


def test_pytest_plug_in(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("pytest", "fixture")
    claim(rpk=NO)


def test_dashboards_shipped(claim: RpkClaims, alone: Rpk, commands: Commands) -> None:
    """Of Redpanda's metrics. It looks for a newer one at GitHub first, and has its own without."""
    told = alone.full("generate", "grafana-dashboard")
    assert told.returncode == 0
    assert b"using static file" in told.stderr
    assert json.loads(told.stdout)["panels"]
    assert b"redpanda_" in told.stdout
    assert b"kafka_server_" not in told.stdout
    commands.lack("alert")
    claim(rpk=PARTLY)


def test_sweep_plot_compare(claim: RpkClaims, commands: Commands) -> None:
    """`cluster self-test` measures disks and network of Redpanda's nodes, with one size each."""
    commands.lack("sweep", "plot", ".svg")
    claim(rpk=NO)


@pytest.mark.jvm
def test_diagnostic_bundle(claim: RpkClaims, rpk: Rpk, admin: AdminApi, filled: str) -> None:
    """Of any Kafka it has metadata, options and offsets; the rest is Redpanda's, and of the machine
    it runs on. It asks pool.ntp.org for the time, too."""
    bundle = rpk.home / "bundle.zip"
    words = ("--output", str(bundle), "--timeout", "1s", "--metrics-interval", "1s")
    rpk("debug", "bundle", *words)
    with zipfile.ZipFile(bundle) as archive:
        [kafka] = [name for name in archive.namelist() if name.endswith("/kafka.json")]
        assert filled in archive.read(kafka).decode()
    assert "/v1/brokers" in admin.asked
    claim(rpk=PARTLY)


def test_advertised_address_diagnosis(
    claim: RpkClaims, new_broker: Callable[..., TestBroker], alone: Rpk
) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    options = {"advertised.listeners": f"PLAINTEXT://{nowhere}"}
    broker = new_broker(options=options).start()
    patience = ("-X", "globals.retry_timeout=2s", "-X", "globals.dial_timeout=1s")
    told = alone("topic", "create", "t", "-X", f"brokers={broker.bootstrap}", *patience, code=1)
    assert nowhere in told
    assert "advertise" not in told
    claim(rpk=NO)


# --- what pyrklog does not have either -----------------------------------------------------------


def test_search_budget_and_resume(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("budget", "resume")
    commands.lack_command("search")
    claim(rpk=NO)


def test_capped_tail_drop_count(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("dropped")
    assert "--rate" not in commands.helps["topic consume"]
    claim(rpk=NO)


def test_expand_without_bulk_copy(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("tail mode")
    commands.lack_command("expand", "add-broker")
    claim(rpk=NO)


def test_acl_explain(claim: RpkClaims, commands: Commands) -> None:
    assert commands.under("acl") == {"create", "delete", "list", "user"}
    commands.lack("explain", "deciding rule")
    claim(rpk=NO)


def test_masking(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("masking", "redact")
    claim(rpk=NO)


def test_dialog_shows_command(claim: RpkClaims, commands: Commands) -> None:
    commands.lack("dialog")
    commands.lack_command("console")
    claim(rpk=NO)
