"""A bundle of the doctor: what is in it, its bounds, and that no planted secret is."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from pyrklog.base.clock_reading import ClockReading
from pyrklog.cli.broker_healths import BrokerHealth
from pyrklog.cli.doctor.archive import PIECE_BYTES_MAX, PIECES_MAX, TOTAL_BYTES_MAX, Pieces
from pyrklog.cli.doctor.bundle import is_known_to_be_none, kind_of, write_bundle
from pyrklog.cli.doctor.checks import examined
from pyrklog.cli.doctor.evidence import BrokerEvidence, Evidence, Reached, ZooKeeperServer
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import Settings
from pyrklog.cli.profiles import Profile
from pyrklog.observability.health_rules import BrokerState, ClusterState, Reason
from pyrklog.protocol.health import (
    BrokerHealthResponse,
    ClientRefusal,
    HealthClient,
    HealthReason,
)
from pyrklog.protocol.log_dirs import DescribeLogDirsResult
from pyrklog.redaction import Kind
from tests.support.planted import Planted, unpacked

STATE = ClusterState("c1", [BrokerState(1, "127.0.0.1", 1)], 1, [])
BASE = Evidence([Reached("127.0.0.1", 1, is_local=True)], STATE)
FOLDER = "pyrklog-doctor"


@pytest.fixture
def secrets() -> Planted:
    return Planted()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No cluster of `pyrklog dev` of the user's."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share"


def bundled(
    tmp_path: Path,
    *,
    evidence: Evidence = BASE,
    settings: Settings | None = None,
    config: str | None = None,
    include: list[str] | None = None,
    name: str = "b.tar.gz",
) -> dict[str, str]:
    file = tmp_path / name
    checks = examined(evidence)
    write_bundle(str(file), settings or Settings(), evidence, checks, config, include or [])
    return unpacked(file)


def key(secret: str) -> str:
    body = base64.b64encode(secret.encode()).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{body}\n{body}\n-----END PRIVATE KEY-----\n"


FILES: dict[str, Callable[[str], str]] = {
    "client.properties": lambda s: f'sasl.jaas.config=x.Login required password="{s}";\n',
    "escaped.properties": lambda s: f"ssl.key.password={s}\n# ssl.key.password={s}\n",
    "values.json": lambda s: json.dumps({"db": {"password": s}, "url": f"pg://u:{s}@h/d"}),
    "compose.yaml": lambda s: f"services:\n  a:\n    environment:\n      DB_PASSWORD: '{s}'\n",
    "block.yaml": lambda s: f"secret: |\n  first\n  {s}\nhost: h\n",
    "config.toml": lambda s: f'[profiles.a.properties]\n"sasl.password" = "{s}"\n',
    "broken.toml": lambda s: f'token = "{s}"\nbroken =\n',
    ".env": lambda s: f"export API_TOKEN={s}\nREGION=eu\n",
    "kafka_jaas.conf": lambda s: f'KafkaServer {{\n  x required\n  user_admin="{s}";\n}};\n',
    "server.key": key,
    "run.sh": lambda s: f"kafka-run --sasl-password {s} --topic t\n",
    "server.log": lambda s: f"INFO login failed for app, password={s}, retrying\n",
    "json.log": lambda s: json.dumps({"event": "x", "fields": {"auth_token": s}}) + "\n",
    "nested.log": lambda s: json.dumps({"event": json.dumps({"password": s})}) + "\n",
    "header.log": lambda s: f"> Authorization: Basic {base64.b64encode(s.encode()).decode()}\n",
    "url.log": lambda s: f"GET /login?user=u&password={quote(s, safe='')}&x=1\n",
    "encoded.log": lambda s: base64.b64encode(f"user=u password={s}".encode()).decode() + "\n",
    "azure.txt": lambda s: f"Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey={s}\n",
    "odd.conf": lambda s: f"machine h login u password {s}\n",
}


def test_no_file_that_is_included_keeps_its_secret(tmp_path: Path, secrets: Planted) -> None:
    include = []
    for name, content in FILES.items():
        (tmp_path / name).write_text(content(secrets.new(name)))
        include.append(str(tmp_path / name))
    found = bundled(tmp_path, include=include)
    assert len([name for name in found if "/include/" in name]) == len(FILES)
    assert secrets.found_in(found) == []
    assert "REGION=eu" in found[f"{FOLDER}/include/env"]
    assert "login failed for app" in found[f"{FOLDER}/include/server.log"]


def test_a_secret_of_one_file_stays_in_no_other_in_no_form(
    tmp_path: Path, secrets: Planted
) -> None:
    secret = secrets.new("properties")
    (tmp_path / "a.properties").write_text(f"ssl.key.password={secret}\n")
    spellings = [
        secret,
        quote(secret, safe=""),
        base64.b64encode(secret.encode()).decode(),
        base64.b64encode(f"u:{secret}:v".encode()).decode(),
        base64.urlsafe_b64encode(f"ab{secret}".encode()).decode(),
        secret.encode().hex(),
        json.dumps(json.dumps(secret)),
        secret.replace("&", "&amp;"),
    ]
    (tmp_path / "plain.log").write_text("".join(f"thing {one} end\n" for one in spellings))
    (tmp_path / f"{secret.partition('/')[0]}.log").write_text("x\n")
    found = bundled(tmp_path, include=[str(tmp_path / "plain.log"), str(tmp_path / "a.properties")])
    assert secrets.found_in(found) == []
    lines = found[f"{FOLDER}/include/plain.log"].splitlines()
    assert [(line[:6], line[-4:]) for line in lines] == [("thing ", " end")] * len(spellings)


def test_no_secret_of_the_command_line_the_profile_and_the_environment(
    tmp_path: Path, secrets: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_profile = secrets.new("profile")
    properties = {
        "sasl.password": of_profile,
        "sasl.oauthbearer.config": secrets.new("-X"),
        "ssl.key.pem": key(secrets.new("key")),
        "client.id": "me",
    }
    profile = Profile("prod", properties={"sasl.password": of_profile})
    monkeypatch.setenv("KAFKA_OPTS", f"-Dssl.keystorePassword={secrets.new('-D')} -Da=b")
    monkeypatch.setenv("PYRKLOG_SSL_KEY_PASSWORD", secrets.new("variable"))
    monkeypatch.setenv("KAFKA_URL", f"kafka://u:{secrets.new('url')}@h:1")
    monkeypatch.setenv("DATABASE_URL", secrets.new("variable that is not shown"))
    monkeypatch.setenv("MY_API_TOKEN", secrets.new("known from the environment"))
    monkeypatch.setattr("sys.argv", ["pyrklog", "-X", f"sasl.password={of_profile}"])
    told = secrets.secrets["known from the environment"]
    (tmp_path / "x.log").write_text(f"tried {told} and {of_profile}\n")
    settings = Settings(properties=properties, profile=profile)
    found = bundled(tmp_path, settings=settings, include=[str(tmp_path / "x.log")])
    assert secrets.found_in(found) == []
    connection = json.loads(found[f"{FOLDER}/connection.json"])
    assert connection["properties"]["client.id"] == "me"
    assert connection["profile"] == "prod"
    machine = json.loads(found[f"{FOLDER}/machine.json"])
    assert "DATABASE_URL" in machine["other_variables"]
    assert machine["environment"]["KAFKA_URL"] == "kafka://u:(hidden)@h:1"


def test_no_secret_of_brokers(tmp_path: Path, secrets: Planted) -> None:
    client = HealthClient(f"app?token={secrets.new('client id')}", "10.0.0.5")
    client.refused = [ClientRefusal(f"password={secrets.new('refusal')}", 1)]
    reason = HealthReason("x", "warning", f"at http://u:{secrets.new('finding')}@h/", 1)
    response = BrokerHealthResponse(broker=1, clients=[client], reasons=[reason])
    options = {
        "sasl.jaas.config": secrets.new("option"),
        "listener.name.internal.ssl.key.password": secrets.new("option of a listener"),
        "confluent.license.token": secrets.new("unknown option"),
        "broker.rack": "a",
        "metric.reporter.url": f"https://u:{secrets.new('url')}@h/",
        "password.encoder.iterations": "4096",
    }
    broker = BrokerEvidence(
        1,
        health=BrokerHealth(response, ClockReading(0, 0, 0)),
        log_dirs=[DescribeLogDirsResult(0, f"/d/token={secrets.new('path')}")],
        options=options,
        versions={0: (0, 9), 18: (0, 3), 999: (0, 0)},
    )
    signs = [Reason("x", "degraded", f"secret: {secrets.new('reason')}", fix="look")]
    evidence = replace(
        BASE,
        state=replace(STATE, signs=signs),
        brokers={1: broker},
        zookeepers=[ZooKeeperServer("zk:2181", f"bad password={secrets.new('zookeeper')}")],
    )
    found = bundled(tmp_path, evidence=evidence)
    assert secrets.found_in(found) == []
    options_told = json.loads(found[f"{FOLDER}/broker-1/options.json"])
    assert options_told["broker.rack"] == "a"
    assert options_told["password.encoder.iterations"] == "4096"
    versions = json.loads(found[f"{FOLDER}/versions.json"])
    assert versions["brokers"]["1"]["apis"] == {
        "Produce": [0, 9],
        "ApiVersions": [0, 3],
        "999": [0, 0],
    }


def test_what_clients_call_themselves_takes_no_place_of_our_secrets(
    tmp_path: Path, secrets: Planted
) -> None:
    of_config, of_include = secrets.new("config"), secrets.new("include")
    config, include = tmp_path / "server.properties", tmp_path / "values.yaml"
    config.write_text(f"ssl.key.password={of_config}\n")
    include.write_text(f"db:\n  password: {of_include}\n")
    log = tmp_path / "a.log"
    log.write_text(f"partition 3: told {of_config} and {of_include}\n")
    names = [",".join(f"pw=aaaa{10 * n + part}" for part in range(10)) for n in range(500)]
    clients = [HealthClient(name, "10.0.0.5") for name in ["pw=partition", *names]]
    response = BrokerHealthResponse(broker=1, clients=clients)
    health = BrokerHealth(response, ClockReading(0, 0, 0))
    evidence = replace(BASE, brokers={1: BrokerEvidence(1, health=health)})
    file = tmp_path / "b.tar.gz"
    told = write_bundle(
        str(file), Settings(), evidence, examined(evidence), str(config), [str(log), str(include)]
    )
    found = unpacked(file)
    assert f"{FOLDER}/broker-health.json" in found
    assert secrets.found_in(found) == []
    assert not any("aaaa" in content for content in found.values())
    assert found[f"{FOLDER}/include/a.log"] == "partition 3: told (hidden) and (hidden)\n"
    assert any("more secrets were found" in note for note in told)
    manifest = json.loads(found[f"{FOLDER}/bundle.json"])
    assert manifest["hidden_values_beyond_memory"]
    assert manifest["files"][0]["name"] == "doctor.json"


def test_no_secret_of_a_server_properties(tmp_path: Path, secrets: Planted) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"log.dirs=/d\nssl.keystore.password={secrets.new('known')}\n"
        f"my.plugin.setting={secrets.new('unknown')}\n# {secrets.new('comment')}\n"
        f"zookeeper.connect=zk:2181/kafka\nssl.keystore.location=/k.jks\n"
    )
    found = bundled(tmp_path, config=str(file))
    assert secrets.found_in(found) == []
    assert found[f"{FOLDER}/server.properties"] == (
        "log.dirs=/d\nssl.keystore.password=(hidden)\nmy.plugin.setting=(hidden)\n"
        "zookeeper.connect=zk:2181/kafka\nssl.keystore.location=/k.jks\n"
    )


def test_logs_of_a_dev_cluster_with_this_broker(
    tmp_path: Path, home: Path, secrets: Planted
) -> None:
    for name, port in (("mine", 19_092), ("other", 20_092)):
        folder = home / "pyrklog" / "dev" / name
        (folder / "broker-1").mkdir(parents=True)
        state = {
            "name": name,
            "base_port": port,
            "nodes": [{"role": "broker", "number": 1}],
        }
        (folder / "state.json").write_text(json.dumps(state))
        secret = secrets.new(name)
        (folder / "broker-1" / "broker.log").write_text(f"started\ntoken={secret}\n")
        (folder / "broker-1" / "server.properties").write_text(f"ssl.key.password={secret}\n")
    brokers = [BrokerState(1, "127.0.0.1", 19_092)]
    found = bundled(tmp_path, evidence=replace(BASE, state=replace(STATE, brokers=brokers)))
    assert secrets.found_in(found) == []
    assert "started" in found[f"{FOLDER}/dev-mine/1/log.log"]
    assert found[f"{FOLDER}/dev-mine/1/server.properties"] == "ssl.key.password=(hidden)\n"
    assert not any("dev-other" in name for name in found)


# --- the archive ---------------------------------------------------------------------------------


def test_a_zip_has_the_same(tmp_path: Path) -> None:
    assert set(bundled(tmp_path)) == set(bundled(tmp_path, name="b.zip"))


def test_the_manifest_says_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "keystore.jks").write_bytes(b"\xfe\xed\0\0binary")
    missing = str(tmp_path / "missing.log")
    found = bundled(tmp_path, include=[str(tmp_path / "keystore.jks"), missing, str(tmp_path)])
    manifest = json.loads(found[f"{FOLDER}/bundle.json"])
    assert {f"{FOLDER}/{one['name']}" for one in manifest["files"]} | {
        f"{FOLDER}/bundle.json"
    } == set(found)
    assert [one.partition(": ")[2].partition(",")[0] for one in manifest["left_out"]] == [
        "no text",
        "No such file or directory",
        f"{tmp_path} is no file",
    ]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    bundled(tmp_path)
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    with pytest.raises(CliError) as refused:
        bundled(tmp_path)
    assert refused.value.code == Exit.EXISTS
    with pytest.raises(CliError, match="cannot write"):
        bundled(tmp_path / "no" / "folder")
    assert os.listdir(tmp_path) == ["b.tar.gz"]


def test_a_number_that_is_a_secret_leaves_json_whole(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"pin_token": 1234567890, "bytes": 1234567890}')
    found = bundled(tmp_path, include=[str(tmp_path / "a.json")])
    told = json.loads(found[f"{FOLDER}/include/a.json"])
    assert told == {"pin_token": "(hidden)", "bytes": "(hidden)"}


def test_each_piece_is_bounded(tmp_path: Path, secrets: Planted) -> None:
    log = tmp_path / "large.log"
    line = "x" * 99 + "\n"
    secret = secrets.new("first line that is kept")
    count = PIECE_BYTES_MAX // 100
    log.write_text(f"first {secret}\n" + line * count * 2 + f"password={secret}\nlast\n")
    pieces = Pieces()
    pieces.add_file("log", log, Kind.LOG)
    pieces.add_file("text", log, Kind.TEXT)
    tail, head = pieces.found
    assert tail.is_cut
    assert head.is_cut
    assert len(tail.content) <= PIECE_BYTES_MAX
    assert tail.content.startswith("x" * 99 + "\n")
    assert tail.content.endswith("last\n")
    assert head.content.startswith("first ")
    pieces.add("memory", log.read_text(), Kind.LOG, "memory")
    assert pieces.found[2].is_cut
    assert len(pieces.found[2].content) <= PIECE_BYTES_MAX


def test_all_pieces_together_are_bounded() -> None:
    pieces = Pieces()
    for number in range(TOTAL_BYTES_MAX // PIECE_BYTES_MAX + 3):
        pieces.add("log", "x" * (PIECE_BYTES_MAX - 1), Kind.LOG, f"log {number}")
    assert sum(len(one.content) for one in pieces.found) <= TOTAL_BYTES_MAX
    assert pieces.left_out == [f"log {number}: the bundle is full" for number in (16, 17, 18)]
    many = Pieces()
    for number in range(PIECES_MAX + 1):
        many.add("../../etc/x y", "a", Kind.LOG, str(number))
    assert many.left_out == [f"{PIECES_MAX}: the bundle is full"]
    assert len({one.name for one in many.found}) == PIECES_MAX
    assert many.found[0].name == "_/_/etc/x_y"


def test_kinds_of_files() -> None:
    kinds = {
        "server.properties": Kind.OPTIONS,
        "client.properties": Kind.PROPERTIES,
        "a.json": Kind.JSON,
        "a.log": Kind.LOG,
        "a.log.1": Kind.LOG,
        "compose.yml": Kind.TEXT,
    }
    assert {name: kind_of(Path("/x") / name) for name in kinds} == kinds


def test_options_that_are_known_to_be_no_secrets() -> None:
    assert is_known_to_be_none("password.encoder.iterations")
    assert is_known_to_be_none("retention.ms")
    assert not is_known_to_be_none("sasl.jaas.config")
    assert not is_known_to_be_none("listener.name.x.ssl.key.password")
    assert not is_known_to_be_none("my.plugin")
