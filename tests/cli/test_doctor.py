"""``doctor`` at running brokers, and the bundle that it makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.protocol.configs import DESCRIBE_CONFIGS, DescribeConfigsRequest
from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.support.broker_http import http_port
from tests.support.commands import create, runner
from tests.support.planted import Planted, unpacked
from tests.support.raw_client import RawClient

CHECKS = (
    *("port", "advertised", "lock", "disk", "chroot", "cluster id", "file handles", "memory"),
    *("clock", "clients", "zookeeper", "cluster"),
)
MACHINES = ("disk", "memory", "file handles")
"""What the machine that runs the test may find wrong with itself."""
NewBroker = Callable[..., TestBroker]


def found(text: str) -> dict[str, Any]:
    return {one["check"]: one for one in json.loads(text)["items"]}


def doctor(bootstrap: str, *arguments: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["-b", bootstrap, "doctor", *arguments])
    return ended.exit_code, ended.stdout


def test_a_running_broker_is_well(fresh_broker: TestBroker) -> None:
    _, told = doctor(fresh_broker.bootstrap, "-o", "json")
    checks = found(told)
    assert tuple(checks) == CHECKS
    assert {one["status"] for name, one in checks.items() if name not in MACHINES} == {"ok"}
    assert f"pid {fresh_broker.pid}" in checks["lock"]["what"]
    assert checks["file handles"]["what"].startswith("broker 1 has ")
    _, page = doctor(fresh_broker.bootstrap)
    first = page.splitlines()[0]
    assert first.split(maxsplit=2)[:2] == ["ok", "port"]
    assert first.endswith(f"a Kafka broker answers at {fresh_broker.bootstrap}")


def test_a_broker_that_is_not_there_is_unhealthy(new_broker: NewBroker) -> None:
    stopped = new_broker(port=free_port())
    code, told = doctor(stopped.bootstrap, "-o", "json")
    checks = found(told)
    assert (code, checks["port"]["status"], checks["cluster"]["status"]) == (8, "error", "unknown")
    assert checks["port"]["fix"].startswith("start one with `pyrklog serve`")


def test_an_advertised_address_that_leads_nowhere(new_broker: NewBroker) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    options = {"advertised.listeners": f"PLAINTEXT://{nowhere}"}
    code, told = doctor(new_broker(options=options).start().bootstrap, "-o", "json")
    advertised = found(told)["advertised"]
    assert (code, advertised["status"]) == (8, "error")
    assert nowhere in advertised["what"]
    assert "advertised.listeners" in advertised["fix"]


def test_directories_of_another_cluster_and_their_holder(
    new_broker: NewBroker, tmp_path: Path
) -> None:
    here, other = new_broker().start(), new_broker().start()
    code, told = doctor(here.bootstrap, "--data", str(other.data), "-o", "json")
    checks = found(told)
    assert (code, checks["cluster id"]["status"]) == (8, "error")
    assert str(other.data) in checks["cluster id"]["what"]
    assert checks["lock"]["status"] == "info"
    assert f"pid {other.pid}" in checks["lock"]["what"]
    config = tmp_path / "server.properties"
    config.write_text("log.dirs=\n")
    code, told = doctor(here.bootstrap, "--config", str(config), "-o", "json")
    assert (code, found(told)["options"]["status"]) == (8, "error")


def test_a_bundle_has_everything_but_secrets(
    new_broker: NewBroker, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = Planted()
    options = {
        "pyrklog.http.listener": f"127.0.0.1:{free_port()}",
        "ssl.key.password": secrets.new("the broker's command line"),
    }
    broker = new_broker(options=options).start()
    assert http_port(broker)
    run = runner(broker.bootstrap)
    create(run, topic)
    config = tmp_path / "server.properties"
    config.write_text(
        f"pyrklog.data.dir={broker.data}\nssl.keystore.password={secrets.new('file')}\n"
    )
    log = tmp_path / "app.log"
    log.write_text(f"login with password={secrets.new('log')} failed\n")
    monkeypatch.setenv("KAFKA_SASL_PASSWORD", secrets.new("environment"))
    with RawClient(broker.bootstrap) as odd:
        odd.ask(DESCRIBE_CONFIGS, 0, DescribeConfigsRequest([]))
    bundle = tmp_path / "doctor.tar.gz"
    arguments = ["--bundle", str(bundle), "--config", str(config), "--include", str(log)]
    code, _ = doctor(broker.bootstrap, *arguments, "-X", f"sasl.password={secrets.new('-X')}")
    assert code in (0, 8), "8: the machine may be short of something"
    contents = {name.partition("/")[2]: text for name, text in unpacked(bundle).items()}
    assert secrets.found_in(contents) == []
    assert set(contents) == {
        *("bundle.json", "doctor.json", "health.json", "broker-health.json", "versions.json"),
        *("machine.json", "connection.json", "server.properties", "include/app.log"),
        *("broker-1/options.json", "broker-1/log-dirs.json", "broker-1/metrics.txt"),
        "broker-1/state-change.jsonl",
    }
    assert "kafka_server_replicamanager_partitioncount 1.0" in contents["broker-1/metrics.txt"]
    assert topic in contents["broker-1/log-dirs.json"]
    assert topic in contents["broker-1/state-change.jsonl"]
    clients = json.loads(contents["broker-health.json"])["1"]["clients"]
    assert {"api": "DescribeConfigs", "version": 0} in [
        version for one in clients for version in one["oldest"]
    ]
    machine = json.loads(contents["machine.json"])
    assert machine["environment"]["KAFKA_SASL_PASSWORD"] == "(hidden)"
    assert machine["processes"][0]["pid"] == broker.pid
    assert "ssl.key.password=(hidden)" in machine["processes"][0]["command"]
    assert json.loads(contents["bundle.json"])["left_out"] == []
    refused = runner(broker.bootstrap)("doctor", "--bundle", str(bundle), code=5)
    assert "exists" in refused


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--bundle", "x.rar"], "writes .tar.gz, .tgz, .zip"),
        (["--include", "x.log"], "give --bundle FILE as well"),
    ],
)
def test_wrong_arguments(arguments: list[str], told: str) -> None:
    ended = CliRunner().invoke(app, ["doctor", *arguments])
    assert ended.exit_code == 2
    assert told in ended.stderr


@pytest.mark.jvm
def test_another_kafka(apache_kafka: str) -> None:
    code, told = doctor(apache_kafka, "-o", "json")
    checks = found(told)
    assert code == 0
    for name in ("memory", "clock", "clients"):
        assert checks[name]["what"].startswith("unknown against this broker")
    assert checks["port"]["status"] == checks["advertised"]["status"] == "ok"
