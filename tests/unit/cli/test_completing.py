"""What may stand at the end of a command line."""

from typing import Any

import pytest
import typer

from pyrklog.cli.app import app
from pyrklog.cli.completing import Kind, question

ROOT: Any = typer.main.get_command(app)


def asked(line: str) -> Any:
    *words, last = line.split(" ")
    return question(ROOT, words, last)


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("", {"topic", "serve", "completion"}),
        ("to", {"topic"}),
        ("topic ", {"list", "create"}),
        ("-b h:1 topic ", {"list"}),
        ("--timeout=3 -q topic ", {"list"}),
        ("cluster txns ", {"list", "abort"}),
        ("topic list -", {"-o", "--output", "--help", "--regex"}),
        ("topic list -o ", {"table", "json", "name"}),
        ("topic list --output ", {"table", "json", "name"}),
        ("topic list --output=js", {"json"}),
        ("topic list -q -o ", {"table"}),
        ("produce t -z ", {"gzip", "zstd"}),
        ("profile import ", {"rpk", "kaf"}),
        ("completion ", {"bash", "zsh", "fish"}),
        ("config describe ", {"topic", "broker"}),
        ("group seek g --to ", {"start", "end"}),
    ],
)
def test_words(line: str, some: set[str]) -> None:
    found = asked(line)
    assert found.kind is Kind.WORDS
    assert some <= set(found.words)


def test_hidden_commands_and_options_are_not_proposed() -> None:
    assert "--verbose" not in asked("topic list -").words
    assert "--verbose" in asked("produce t -").words


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("topic describe ", Kind.TOPICS),
        ("topic describe a b ", Kind.TOPICS),
        ("topic describe -- ", Kind.TOPICS),
        ("topic trim ", Kind.TOPICS),
        ("topic copy ", Kind.TOPICS),
        ("topic copy a ", Kind.TOPICS),
        ("topic copy a b ", Kind.NOTHING),
        ("topic skew ", Kind.TOPICS),
        ("produce ", Kind.TOPICS),
        ("produce t ", Kind.NOTHING),
        ("consume ", Kind.TOPICS),
        ("consume t -n ", Kind.NOTHING),
        ("consume t -n5 ", Kind.TOPICS),
        ("consume t -g ", Kind.GROUPS),
        ("consume t -eg ", Kind.GROUPS),
        ("consume t --group=", Kind.GROUPS),
        ("group describe ", Kind.GROUPS),
        ("group seek g -t ", Kind.TOPICS),
        ("group seek g -t a,", Kind.NOTHING),
        ("group seek g ", Kind.NOTHING),
        ("cluster txns abort --partition ", Kind.TOPICS),
        ("config describe topic ", Kind.TOPICS),
        ("config describe broker ", Kind.NOTHING),
        ("config alter topic a --set ", Kind.TOPIC_OPTIONS),
        ("config alter broker 1 --set ", Kind.BROKER_OPTIONS),
        ("config alter topic a --set retention.ms=", Kind.NOTHING),
        ("config explain ", Kind.BROKER_OPTIONS),
        ("topic create a -c ", Kind.TOPIC_OPTIONS),
        ("topic list -X ", Kind.NOTHING),
        ("produce t -H ", Kind.NOTHING),
        ("serve --set ", Kind.BROKER_OPTIONS),
        ("serve --config ", Kind.FILES),
        ("log dump ", Kind.FILES),
        ("-p ", Kind.PROFILES),
        ("topic list --profile ", Kind.PROFILES),
        ("profile use ", Kind.PROFILES),
        ("profile create ", Kind.NOTHING),
        ("nope ", Kind.NOTHING),
        ("topic nope ", Kind.NOTHING),
        ("topic list --nope=", Kind.NOTHING),
        ("topic list --internal=", Kind.NOTHING),
        ("topic list -b ", Kind.NOTHING),
    ],
)
def test_kinds(line: str, kind: Kind) -> None:
    assert asked(line).kind is kind


def test_what_was_given_says_which_cluster() -> None:
    found = asked("-b one:1 topic describe -X a=b --bootstrap-server=two:2 -X c=d -qb three:3 x")
    assert found.given == {"bootstrap": ["one:1", "two:2", "three:3"], "properties": ["a=b", "c=d"]}
    assert found.start == "x"


def test_a_proposal_keeps_what_is_before_it() -> None:
    found = asked("topic list --output=js")
    assert (found.before, found.start) == ("--output=", "js")
