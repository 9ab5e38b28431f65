"""Commands on the pages are ones that `pyrklog` takes: their names, options and numbers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from pyrklog.cli.app import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(pyrklog [^`]+)`(?!`)")
PROGRAM = re.compile(r"(?:\S*/)?pyrklog$")
LANGUAGES = {"", "sh", "console"}
ENDS = {"|", "||", "&&", ";", ">", ">>", "<", "&", ")", "#"}
LEFT_OUT = re.compile(r"[\[\]…|]|\.\.\.$|\.\.\. ")
"""What stands for something else on a page: ``[TOPIC]``, ``a|b``, ``...``."""
PARTIAL = ("MissingParameter", "BadOptionUsage", "BadParameter")
"""What is said of a command without all of its arguments, or with BROKER for a number."""


def commands(line: str) -> Iterator[list[str]]:
    """The arguments of each call of `pyrklog` in a line of shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    words.commenters = "#"
    found: list[str] | None = None
    for word in words:
        if PROGRAM.match(word) and found is None:
            found = []
        elif found is not None and word in ENDS:
            yield found
            found = None
        elif found is not None:
            found.append(word)
    if found is not None:
        yield found


class Command(NamedTuple):
    """``is_whole``: in a block, to be typed as it is; in a sentence it may be a part."""

    page: str
    words: tuple[str, ...]
    is_whole: bool


def on_pages() -> Iterator[Command]:
    for page in PAGES:
        text = page.read_text()
        lines = [
            (line.removeprefix("$ "), True)
            for language, block in FENCED.findall(text)
            if language in LANGUAGES
            for line in re.sub(r"\\\n\s*", "", block).splitlines()
            if re.match(r"(?:\$ |sudo |\S+=\S+ |echo .*)*(?:\S*/)?pyrklog [a-z-]", line)
        ]
        sentences = FENCED.sub("", text).replace("\n", " ")
        lines += [(line, False) for line in INLINE.findall(sentences)]
        for line, is_whole in lines:
            if LEFT_OUT.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", line.partition(" | ")[0])):
                continue
            for given in commands(line):
                if given and "--help" not in given and not given[0].startswith("-"):
                    yield Command(page.name, tuple(given), is_whole)


FOUND = sorted(set(on_pages()))


def parse(command: Any, name: str, given: Sequence[str], parent: Any = None) -> None:
    """As `pyrklog` does, without running anything. Raises usage errors."""
    if not given and hasattr(command, "resolve_command"):
        return
    context = command.make_context(name, list(given), parent=parent)
    if hasattr(command, "resolve_command"):
        words = [*context._protected_args, *context.args]
        name, inner, rest = command.resolve_command(context, words)
        parse(inner, name, rest, context)


@pytest.mark.parametrize("found", FOUND, ids=lambda one: f"{one.page}: {' '.join(one.words)}")
def test_a_command_on_a_page_is_taken(found: Command) -> None:
    try:
        parse(typer.main.get_command(app), "pyrklog", found.words)
    except Exception as error:
        if found.is_whole or type(error).__name__ not in PARTIAL:
            raise


def test_many_commands_are_found() -> None:
    assert len(FOUND) > 100
    assert {one.words[0] for one in FOUND} >= {"bench", "cluster", "deploy", "mirror", "topic"}


def test_an_option_that_is_not_there_is_found() -> None:
    with pytest.raises(Exception, match="No such option: --nosuch"):
        parse(typer.main.get_command(app), "pyrklog", ["topic", "list", "--nosuch"])
