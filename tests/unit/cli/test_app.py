"""The command line as a whole: help, usage, and errors without a broker."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pyrklog import __version__
from pyrklog.cli.app import app
from pyrklog.cli.hints import _COMMANDS, _OF_COMMANDS, property_hint
from pyrklog.cli.lazy_commands import LAZY
from tests.support.deaf_peer import deaf_peer


@pytest.fixture
def nobody() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def invoke(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    done = CliRunner().invoke(app, list(arguments), input=stdin)
    return done.exit_code, done.stdout, done.stderr


COMMANDS = [
    ["topic", "list"],
    ["topic", "create", "a"],
    ["topic", "describe", "a"],
    ["topic", "alter", "a", "--set", "x=1"],
    ["topic", "delete", "a", "-y"],
    ["consume", "a"],
    ["produce", "a", "v"],
    ["topic", "add-partitions", "a", "--to", "3"],
    ["topic", "trim", "a", "--before", "5"],
    ["topic", "copy", "a", "b"],
    ["topic", "skew"],
    ["config", "describe", "broker", "1"],
    ["config", "alter", "topic", "a", "--set", "x=1"],
    ["cluster", "txns", "list"],
    ["cluster", "txns", "abort", "a"],
    ["group", "export", "a"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_closed_port_is_reported_at_once(command: list[str], nobody: str) -> None:
    code, out, err = invoke(*command, "-b", nobody)
    assert (code, out) == (3, "")
    assert err.startswith(
        f"error[PK30]: no broker reached ({nobody}: Connection refused)\n  fix: start"
    )
    assert err.count("\n") == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-b", "a..b:9092"], "-b takes HOST:PORT, not 'a..b:9092'"),
        (["-b", f"{'a' * 64}:9092"], "-b takes HOST:PORT"),
        (["-b", "::1:9092"], "stands in brackets"),
        (["-b", "h:\u0663"], "-b takes HOST:PORT"),
        (["--timeout", "inf"], "--timeout takes up to 86400 seconds, not inf"),
        (["--timeout", "nan"], "--timeout takes up to 86400 seconds, not nan"),
        (["--timeout", "1e10"], "--timeout takes up to 86400 seconds"),
    ],
)
def test_options_that_make_no_sense_are_told(options: list[str], said: str) -> None:
    code, out, err = invoke("topic", "list", *options)
    assert (code, out) == (2, "")
    assert err.startswith("error[PK41]: ")
    assert said in err


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("topic list --timeout abc -o json", "PK41"),
        ("topic list --foo -ojsonl", "PK40"),
        ("topic list --output=JSON --foo", "PK40"),
        ("topic lst -o json", "PK40"),
        ("topic describe -o yaml -o json", "PK43"),
        ("--timeout nan topic list -o json", "PK41"),
        ("-o json", "PK40"),
    ],
)
def test_a_wrong_command_line_that_asks_for_json_is_answered_so(command: str, problem: str) -> None:
    code, out, err = invoke(*command.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert json.loads(err)["error"]["code"] == problem


@pytest.mark.parametrize(
    "command", ["topic list --foo -o json -o table", "topic list --foo -- -o json"]
)
def test_a_wrong_command_line_is_else_told_to_people(command: str) -> None:
    code, _, err = invoke(*command.split())
    assert (code, err.splitlines()[0].split()[0]) == (2, "Usage:")
    assert "\nerror[PK40]: " in err


@pytest.mark.parametrize(
    "command",
    ["produce a --from", "cluster reassign apply", "log dump", "log merge-state"],
)
def test_a_file_that_is_not_there_has_one_exit_code(
    command: str, nobody: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "nowhere")
    broker = [] if command.startswith("log") else ["-b", nobody]
    code, out, err = invoke(*command.split(), file, *broker)
    assert (code, out) == (4, "")
    assert file in err


@pytest.mark.parametrize("option", ["--data", "--config"])
def test_what_is_not_there_is_not_exported(option: str, tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    code, out, err = invoke("log", "export-kraft", option, str(path))
    assert (code, out) == (4, "")
    assert err.startswith(f"error[PK47]: {path} does not exist\n  fix: name the directories ")
    path.mkdir()  # without logs
    code, _, err = invoke("log", "export-kraft", "--data", str(path))
    assert code == 4
    assert err.startswith(f"error[PK47]: {path}/logs does not exist\n  fix: ")
    (path / "logs").mkdir()
    code, _, err = invoke("log", "export-kraft", "--data", str(path))
    assert (code, err.splitlines()[1:]) == (
        1,
        ["  fix: name the directories as for `pyrklog serve`, with --data or --config"],
    )


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_deleted_only_when_they_are_meant(name: str, nobody: str) -> None:
    command = ["topic", "delete", "a", name, "-y", "-b", nobody]
    code, out, err = invoke(*command)
    assert (code, out) == (2, "")
    assert err.startswith(f"error[PK63]: deleting {name} loses ")
    assert err.endswith("\n  fix: give --internal, too, to have it\n")
    for more in ("--internal", "--dry-run"):
        assert invoke(*command, more)[0] == 3  # nobody answers


def test_a_group_among_the_properties_is_refused(nobody: str) -> None:
    command = ["consume", "a", "-e", "-b", nobody]
    code, out, err = invoke(*command, "-X", "group.id=zz")
    assert (code, out) == (2, "")
    assert err == "error[PK42]: consume does not take -X group.id\n  fix: name the group with -g\n"
    assert invoke(*command, "-X", "client.id=zz")[0] == 3  # nobody answers


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
@pytest.mark.parametrize("is_before", [False, True])
def test_brokers_among_the_properties_are_refused(name: str, is_before: bool, nobody: str) -> None:
    # Else the command would act on the default broker's cluster.
    given = ["-X", f"{name}={nobody}"]
    command = ["topic", "delete", "a", "-y"]
    code, out, err = invoke(*given, *command) if is_before else invoke(*command, *given)
    assert (code, out) == (2, "")
    fix = "give the broker with -b HOST:PORT"
    assert err == f"error[PK42]: -X {name} does not choose the broker\n  fix: {fix}\n"


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, not Kafka's protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "speaks SSH, not Kafka's protocol"),
        (b"imok", "does not speak Kafka's protocol"),
        (b"\x00\x00\x00\x0a\x00\x00\x00\x07", "does not speak Kafka's protocol"),
        (b"", "closes the connection: it speaks TLS, or not Kafka's protocol"),
    ],
    ids=["HTTP", "TLS", "SSH", "ZooKeeper", "another answer", "nothing"],
)
def test_server_of_another_protocol_is_named(answer: bytes, what: str) -> None:
    with deaf_peer(answer) as address:
        code, _, err = invoke("topic", "list", "-b", address)
    assert code == 3
    assert err.startswith(f"error[PK38]: no broker reached ({address} {what})\n  fix: give ")
    assert ("security.protocol=ssl" in err) == ("TLS" in what)


READY = b'HTTP/1.1 200 OK\r\n\r\n{"ready":true,"broker":7}'


def test_a_brokers_http_port_is_named() -> None:
    with deaf_peer(READY) as address:
        code, _, err = invoke("topic", "list", "-b", address)
    assert code == 3
    assert err == (
        f"error[PK38]: no broker reached ({address} is the HTTP port of broker 7)\n"
        "  why: metrics and health are served there, not Kafka's protocol\n"
        "  fix: give the port of its Kafka listener with -b, 100 below its HTTP port unless "
        "pyrklog.http.listener is set\n"
    )


def test_it_is_no_broker_only_where_nothing_else_was_given(nobody: str) -> None:
    with deaf_peer(b"imok") as address:
        code, _, err = invoke("topic", "list", "-b", f"{address},{nobody}")
    assert code == 3
    assert err.startswith(f"error[PK30]: no broker reached ({address} does not speak Kafka's ")


@pytest.mark.parametrize("bootstrap", ["http://h:1", "https://h", "PLAINTEXT://h:1/x", "tcp://h:1"])
def test_url_is_refused_as_broker_address(bootstrap: str) -> None:
    code, _, err = invoke("topic", "list", "-b", bootstrap)
    assert code == 2
    assert err.startswith(
        f"error[PK41]: -b takes HOST:PORT of a broker's listener, not {bootstrap!r}\n  fix: "
    )


def test_an_advertised_listener_may_be_copied(nobody: str) -> None:
    code, _, err = invoke("topic", "list", "-b", f"PLAINTEXT://{nobody}")
    assert code == 3
    assert nobody in err


def test_the_address_may_come_first_or_from_the_environment(
    nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nobody in invoke("-b", nobody, "topic", "list")[2]
    monkeypatch.setenv("PYRKLOG_BOOTSTRAP", nobody)
    assert nobody in invoke("topic", "list")[2]
    assert "127.0.0.1:1:" in invoke("-b", nobody, "topic", "list", "-b", "127.0.0.1:1")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope"],
        ["topic", "nope"],
        ["topic", "create"],
        ["topic", "list", "-o", "xml"],
        ["topic", "create", "a", "-c", "x"],
        ["topic", "alter", "a"],
        ["topic", "list", "--regex", "("],
        ["topic", "list", "-X", "x"],
        ["-X", "x", "topic", "list"],
        ["topic", "list", "-b", "a:b"],
        ["consume"],
        ["consume", "a", "-c", "0"],
        ["consume", "a", "-o", "nope"],
        ["consume", "a", "-f", "%t", "-K", ":"],
        ["produce", "a", "v", "-z", "rar"],
        ["produce", "a", "v", "--acks", "2"],
        ["produce", "a", "v", "-f", "avro"],
        ["produce", "a", "v", "--from", "x"],
        ["produce", "a", "--tombstone"],
        ["produce", "a", "v", "-k", "k", "--tombstone"],
        ["topic", "list", "-b", ""],
        ["topic", "add-partitions", "a"],
        ["topic", "trim", "a"],
        ["topic", "trim", "a", "--before", "noon"],
        ["topic", "copy", "a"],
        ["topic", "copy", "a", "b", "--from", "@noon"],
        ["topic", "copy", "a", "b", "--from", "5", "--before", "2"],
        ["topic", "alter", "__consumer_offsets", "-p", "60"],
        ["consume", "a", "-o", "5:2"],
        ["consume", "a", "-f", "csv"],
        ["topic", "skew", "--by", "age"],
        ["config", "describe", "cluster", "a"],
        ["config", "alter", "topic", "a"],
        ["config", "diff", "topic"],
        ["cluster", "txns", "abort"],
        ["log", "dump"],
        ["log", "export-kraft"],
    ],
    ids=" ".join,
)
def test_mistakes_in_usage(arguments: list[str]) -> None:
    code, out, err = invoke(*arguments)
    assert (code, out) == (2, "")
    assert "rror" in err


@pytest.mark.parametrize("command", [[], ["topic"], ["log"]], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(command: list[str]) -> None:
    out = "".join(invoke(*command)[1:])
    assert "Usage:" in out
    assert "Commands:" in out


def test_every_command_has_help_with_an_example() -> None:
    for command in ("serve", "produce", "consume", "topic create", "topic alter", "log dump"):
        code, out, _ = invoke(*command.split(), "--help")
        assert code == 0
        assert "Options:" in out
    assert "Exit codes: 0 ok" in invoke("--help")[1]


def test_version_is_printed() -> None:
    assert invoke("--version")[:2] == (0, f"pyrklog {__version__}\n")


def test_help_needs_no_broker_library() -> None:
    program = (
        "import sys; sys.argv = ['pyrklog', '--help']\n"
        "from pyrklog.cli import main\n"
        "try: main()\n"
        "finally: print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=dict(os.environ),
    )
    loaded = set(done.stdout.split())
    assert "typer" in loaded
    slow = {"trio", "confluent_kafka", "rich", "msgspec", "pydantic", "tomlkit", "tomllib", "yaml"}
    assert not slow & loaded


EMPTY_NAMES = [
    (["topic", "create", ""], "TOPIC takes the name of a topic"),
    (["topic", "create", "a", ""], "TOPIC takes the name of a topic"),
    (["topic", "list", ""], "TOPIC takes the name of a topic"),
    (["topic", "describe", ""], "TOPIC takes the name of a topic"),
    (["topic", "alter", "", "--set", "a=b"], "TOPIC takes the name of a topic"),
    (["topic", "delete", "", "-y"], "TOPIC takes the name of a topic"),
    (["produce", "", "v"], "TOPIC takes the name of a topic"),
    (["consume", ""], "TOPIC takes the name of a topic"),
    (["consume", "a", "-g", ""], "-g takes the name of a group"),
    (["topic", "add-partitions", "", "--to", "3"], "TOPIC takes the name of a topic"),
    (["topic", "trim", "", "--before", "5"], "TOPIC takes the name of a topic"),
    (["topic", "copy", "a", ""], "TOPIC takes the name of a topic"),
    (["topic", "skew", ""], "TOPIC takes the name of a topic"),
    (["config", "describe", "topic", ""], "NAME takes the name of a topic or broker"),
    (["config", "explain", ""], "OPTION takes the name of an option"),
    (["cluster", "txns", "describe", ""], "ID takes the name of a transactional id"),
    (["group", "describe", "a", ""], "GROUP takes the name of a group"),
    (["group", "seek", "", "--to", "start"], "GROUP takes the name of a group"),
    (["group", "export", ""], "GROUP takes the name of a group"),
    (["group", "history", ""], "GROUP takes the name of a group"),
    (["group", "delete", "", "-y"], "GROUP takes the name of a group"),
    (["group", "delete-offsets", "", "-t", "a"], "GROUP takes the name of a group"),
]


@pytest.mark.parametrize(("command", "said"), EMPTY_NAMES, ids=lambda one: str(one))
def test_an_empty_name_is_the_users_mistake(command: list[str], said: str, nobody: str) -> None:
    broker = [] if command[:2] == ["config", "explain"] else ["-b", nobody]
    code, out, err = invoke(*command, *broker)
    assert (code, out, err) == (2, "", f"error[PK41]: {said}, not an empty text\n")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["topic", "create", "a", "--set", "b=c"], "topic create takes --config NAME=VALUE"),
        (["topic", "alter", "a", "--config", "b=c"], "topic alter takes --set NAME=VALUE"),
        (["topic", "describe", "--topic", "a"], "topics stand behind the command"),
        (["group", "describe", "--group", "a"], "groups stand behind the command"),
        (["topic", "--list"], "`pyrklog topic list`"),
        (["--list"], "`pyrklog topic list`"),
        (["consume", "a", "--from-beginning"], "consume begins there unless -o says otherwise"),
        (["group", "seek", "a", "--to-earliest"], "group seek takes --to start"),
        (["produce", "a", "--broker-list", "h:1"], "--bootstrap-server HOST:PORT"),
        (["topic", "trim", "a", "--partition", "1"], "topic trim takes TOPIC:P"),
        (["config", "alter", "topic", "a", "--add-config", "b=c"], "takes --set NAME=VALUE"),
        (["cluster", "txns", "abort", "--topic", "a"], "takes --partition TOPIC:P"),
        (["serve", "--port", "9093"], "serve takes --listen HOST:PORT"),
        (["serve", "--override", "a=b"], "serve takes --set NAME=VALUE"),
        (["group", "list", "--all-groups"], "group list lists all groups"),
        (["group", "describe", "a", "--all-groups"], "`pyrklog group list --lag`"),
        (["group", "seek", "a", "--to", "end", "--all-topics"], "unless --topic is given"),
        (["topic", "list", "--port", "9093"], "-b HOST:PORT"),
        (["topic", "list", "--json"], "`-o json` prints JSON"),
        (["consume", "a", "--json"], "consume takes -f jsonl"),
        (["topic", "list", "-p", "prod"], "-p PROFILE stands before the command"),
    ],
    ids=lambda one: str(one),
)
def test_options_of_kafkas_tools_are_answered_with_ours(command: list[str], said: str) -> None:
    code, out, err = invoke(*command)
    assert (code, out) == (2, "")
    assert "No such option: -" in err
    assert said in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("topic rm a", "it is `pyrklog topic delete`"),
        ("topic remove a", "it is `pyrklog topic delete`"),
        ("topic delete-records a", "it is `pyrklog topic trim`"),
        ("topic consume a", "it is `pyrklog consume TOPIC`"),
        ("group rm a", "it is `pyrklog group delete`"),
        ("group reset a", "it is `pyrklog group seek`"),
        ("config set a", "it is `pyrklog config alter`"),
        ("arena rm a", "it is `pyrklog arena remove`"),
        ("cluster txns show a", "it is `pyrklog cluster txns describe`"),
        ("version", "`pyrklog --version` prints it"),
        ("help", "`pyrklog --help` shows it"),
        ("topic help", "`pyrklog topic --help` shows it"),
    ],
)
def test_commands_of_other_tools_are_answered_with_ours(command: str, said: str) -> None:
    code, out, err = invoke(*command.split())
    word = command.split()[-2 if command.endswith(" a") else -1]
    assert (code, out) == (2, "")
    assert err.endswith(f"error[PK40]: No such command '{word}'\n  fix: {said}\n")


def test_each_such_answer_is_a_command_that_exists() -> None:
    root: Any = typer.main.get_command(app)
    groups = [root, *(one for one in root.commands.values() if hasattr(one, "commands"))]
    names = {name for group in groups for name in group.commands}
    for word, ours in _COMMANDS.items():
        assert names & set(ours), word


def test_a_like_command_is_proposed_as_ever() -> None:
    assert "No such command 'lst'. Did you mean 'list'" in invoke("topic", "lst")[2]


@pytest.mark.parametrize(
    ("refused", "ours"),
    [
        ("parse.key", "`produce -K TEXT`"),
        ("print.key", "`consume -K TEXT`"),
        ("print.offset", "%o"),
        ("null.literal", "`consume -Z TEXT`"),
    ],
)
def test_properties_of_kafkas_console_clients_are_answered(refused: str, ours: str) -> None:
    said = property_hint(f'No such configuration property: "{refused}"')
    assert said is not None
    assert ours in said
    assert property_hint('No such configuration property: "x.y"') is None
    assert property_hint("something else") is None


def _commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, one in group.commands.items():
        here = f"{path} {name}".strip()
        if hasattr(one, "commands"):
            yield from _commands(one, here)
        else:
            yield here, one


def test_usage_lines_have_no_braces_but_for_choices() -> None:
    usages = {
        path: " ".join(one.collect_usage_pieces(typer.Context(one, info_name=path)))
        for path, one in _commands(typer.main.get_command(app))
    }
    assert usages["topic create"] == "[OPTIONS] TOPIC..."
    assert usages["topic list"] == "[OPTIONS] [TOPIC...]"
    assert usages["log dump"] == "[OPTIONS] PATH..."
    assert usages["consume"] == "[OPTIONS] TOPIC..."
    assert (
        usages["config alter"] == "[OPTIONS] {topic|broker|broker-loggers|client-metrics} NAME..."
    )
    for path, usage in usages.items():
        assert ("{" in usage) == ("|" in usage), path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("shared", ["-q", "-v"])
def test_a_shared_option_may_follow_any_command(
    command: list[str], shared: str, nobody: str
) -> None:
    assert invoke(*command, "-b", nobody, shared)[0] == 3


def test_each_hint_is_for_an_option_that_the_command_does_not_have() -> None:
    root = typer.main.get_command(app)
    for name, hints in _OF_COMMANDS.items():
        command: Any = root
        for word in name.split():
            command = command.commands[word]
        known = {option for one in command.params for option in one.opts}
        assert not known & hints.keys(), name


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("serve server.properties", "\n  fix: serve takes --config FILE, and --data DIR"),
        ("config describe topics a", "\n  fix: it is `pyrklog config describe topic NAME`"),
        ("config alter brokers 1 --set a=b", "\n  fix: it is `pyrklog config alter broker NAME`"),
        ("config describe orders", "\n  fix: for example `pyrklog config describe topic orders`"),
        ("config describe 3", "\n  fix: for example `pyrklog config describe broker 3`"),
        (
            "config alter default --set a=b",
            "\n  fix: for example `pyrklog config alter broker default`",
        ),
        ("config alter topic a retention.ms=5", "\n  fix: give --set retention.ms=5"),
    ],
)
def test_words_in_the_wrong_place_are_answered(command: str, said: str) -> None:
    code, out, err = invoke(*command.split())
    assert (code, out) == (2, "")
    assert err.rstrip().endswith(said)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("topic create a -p x", "'x' is not a whole number"),
        ("produce a -p x", "'x' is not a whole number from 0 to 2147483647"),
        ("produce a -p -4", "-4 is not a whole number from 0 to 2147483647"),
        ("topic add-partitions a --to 0", "0 is not a whole number from 1 to 100000"),
        ("consume a -n 1.5", "'1.5' is not a whole number of 1 or more"),
        ("topic list --timeout x", "'x' is not a number of 0.1 or more"),
        ("topic skew --over x", "'x' is not a number"),
    ],
)
def test_numbers_are_refused_in_plain_words(command: str, said: str) -> None:
    code, out, err = invoke(*command.split())
    assert (code, out) == (2, "")
    assert "Invalid value for " in err
    assert err.rstrip().endswith(said)


def test_other_unknown_options_are_told_as_ever() -> None:
    err = invoke("topic", "list", "--nonsense")[2]
    assert err.endswith("error[PK40]: No such option: --nonsense\n")


def test_a_misspelled_variable_is_told(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYRKLOG_BOOTSTRA", "elsewhere:1")
    err = invoke("produce", "a", "v", "-b", nobody)[2]
    assert err.splitlines()[0] == (
        "note: the environment variable PYRKLOG_BOOTSTRA names no option; ignored; "
        "did you mean PYRKLOG_BOOTSTRAP?"
    )
    assert err.count("note: ") == 1
    assert "note: " not in invoke("produce", "a", "v", "-b", nobody, "-q")[2]
    assert "note: " not in invoke("-q", "produce", "a", "v", "-b", nobody)[2]
    monkeypatch.delenv("PYRKLOG_BOOTSTRA")
    assert "note: " not in invoke("produce", "a", "v", "-b", nobody)[2]


def test_the_outermost_help_tells_what_commands_say_themselves() -> None:
    root: Any = typer.main.get_command(app)
    for name, about in root.commands.about().items():
        command = root.commands[name]
        assert (command.name, str(command.help).strip().split("\n")[0]) == (name, about)


def test_help_imports_no_command() -> None:
    """Each that it would import costs some milliseconds of the 100 that help may take."""
    modules = [one.module for one in LAZY.values()]
    watched = f"""
import atexit, sys
from pyrklog.cli import main
atexit.register(lambda: print(sorted(set(sys.modules) & set({modules!r}))))
sys.argv[1:] = ["--help"]
main()
"""
    done = subprocess.run([sys.executable, "-c", watched], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
