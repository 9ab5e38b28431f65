"""``pyrklog explain``: what an error's number means, and what to do."""

import re
import shutil
from collections.abc import Iterable
from difflib import get_close_matches

import typer

from pyrklog.base.explanations import PROBLEM_GROUPS, explanation_of, for_people
from pyrklog.base.problems import Problem, find
from pyrklog.cli.admin_common import show
from pyrklog.cli.failures import CliError, guarded
from pyrklog.cli.options import Output, OutputFormat, argument
from pyrklog.cli.output import Listing, columns

COLUMNS = columns("code, exit_code> EXIT, title PROBLEM, group*")
WIDTH_MAX = 100
_NUMBER = re.compile(r"(?:pk)?[0-9]{1,2}")


@guarded
def explain(
    text: str | None = argument("[NUMBER]", "Such as PK07, or a word to look for.", None),
    output: Output = OutputFormat.TABLE,
) -> None:
    """Explain an error's number: what it means, usual causes, what to do; without it, list all."""
    problem = None if text is None else find(text)
    if problem is None:
        show(Listing("pyrklog.errors/1", COLUMNS, _items(_wanted(text))), output)
    elif output in (OutputFormat.TABLE, OutputFormat.WIDE):
        width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
        typer.echo(for_people(problem, width))
    else:
        show(Listing("pyrklog.errors/1", COLUMNS, _items([problem])), output)


def _wanted(text: str | None) -> list[Problem]:
    """All problems, or those with this word. Raises :class:`CliError` if there is none."""
    if text is None:
        return list(Problem)
    word = text.strip().casefold()
    is_number = any(one.isdecimal() for one in word)
    found = [one for one in Problem if word and not is_number and word in _words(one)]
    if found:
        return found
    codes = [one.code for one in Problem]
    # Numbers that were given stay, so that one of this form was never another's.
    is_mistyped = is_number and not _NUMBER.fullmatch(word)
    near = get_close_matches(text.strip().upper(), codes, n=3, cutoff=0.7) if is_mistyped else []
    fix = f"did you mean {' or '.join(near)}?" if near else "`pyrklog explain` lists all"
    what = f"no error has the number {text!r}" if is_number else f"no error is about {text!r}"
    raise CliError(Problem.ARGUMENT_VALUE, what, fix)


def _words(problem: Problem) -> str:
    told = explanation_of(problem)
    return " ".join((problem.title, told.meaning, *told.causes, *told.remedies)).casefold()


def _items(problems: Iterable[Problem]) -> list[dict[str, object]]:
    groups = {problem: one.title for one in PROBLEM_GROUPS for problem in one.problems}
    return [
        {
            "code": one.code,
            "exit_code": int(one.exit),
            "title": one.title,
            "group": groups[one],
            "meaning": explanation_of(one).meaning,
            "causes": list(explanation_of(one).causes),
            "remedies": list(explanation_of(one).remedies),
        }
        for one in problems
    ]
