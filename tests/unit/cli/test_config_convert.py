"""``pyrklog config convert``: what it writes where, and what it tells of options."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.base.problems import Problem
from pyrklog.cli.app import app
from pyrklog.cli.config_convert import sentence
from pyrklog.config.broker import Given
from pyrklog.config.load import load_config, wrong_options
from pyrklog.errors import ConfigError

KRAFT = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://127.0.0.1:9092
num.partitions=3
metric.reporters=com.example.Reporter
com.example.interval=5
ssl.key.password=wonderland
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(KRAFT)
    return path


def invoke(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["config", "convert", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_a_file_of_kraft_is_converted_and_explained(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "server.toml"
    code, printed, told = invoke(file, "-o", out)
    assert (code, printed) == (0, "")
    notes = told.splitlines()
    assert notes[:4] == [
        "note: 3 options take effect: node.id, listeners, num.partitions",
        "note: 3 options have no effect in this version: process.roles, "
        "controller.quorum.voters, ssl.key.password",
        "note: 1 option is for Java only, and ignored: metric.reporters",
        "note: 1 option is unknown, as the settings of Kafka's plug-ins are, and ignored: "
        "com.example.interval",
    ]
    assert notes[4].startswith("note: instead of process.roles, controller.quorum.voters: meta")
    assert "node.id, log.dirs, listeners" in notes[4]
    assert notes[5].startswith("note: instead of ssl.key.password: listeners are plain text")
    assert notes[6].startswith("note: instead of metric.reporters: /metrics")
    assert 'ssl.key.password = "wonderland"' in out.read_text()
    assert "wonderland" not in told
    assert load_config(file=out).integer("num.partitions") == 3


def test_it_is_printed_without_a_file_and_notes_can_be_left_out(file: Path) -> None:
    code, printed, told = invoke(file, "-q")
    assert (code, told) == (0, "")
    assert "num.partitions = 3\n" in printed


def test_it_goes_back(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "server.toml"
    invoke(file, "-o", out)
    code, printed, _ = invoke(out)
    assert (code, printed) == (0, KRAFT)


def test_a_new_file_is_as_private_as_the_old_one(file: Path, tmp_path: Path) -> None:
    file.chmod(0o600)
    out = tmp_path / "server.toml"
    invoke(file, "-o", out)
    assert out.stat().st_mode & 0o777 == 0o600


def test_no_file_is_overwritten(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "server.toml"
    out.write_text("mine")
    code, _, told = invoke(file, "-o", out)
    assert code == 5
    assert f"{out} is there already" in told
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("authorizer.class.name=x.Y", "refused: authorizer.class.name (server.properties line 1)"),
        ("num.partitons=3", "did you mean num.partitions?"),
        ("com.example.x=3", "refused: Unknown option com.example.x"),
        ("num.partitions=many", "refused: Invalid value many for configuration num.partitions"),
        ("num.partitions=${env:NOT_THERE}", "which has no value"),
    ],
)
def test_what_a_broker_refuses_is_told(file: Path, line: str, told: str) -> None:
    file.write_text(f"{line}\n")
    code, printed, said = invoke(file)
    assert code == 8
    assert told in said
    assert line.partition("=")[0].removeprefix("pyrklog.") in printed


def test_all_that_is_wrong_is_told_at_once(file: Path) -> None:
    file.write_text(
        "num.partitions=many\nlog.segment.bytes=5\nnum.partitons=3\nlog.retention.ms=0\n"
        "replica.lag.time.max.ms=soon\nreplica.fetch.wait.max.ms=60000\nlisteners=FOO\n"
        "compression.type=gzip\nzookeeper.set.acl=true\n"
    )
    code, _, said = invoke(file)
    assert code == 8
    refused = [line.removeprefix("refused: ") for line in said.splitlines() if "refused" in line]
    assert [line.split(" (server")[0] for line in refused] == [
        "Unknown option num.partitons",
        "Invalid value many for configuration num.partitions: Not a number of type INT",
        "Invalid value 5 for configuration log.segment.bytes: Value must be at least 14",
        "Invalid value 0 for configuration log.retention.ms: must be -1 (never), or at least 1; 0 "
        "would delete the records of every topic",
        # What is to be compared with replica.lag.time.max.ms waits for its number.
        "Invalid value soon for configuration replica.lag.time.max.ms: Not a number of type LONG",
        "zookeeper.set.acl needs something by which ZooKeeper knows this broker; set "
        "pyrklog.zookeeper.digest, or zookeeper.ssl.client.enable with "
        "zookeeper.ssl.keystore.location",
        "listeners has 'FOO', which is not NAME://HOST:PORT (listeners: server.properties line 7)",
    ]
    assert "take effect: replica.fetch.wait.max.ms, listeners, compression.type" in said


@pytest.mark.parametrize(
    "lines",
    ["broker.id=1\nnode.id=2", "zookeeper.connect=a:1/b/", "max.connections.per.ip=0",
     "pyrklog.metrics.statsd=x", "log.dirs=/a,/a/b", "zookeeper.set.acl=true"],
)  # fmt: skip
def test_the_first_of_all_is_what_a_start_tells(file: Path, lines: str) -> None:
    file.write_text(f"{lines}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(file=file)
    told = [error.what for _, error in wrong_options(file, {}, [])]
    assert told[0] == caught.value.what


def test_no_sentence_has_a_secret() -> None:
    given = {
        "ssl.key.password": Given("wonder land", "line 1"),
        "pyrklog.zookeeper.digest": Given("a:bc", "line 2"),
        "num.partitions": Given("many", "line 3"),
    }
    error = ConfigError(Problem.OPTION_VALUE, "wonder land, a:bc, many.", fix="not wonder land")
    assert sentence(error, given) == "(hidden), (hidden), many; not (hidden)"


def test_providers_of_values_take_effect(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTITIONS", "7")
    file.write_text(
        "config.providers=env\nconfig.providers.env.class=EnvVarConfigProvider\n"
        "num.partitions=${env:PARTITIONS}\n"
    )
    code, printed, told = invoke(file)
    assert code == 0
    assert 'num.partitions = "${env:PARTITIONS}"\n' in printed
    assert "note: 3 options take effect: config.providers, config.providers.env.class" in told


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        (["--to", "properties"], 2, "is properties already"),
        (["--to", "yaml"], 2, "--to takes toml or properties, not 'yaml'"),
        (["-o", "x.properties"], 2, "the name x.properties must end in .toml"),
    ],
)
def test_mistakes_write_nothing(file: Path, more: list[str], code: int, told: str) -> None:
    found, printed, said = invoke(file, *more)
    assert (found, printed) == (code, "")
    assert told in said


def test_a_file_that_is_not_there_or_no_toml(tmp_path: Path) -> None:
    assert invoke(tmp_path / "no.properties")[0] == 4
    broken = tmp_path / "b.toml"
    broken.write_text("a = ")
    code, _, told = invoke(broken)
    assert code == 2
    assert "it is no TOML" in told
