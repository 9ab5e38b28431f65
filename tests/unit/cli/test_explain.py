"""``pyrklog explain``, and the form of errors: on a terminal, as JSON, of a wrong command line."""

import json
import sys

import pytest
import typer
from typer.testing import CliRunner

from pyrklog.base.problems import Problem
from pyrklog.cli.app import app
from pyrklog.cli.failures import CliError, guarded
from pyrklog.cli.options import OutputFormat


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("text", ["PK07", "pk7", "7"])
def test_a_number_is_explained(text: str) -> None:
    code, out, err = invoke("explain", text)
    assert (code, err) == (0, "")
    assert out.startswith("PK07: another program has the port (exit code 75)\n\n")
    assert "\nUsual causes\n  - another broker" in out
    assert "\nWhat to do\n  - stop the other program" in out


def test_without_a_number_all_are_listed() -> None:
    code, out, _ = invoke("explain")
    assert code == 0
    assert len(out.splitlines()) == 1 + len(Problem)
    assert "PK60      4  there is no such topic\n" in out
    assert invoke("explain", "-o", "name")[1].split() == [one.code for one in Problem]


def test_one_is_also_json() -> None:
    (item,) = json.loads(invoke("explain", "PK07", "-o", "json")[1])["items"]
    assert (item["code"], item["exit_code"]) == ("PK07", 75)
    assert item["group"] == "Start and configuration of a broker"
    assert all(item[key] for key in ("title", "meaning", "causes", "remedies"))


def test_a_word_lists_the_errors_about_it() -> None:
    code, out, _ = invoke("explain", "rebalances", "-o", "name")
    assert (code, out) == (0, "PK73\n")
    assert {"PK16", "PK19"} <= set(invoke("explain", "zookeeper", "-o", "name")[1].split())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("PK700", "no error has the number 'PK700'\n  fix: did you mean PK70"),
        ("PK29", "no error has the number 'PK29'\n  fix: `pyrklog explain` lists all\n"),
        ("PKO7", "no error has the number 'PKO7'\n  fix: did you mean PK"),
        ("123456", "no error has the number '123456'\n  fix: `pyrklog explain` lists all\n"),
        ("xyzzy", "no error is about 'xyzzy'\n  fix: `pyrklog explain` lists all\n"),
        ("", "no error is about ''\n  fix: `pyrklog explain` lists all\n"),
    ],
)
def test_what_is_no_number_is_told(text: str, said: str) -> None:
    code, out, err = invoke("explain", text)
    assert (code, out) == (2, "")
    assert err.startswith(f"error[PK41]: {said}")


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ("topic list --nonsense", "PK40"),
        ("topic nonsense", "PK40"),
        ("nonsense", "PK40"),
        ("serve --nonsense", "PK40"),
        ("serve a b", "PK40"),
        ("topic create a -p x", "PK41"),
        ("topic list -o nonsense", "PK41"),
        ("topic create", "PK43"),
        ("topic add-partitions a", "PK43"),
    ],
)
def test_a_wrong_command_line_has_a_number(arguments: str, number: str) -> None:
    code, out, err = invoke(*arguments.split())
    assert (code, out) == (2, "")
    usage, hint, empty, error, *_ = err.splitlines()
    assert usage.startswith("Usage: ")
    assert hint.startswith("Try '")
    assert hint.endswith(" --help' for help.")
    assert empty == ""
    assert error.startswith(f"error[{number}]: ")


def test_an_option_without_its_value_has_a_number() -> None:
    code, out, err = invoke("topic", "list", "a", "--limit")
    assert (code, out) == (2, "")
    assert err == "error[PK40]: Option '--limit' requires an argument\n"


def test_the_help_of_a_group_is_no_error() -> None:
    told = "".join(invoke("topic")[1:])
    assert "Usage: " in told
    assert "error[" not in told


@guarded
def fail(output: OutputFormat = OutputFormat.TABLE) -> None:
    raise CliError(Problem.TOPIC_NOT_FOUND, f"no {output}.", "mend it", why="it is\ngone")


@pytest.mark.parametrize("form", [OutputFormat.JSON, OutputFormat.JSONL])
def test_an_error_beside_json_is_json(
    form: OutputFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        fail(output=form)
    assert ended.value.exit_code == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert json.loads(told.err) == {
        "error": {
            "code": "PK60",
            "title": "there is no such topic",
            "what": f"no {form}",
            "why": "it is gone",
            "fix": "mend it",
        }
    }


def test_an_error_beside_a_table_is_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = "error[PK60]: no table\n  why: it is gone\n  fix: mend it\n"
    for is_terminal, more in ((False, ""), (True, "  see: pyrklog explain PK60\n")):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        with pytest.raises(typer.Exit):
            fail(output=OutputFormat.TABLE)
        assert capsys.readouterr().err == plain + more
