"""Options of the two clusters of ``pyrklog mirror``; none of its sentences tells a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.mirror_clusters import FROM, TO, Side, Sides, places
from pyrklog.cli.options import Settings
from pyrklog.mirror import Cluster
from pyrklog.security import Security
from tests.support.deaf_peer import deaf_peer

TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"
SCRAM = ["security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", "sasl.username=alice"]
FILE = """
# of Kafka's own tools
bootstrap.servers=elsewhere:9092
security.protocol = SASL_PLAINTEXT
sasl.mechanism: PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="bob" \\
  password="wonder";
client.id=tools
"""


def clusters(
    source: Side, target: Side | None = None, options: Settings | None = None
) -> tuple[Cluster, Cluster]:
    sides = Sides(source, target or Side(TO, "h:2"))
    there, here, _ = places(options or Settings(), sides, "prefix", None)
    return there, here


def refusal(*pairs: str, file: Path | None = None) -> str:
    with pytest.raises(CliError) as refused:
        clusters(Side(FROM, "h:1", None if file is None else str(file), list(pairs)))
    assert refused.value.code is Exit.USAGE
    return refused.value.text()


def test_each_cluster_has_its_own_options() -> None:
    there, here = clusters(
        Side(FROM, "east=h:1", None, [*SCRAM, "sasl.password=a=b"]),
        Side(TO, "west=h:2,i:3", None, ["security.protocol=SSL", "ssl.ca.location=ca.pem"]),
    )
    assert (there.alias, there.bootstrap) == ("east", "h:1")
    assert (here.alias, here.bootstrap) == ("west", "h:2,i:3")
    security = there.security
    assert (security.protocol, security.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (security.username, security.password) == ("alice", "a=b")
    assert (here.security.protocol, here.security.is_sasl) == ("SSL", False)
    assert "a=b" not in repr((there, here))


def test_without_options_there_is_neither_tls_nor_sasl() -> None:
    there, here = clusters(Side(FROM, "h:1"))
    assert there.security == here.security == Security()
    assert (there.alias, here.alias) == ("source", "target")


def test_a_file_is_read_and_what_follows_it_wins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(FILE)
    there, here = clusters(
        Side(FROM, "h:1", str(path)),
        Side(TO, "h:2", str(path), ["security.protocol=SASL_SSL"]),
        Settings(quiet=True),
    )
    assert capsys.readouterr().err == ""
    assert there.bootstrap == "h:1"
    assert (there.security.protocol, here.security.protocol) == ("SASL_PLAINTEXT", "SASL_SSL")
    for one in (there, here):
        found = one.security
        assert (found.mechanism, found.username, found.password) == ("PLAIN", "bob", "wonder")
    clusters(Side(FROM, "h:1", str(path)))
    passed_over = "as no options of TLS or SASL: bootstrap.servers, client.id"
    assert capsys.readouterr().err == f"note: {path}: passed over, {passed_over}\n"


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (["hush"], "--from-property takes KEY=VALUE"),
        (["sasl.password:hush"], "--from-property takes KEY=VALUE"),
        (["=hush"], "--from-property takes KEY=VALUE"),
        ([*SCRAM, "sasl.pasword=hush"], "no option sasl.pasword of security"),
        (["sasl.password=hush"], "sasl.password has no effect"),
        ([*SCRAM, "ssl.keystore.password=hush"], "use ssl.key.password"),
        ([*SCRAM[:2], "sasl.password=hush"], "sasl.username and sasl.password are needed"),
        ([*SCRAM[:2], "sasl.jaas.config=hush"], "it can be MODULE required"),
        ([*SCRAM, "sasl.password=hush", "acks=all"], "there is no option acks of security"),
    ],
)
def test_a_mistake_is_told_without_its_value(pairs: list[str], told: str) -> None:
    line = refusal(*pairs)
    assert told in line
    assert "hush" not in line
    assert line.count("\n") == line.count("\n  fix: ")


def test_the_nearest_option_is_told() -> None:
    assert refusal(*SCRAM, "sasl.pasword=hush").endswith("\n  fix: did you mean sasl.password?")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"security.protocol=SSL\nhush\n", ", line 2 must be NAME=VALUE"),
        (b'password="hush";\n"hush";\n', ", line 2 must be NAME=VALUE"),
        (b"sasl.password=hu\\uzzzzsh\n", "line 1: \\u must be followed by four"),
        (b"sasl.password=hush\xff\n", "is no text in UTF-8"),
        (b"sasl.pasword=hush\n", "there is no option sasl.pasword of security"),
        (b"security.providers=hush\n", "there is no option security.providers of security"),
    ],
)
def test_a_file_with_a_mistake_is_refused_without_its_text(
    tmp_path: Path, text: bytes, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    path.write_bytes(text)
    line = refusal(file=path) + capsys.readouterr().err
    assert told in line
    assert "hush" not in line


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"cannot read .*/none: No such file") as refused:
        clusters(Side(FROM, "h:1", str(tmp_path / "none")))
    assert refused.value.code is Exit.NOT_FOUND
    assert "cannot read " in refusal(file=tmp_path)


@pytest.mark.parametrize("place", ["east=h:1,east=h:2", "h:1,west=h:2", "a,b=h:1"])
def test_one_alias_stands_before_all_brokers(place: str) -> None:
    """Else it would be part of the second broker's name."""
    with pytest.raises(CliError, match="--from takes one alias, before all brokers") as refused:
        clusters(Side(FROM, place))
    assert refused.value.code is Exit.USAGE


