"""Clusters of rpk, kaf, Java's and librdkafka's clients as profiles."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.cli.profile_properties import of_java, of_librdkafka
from pyrklog.cli.profiles import Profile, load

RPK = """\
version: 7
globals:
    prompt: ""
    dial_timeout: 3s
current_profile: prod
profiles:
    - name: prod
      description: the real one
      kafka_api:
        brokers:
            - b1.example:9092
            - b2.example:9092
        tls:
            ca_file: /ca.pem
            cert_file: /me.pem
            key_file: /me.key
            insecure_skip_verify: true
            alpn: h2
        sasl:
            user: me
            password: geheim
            mechanism: SCRAM-SHA-512
      admin_api:
        addresses: [b1.example:9644]
      schema_registry: {}
    - name: local
      kafka_api:
        brokers: [127.0.0.1:9092]
    - name: encrypted
      kafka_api: {tls: {}, brokers: []}
cloud_auth: []
"""
KAF = """\
current-cluster: local
clusteroverride: ""
clusters:
- name: local
  version: ""
  brokers: [localhost:9092]
  SASL: null
  TLS: null
  security-protocol: ""
  schema-registry-url: ""
- name: remote
  version: 2.5.0
  brokers: [r:9093]
  SASL: {mechanism: PLAIN, username: me, password: geheim, clientid: ""}
  TLS: {cafile: /ca.pem, clientfile: /me.pem, clientkeyfile: /me.key, insecure: false}
  security-protocol: SASL_SSL
  schema-registry-url: http://r:8081
"""
REMOTE = Profile(
    "remote",
    ("r:9093",),
    {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.key",
        "sasl.username": "me",
        "sasl.password": "geheim",
    },
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYRKLOG_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["profile", "import", *arguments])
    return done.exit_code, done.stdout, done.stderr


def put(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_rpks_profiles(home: Path) -> None:
    put(home / "conf" / "rpk" / "rpk.yaml", RPK)
    code, out, err = invoke("rpk", "--use", "-o", "json")
    assert code == 0, err
    assert "geheim" not in out + err
    passed_over = {one["name"]: one["passed_over"] for one in json.loads(out)["items"]}
    assert passed_over == {
        "prod": ["kafka_api.tls.alpn", "admin_api"],
        "local": [],
        "encrypted": [],
    }
    assert err == (f"note: {home}/conf/rpk/rpk.yaml: passed over: globals\nnote: prod is in use\n")
    found = load(os.environ)
    assert found.chosen == "prod"
    assert found.get("prod") == Profile(
        "prod",
        ("b1.example:9092", "b2.example:9092"),
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/me.pem",
            "ssl.key.location": "/me.key",
            "enable.ssl.certificate.verification": "false",
            "sasl.username": "me",
            "sasl.password": "geheim",
        },
    )
    assert found.get("local") == Profile("local", ("127.0.0.1:9092",))
    assert found.get("encrypted") == Profile("encrypted", (), {"security.protocol": "SSL"})


def test_kafs_clusters(home: Path) -> None:
    put(home / ".kaf" / "config", KAF)
    code, out, _ = invoke("kaf")
    assert code == 0
    assert "geheim" not in out
    assert out.splitlines()[2].endswith("version,schema-registry-url")
    found = load(os.environ)
    assert found.get("local") == Profile("local", ("localhost:9092",))
    assert found.get("remote") == REMOTE
    assert found.chosen is None


def test_one_of_them_and_never_over_another(home: Path) -> None:
    file = put(home / "kaf", KAF)
    assert invoke("kaf", file, "--name", "remote", "--use")[0] == 0
    assert load(os.environ).names() == ["remote"]
    assert load(os.environ).chosen == "remote"
    code, _, err = invoke("kaf", file)
    assert code == 5
    assert "there is a profile remote" in err
    assert load(os.environ).names() == ["remote"]
    assert invoke("kaf", file, "--replace")[0] == 0
    assert invoke("kaf", file, "--name", "other")[::2] == (
        4,
        f"error[PK55]: {file} has no other\n  fix: it has local, remote\n",
    )


def test_javas_properties(home: Path) -> None:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="geheim";'
    )
    file = put(
        home / "client.properties",
        f"""bootstrap.servers=a:1,b:2
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config={jaas}
ssl.truststore.type=PEM
ssl.truststore.location=/ca.pem
ssl.keystore.type=PKCS12
ssl.keystore.location=/me.p12
ssl.keystore.password=auch
ssl.endpoint.identification.algorithm=
key.serializer=org.x.Y
""",
    )
    code, out, err = invoke("java", file)
    assert (code, err) == (0, "")
    assert "geheim" not in out
    assert "auch" not in out
    assert out.splitlines()[1].endswith("key.serializer")
    assert load(os.environ).get("client") == Profile(
        "client",
        ("a:1", "b:2"),
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "me",
            "sasl.password": "geheim",
            "ssl.ca.location": "/ca.pem",
            "ssl.keystore.location": "/me.p12",
            "ssl.keystore.password": "auch",
            "ssl.endpoint.identification.algorithm": "none",
        },
    )


def test_what_java_has_and_librdkafka_has_not_is_passed_over() -> None:
    text = """ssl.truststore.location=/trust.jks
