"""Every argument of every command, at and beyond its bounds: one line says what is wrong.

The tests read the commands' own parameters, so that new ones are included. They run against this
file's own broker.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pyrklog.cli.app import app
from pyrklog.cli.failures import Exit
from pyrklog.testing import TestBroker
from tests.support.command_child import Commands, Ended

ROOT = Path(__file__).parents[2]
EXAMPLES = int(os.environ.get("ARGUMENT_EXAMPLES", "250"))
# They run for ever, or ask a person.
NOT_GIVEN = {"watch", "exit_when_healthy", "follow", "help", "version", "_version"}
# Keeps a command from doing more than check its arguments.
ALWAYS = {
    "consume": ["--exit", "--timeout=2"],
    "dev start": ["--zk=2"],
    "serve": ["--check"],
    "cluster health": ["--timeout=2"],
}
INTEGERS = (-(2**63), -5, -1, 0, 1, 2, 7, 100_001, 2**31 - 1, 2**31, 2**63, 10**30)
FLOATS = ("nan", "inf", "-inf", "-1", "0", "0.1", "1e-300", "86401", "1e300", "1e400")
TEXTS = (
    "",
    " ",
    "a\udcff",
    "a\nb",
    "x" * 300,
    "orders",
    "orders:0",
    "orders:99999999999999999999",
    "orders:-1",
    "=",
    "a=",
    "=b",
    "a=b",
    "retention.ms=99999999999999999999999",
    "client.id=\udcff",
    "@",
    "@-90m",
    "@99999999999999999999",
    "@0001-01-01",
    "@9999-12-31T23:59:59",
    "-5:9",
    "99999999999999999999",
    "+99999999999999999999",
    "0:99999999999999999999",
    "-99999999999999999999",
    "group:",
    "group:\udcff",
    "1,2",
    ",",
    "1e999s",
    "60s",
    "99999999999999999999TB/s",
    "0.0000001",
    "%",
    "%d{",
    "%d{\udcff}",
    "%T{hex}",
    "[",
    "..",
    "a/b",
    "é" * 200,
    "٣",
    "jsonl",
    "0",
)

Command = tuple[str, Any]


def commands() -> list[Command]:
    """All commands with their names: ``topic create``."""

    def below(name: str, command: Any) -> Iterator[Command]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
            return
        for word, one in inner.items():
            yield from below(f"{name} {word}".strip(), one)

    return list(below("", typer.main.get_command(app)))


def values(parameter: Any) -> st.SearchStrategy[str]:
    kind = parameter.type.name
    if kind.startswith("integer"):
        return st.sampled_from([*map(str, INTEGERS), "x", ""])
    if kind.startswith("float"):
        return st.sampled_from([*FLOATS, "x"])
    letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
    written = st.text(letters, max_size=12)
    choices = [*TEXTS, *getattr(parameter.type, "choices", ())]
    return st.one_of(st.sampled_from(choices), st.sampled_from(choices), written)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with all required arguments and some optional ones."""
    name, command = draw(st.sampled_from(commands()))
    line = [*name.split(), *ALWAYS.get(name, [])]
    operands: list[str] = []
    for one in command.params:
        if one.name in NOT_GIVEN or (one.name in ("bootstrap", "timeout") and name in ALWAYS):
            continue
        if one.param_type_name == "argument":
            if one.required or draw(st.booleans()):
                operands += draw(st.lists(values(one), min_size=1, max_size=1))
        elif one.required or draw(st.integers(0, 3)) == 0:
            option = max(one.opts, key=len)
            flag = getattr(one, "is_flag", False)
            line.append(option if flag else f"{option}={draw(values(one))}")
    return [*line, "--", *operands] if operands else line


@pytest.fixture(scope="module")
def invoke(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[list[str]], Ended]]:
    """Runs a command line in an empty home, beside a broker."""
    home = tmp_path_factory.mktemp("home")
    with TestBroker(tmp_path_factory.mktemp("broker") / "data") as broker:
        environment = {
            **os.environ,
            "HOME": str(home),
            "PYRKLOG_BOOTSTRAP": broker.bootstrap,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "python", ROOT))),
        }
        environment["PYRKLOG_CONFIG"] = str(home / "config.toml")
        environment["EDITOR"] = environment["VISUAL"] = "true"
        environment.pop("XDG_DATA_HOME", None)
        with Commands(environment, home) as run:
            assert run(["topic", "create", "orders"]).exit_code == 0
            yield run


def check(result: Ended, line: list[str]) -> None:
    """It ended as commands end."""
    told = f"{line}: exit code {result.exit_code}\n{result.output}"
    assert not result.failure, (told, result.failure)
    assert "unexpected" not in result.output, told
    assert "Traceback" not in result.output, told
    assert result.exit_code in (*Exit, 74, 75, 78), told
    if result.exit_code == Exit.FAILED:
        assert "error[PK" in result.stderr, told


@pytest.mark.timeout(240 + EXAMPLES)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(line=command_lines())
@example(["topic", "create", "x", "--partitions=-5"])
@example(["topic", "create", "x", "--partitions=99999999"])
@example(["topic", "create", "x", "--replication-factor=-5"])
@example(["topic", "create", "x", "--replication-factor=100000"])
@example(["topic", "create", "a\udcff"])
@example(["topic", "alter", "orders", "--partitions=-5"])
@example(["topic", "alter", "orders", "--set=a\udcff=b"])
@example(["produce", "orders", "--partition=99999999999", "x"])
@example(["produce", "orders", "--header=\udcff=x", "x"])
@example(["consume", "orders", "--exit", "--partition=99999999999"])
@example(["group", "describe", "a\udcff"])
def test_an_argument_out_of_bounds_is_one_line(
    invoke: Callable[[list[str]], Ended], line: list[str]
) -> None:
    check(invoke(line), line)


def test_all_commands_are_tried() -> None:
    names = {name for name, _ in commands()}
    assert {"produce", "consume", "topic create", "cluster reassign apply", "dev start"} <= names
    assert set(ALWAYS) <= names


@pytest.mark.parametrize(
    "line",
    [
        ["topic", "create", "x", "-p", "0"],
        ["topic", "create", "x", "-r", "0"],
        ["topic", "create", "x", "-p", "-5"],
        ["topic", "create", "x", "-r", "-5"],
        ["topic", "alter", "orders", "-p", "-5"],
        ["produce", "orders", "-p", "99999999999", "x"],
        ["topic", "create", "a\udcff"],
    ],
)
def test_a_mistake_is_the_users(invoke: Callable[[list[str]], Ended], line: list[str]) -> None:
    result = invoke(line)
    assert result.exit_code == Exit.USAGE, result.output