def invoke(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stderr


COMMANDS = (["run", "--topics", "t"], ["status"], ["verify"])


def test_a_list_of_topics_to_copy_again_is_refused() -> None:
    sides = ["--from", "127.0.0.1:1", "--to", "127.0.0.1:1", "--topics", "t"]
    code, told = invoke("mirror", "run", *sides, "--again", "t,u")
    assert code == Exit.USAGE
    assert "--again takes the name of one topic, not 't,u'\n  fix: repeat --again" in told


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one[0])
def test_options_for_one_cluster_are_for_neither(command: list[str]) -> None:
    sides = ["--from", "127.0.0.1:1", "--to", "127.0.0.1:1"]
    code, told = invoke("-X", "security.protocol=SSL", "mirror", *command, *sides)
    assert code == Exit.USAGE
    assert told == (
        "error[PK42]: mirror does not take -X: it has two clusters\n"
        "  fix: give --from-property or --to-property\n"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one[0])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["-X", "security.protocol=SSL"], "each cluster has its own: --from-property"),
        (["--command-config", "client.properties"], "each cluster has its own: --from-config"),
        (["-b", "h:1"], "mirror takes --from HOST:PORT"),
    ],
)
def test_options_of_other_commands_are_answered(
    command: list[str], given: list[str], told: str
) -> None:
    code, said = invoke("mirror", *command, "--from", "h:1", "--to", "h:2", *given)
    assert code == Exit.USAGE
    assert told in said


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: one[0])
def test_a_listener_with_tls_is_told_with_the_option_of_its_cluster(command: list[str]) -> None:
    with deaf_peer(TLS_ALERT) as address:
        code, told = invoke("mirror", *command, "--from", address, "--to", "127.0.0.1:1")
    assert code == Exit.UNREACHABLE
    assert told == (
        f"error[PK38]: no broker reached ({address} speaks TLS)\n  fix: give --from-property "
        "security.protocol=ssl, or the port of a plain listener with --from\n"
    )


def test_a_listener_without_tls_is_told_with_the_option_of_its_cluster() -> None:
    # An answer to ApiVersions, of no use but Kafka's.
    with deaf_peer(b"\x00\x00\x00\x0a\x00\x00\x00\x01" + bytes(6)) as address:
        code, told = invoke(
            *("mirror", "status", "--from", address, "--to", address),
            *("--from-X", "security.protocol=SSL"),
        )
    assert code == Exit.UNREACHABLE
    assert "speaks PLAINTEXT, without TLS" in told
    assert told.endswith("leave out --from-property security.protocol=SSL\n")