ssl.truststore.password=x
ssl.keystore.location=/key.jks
sasl.jaas.config=some.Other required a="b";
ssl.keystore.key=k
"""
    _, taken, passed_over = of_java(Path("x"), text)
    assert taken == {}
    assert set(passed_over) == {line.split("=")[0] for line in text.splitlines()}
    pem = "ssl.keystore.type=PEM\nssl.keystore.location=/both.pem\nssl.key.password=p"
    assert of_java(Path("x"), pem)[1:] == (
        {
            "ssl.key.password": "p",
            "ssl.certificate.location": "/both.pem",
            "ssl.key.location": "/both.pem",
        },
        (),
    )


def test_librdkafkas_properties(home: Path) -> None:
    file = put(
        home / "conf" / "kcat.conf",
        """# comment
bootstrap.servers=a:1
client.id = me = you
fetch.min.bytes=5
group.id=g
no.such.thing=1
""",
    )
    code, out, err = invoke("librdkafka", "--name", "kcat")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].endswith("group.id,no.such.thing")
    assert load(os.environ).get("kcat") == Profile(
        "kcat", ("a:1",), {"client.id": "me = you", "fetch.min.bytes": "5"}
    )
    assert Path(file).read_text().startswith("# comment")


def test_a_value_that_librdkafka_refuses_stays_for_the_command_that_uses_it() -> None:
    text = "metadata.broker.list=a:1\nssl.ca.location=/nowhere\nsecurity.protocol=ssl\n"
    assert of_librdkafka(Path("x"), text) == (
        ("a:1",),
        {"ssl.ca.location": "/nowhere", "security.protocol": "ssl"},
        (),
    )


@pytest.mark.parametrize(
    ("kind", "text", "code", "said"),
    [
        ("rpk", "profiles: [", 2, "no YAML, line 1: "),
        ("rpk", "[" * 3000, 2, "no YAML"),
        ("rpk", "5", 2, "the file is no mapping"),
        ("rpk", "profiles: 5", 2, "profiles is no list"),
        ("rpk", "profiles: [5]", 2, "the file is no mapping"),
        ("rpk", "profiles: [{description: x}]", 2, "number 1 of profiles has no name"),
        ("rpk", "profiles: [{name: a}, {name: a}]", 2, "a is there twice"),
        ("rpk", "profiles: [{name: none}]", 2, "none stands for no profile"),
        ("rpk", "profiles: [{name: a, kafka_api: 5}]", 2, "kafka_api is no mapping"),
        ("rpk", "profiles: [{name: a, kafka_api: {brokers: 5}}]", 2, "brokers is no list of texts"),
        (
            "rpk",
            "profiles: [{name: a, kafka_api: {brokers: ['::1:1']}}]",
            2,
            "brokers of a: '::1:1'",
        ),
        ("rpk", "!!python/object/apply:os.getcwd []", 2, "no YAML, line 1"),
        ("rpk", "", 4, "has no cluster"),
        ("kaf", "clusters: [{name: a, SASL: {username: []}, TLS: {cafile: {a: b}}}]", 2, "no text"),
        ("librdkafka", "a", 2, "line 1: it must be NAME=VALUE"),
        ("librdkafka", "=a", 2, "line 1: it must be NAME=VALUE"),
        ("librdkafka", "bootstrap.servers=a:b:c", 2, "brokers of file: 'a:b:c'"),
        ("librdkafka", "\0" * (2**20 + 1), 2, "more than 1048576 bytes"),
        ("redis", "", 2, "import takes rpk, kaf, java, librdkafka"),
    ],
    ids=lambda one: str(one)[:50],
)
def test_what_makes_no_sense_is_told(
    home: Path, kind: str, text: str, code: int, said: str
) -> None:
    found, out, err = invoke(kind, put(home / "file", text))
    assert (found, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1 + err.count("\n  fix: ")
    assert not (home / "config.toml").exists()


def test_a_missing_file(home: Path) -> None:
    code, _, err = invoke("rpk")
    assert code == 4
    assert err.startswith(f"error[PK47]: cannot read {home}/conf/rpk/rpk.yaml: ")
    assert invoke("java")[0] == 2


def test_aliases_cost_no_more_than_the_file(home: Path) -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    code, out, err = invoke("rpk", put(home / "f", "\n".join([*lines, "profiles: [{name: a}]"])))
    assert code == 0, err
    assert "passed over: a0, a1, a2" in err
    assert out.splitlines()[1].startswith("a")
