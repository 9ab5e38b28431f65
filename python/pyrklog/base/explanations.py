"""The explanations of all problems, in groups, for ``pyrklog explain`` and the documentation."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pyrklog.base.explained_clusters import (
    CLUSTER,
    DATA,
    DEV,
    GROUPS,
    MIRROR,
    TOPICS,
    TRANSACTIONS,
)
from pyrklog.base.explained_commands import ARGUMENTS, CONNECTION, PROFILES
from pyrklog.base.explained_schemas import SCHEMAS
from pyrklog.base.explained_start import START, Explanation
from pyrklog.base.problems import Problem


class ProblemGroup(NamedTuple):
    title: str
    problems: Mapping[Problem, Explanation]


PROBLEM_GROUPS = (
    ProblemGroup("Start and configuration of a broker", START),
    ProblemGroup("Connection", CONNECTION),
    ProblemGroup("Arguments and files", ARGUMENTS),
    ProblemGroup("Profiles", PROFILES),
    ProblemGroup("Topics, options and records", TOPICS),
    ProblemGroup("Groups", GROUPS),
    ProblemGroup("Transactions", TRANSACTIONS),
    ProblemGroup("Cluster", CLUSTER),
    ProblemGroup("Mirror and redrive", MIRROR),
    ProblemGroup("Data on disk", DATA),
    ProblemGroup("Dev clusters and measurements", DEV),
    ProblemGroup("Schemas", SCHEMAS),
)


def explanation_of(problem: Problem) -> Explanation:
    return next(one.problems[problem] for one in PROBLEM_GROUPS if problem in one.problems)


def for_people(problem: Problem, width: int) -> str:
    """What ``pyrklog explain`` prints."""
    told = explanation_of(problem)
    return "\n".join(
        (
            f"{problem.code}: {problem.title} (exit code {int(problem.exit)})",
            "",
            *_wrapped(told.meaning, width),
            "",
            "Usual causes",
            *_items(told.causes, width),
            "",
            "What to do",
            *_items(told.remedies, width),
        )
    )


def _items(texts: tuple[str, ...], width: int) -> Iterator[str]:
    for text in texts:
        first, *rest = _wrapped(text, width - 4)
        yield f"  - {first}"
        yield from (f"    {line}" for line in rest)


def _wrapped(text: str, width: int) -> list[str]:
    from textwrap import wrap

    return wrap(text, width, break_long_words=False, break_on_hyphens=False)
