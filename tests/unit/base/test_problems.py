"""Numbered errors: what was given stays, what is there is used, explained and documented."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyrklog
from ci import errors
from pyrklog.base.exit_codes import Exit
from pyrklog.base.explanations import PROBLEM_GROUPS, explanation_of, for_people
from pyrklog.base.problems import Problem, find, lines
from pyrklog.errors import ConfigError, StartError, TemporaryError

PACKAGE = Path(pyrklog.__file__).parent
REGISTRY = [PACKAGE / "base" / "problems.py", *PACKAGE.glob("base/expla*.py")]
GIVEN = """
OPTION_VALUE=1:78 OPTION_UNKNOWN=2:78 OPTION_NOT_SERVED=3:78 OPTIONS_DISAGREE=4:78
OPTIONS_FILE=5:78 LISTENERS=6:78 PORT_TAKEN=7:75 ADDRESS_UNUSABLE=8:78 LISTEN_FAILED=9:74
DIRECTORY_IN_USE=10:75 DIRECTORY_UNUSABLE=11:78 DIRECTORIES_MISPLACED=12:78
OTHER_BROKERS_DATA=13:78 OTHER_CLUSTERS_DATA=14:78 FOREIGN_DATA=15:78 ZOOKEEPER_AWAY=16:75
ALONE_OR_IN_A_CLUSTER=17:78 BROKER_NUMBER_MISSING=18:78 BROKER_NUMBER_TAKEN=19:75
METADATA_DAMAGED=20:74 METADATA_DISK_FULL=21:74 DISK_FAILED=22:74 HANDOVER=23:78
REPORTER_MISSING=24:78 METADATA_LOST=25:74 NO_BROKER=30:3 BROKER_AWAY=31:3 NO_ANSWER=32:7
NOT_AUTHORIZED=33:6 NOT_SERVED=34:1 PLAIN_TEXT_ONLY=35:1 NO_COORDINATOR=36:3 BROKER_REFUSED=37:1
NOT_KAFKA=38:3 NOT_PYRKLOG=39:1 USAGE=40:2 ARGUMENT_VALUE=41:2 ARGUMENTS_DISAGREE=42:2
ARGUMENT_MISSING=43:2 CONFIRMATION_NEEDED=44:2 NOT_CONFIRMED=45:1 STOPPED=46:130
FILE_NOT_FOUND=47:4 FILE_UNREADABLE=48:1 FILE_CONTENT=49:2 NOT_WRITTEN=50:1 FILE_EXISTS=51:5
PROGRAM_MISSING=52:1 UNFORESEEN=53:1 PARTLY_DONE=54:9 PROFILE_NOT_FOUND=55:4 PROFILE_FILE=56:2
PROFILE_GUARD=57:6 PROFILE_EXISTS=58:5 PROFILE_NOT_EDITED=59:1 TOPIC_NOT_FOUND=60:4
PARTITION_NOT_FOUND=61:4 TOPIC_EXISTS=62:5 INTERNAL_TOPIC=63:2 TOPIC_REPLACED=64:1
OUTSIDE_THE_LOG=65:1 PARTITION_COUNT=66:1 OPTION_NOT_FOUND=67:4 OPTION_NOT_CHANGED=68:1
RECORD_REFUSED=69:1 GROUP_NOT_FOUND=70:4 GROUP_ACTIVE=71:1 NO_OFFSETS=72:4 NO_HISTORY=73:4
TRANSACTION_NOT_FOUND=74:4 TRANSACTION_IN_HAND=75:1 NOT_AS_PLANNED=76:8 BROKER_NOT_FOUND=77:4
REASSIGNMENT_REFUSED=78:1 REPLICAS_DO_NOT_FIT=79:2 NO_LEADER=80:7 MIRROR_STOPPED=81:1
MIRROR_ARGUMENTS=82:2 MIRROR_NOT_FOUND=83:4 NOT_REDRIVEN=84:1 PROGRESS_EXPIRED=85:1 NO_DATA=87:4
DATA_IN_USE=88:6 LOG_DAMAGED=89:8 CACHE_KEPT=90:1 NOT_EXPORTED=91:1 DEV_NOT_FOUND=93:4
DEV_NOT_RUNNING=94:1 DEV_EXISTS=95:5 DEV_NOT_STARTED=96:1 DEV_PORTS=97:1 DEV_STATE=98:1
BENCH_FAILED=99:1 WOULD_BREAK_A_MINIMUM=92:1 PROMOTION_REFUSED=86:8
SCHEMA_UNUSABLE=100:1 REGISTRY_AWAY=101:3 SCHEMA_NOT_FOUND=102:4 NOT_DECODED=103:1 NO_ROOM=104:8
"""
"""Name, number and exit code of each. Numbers are in scripts and in people's notes: a row is added,
none is changed."""
WITH_PROBLEM = {
    "CliError": None,
    "DevError": None,
    "StartError": Exit.DISK,
    "ConfigError": Exit.CONFIGURATION,
    "TemporaryError": Exit.TEMPORARY,
}
"""Exceptions whose first argument is a problem, and the exit code that all of it have."""


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if path not in REGISTRY:
            yield path, ast.parse(path.read_text())


def named(node: ast.AST) -> str | None:
    """``X`` of ``Problem.X``."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "Problem" else None
    return None


def test_numbers_and_exit_codes_stay() -> None:
    now = {f"{one.name}={one.number}:{int(one.exit)}" for one in Problem}
    assert now == set(GIVEN.split())


def test_no_two_have_the_same_number_or_title() -> None:
    assert max(Counter(one.number for one in Problem).values()) == 1
    assert max(Counter(one.title for one in Problem).values()) == 1
    assert [one.code for one in (Problem.PORT_TAKEN, Problem.BENCH_FAILED)] == ["PK07", "PK99"]


def test_each_is_used() -> None:
    used = {named(node) for _, tree in sources() for node in ast.walk(tree)}
    assert {one.name for one in Problem} - used == set()


def test_each_is_explained_once_in_the_order_of_the_numbers() -> None:
    explained = [one for group in PROBLEM_GROUPS for one in group.problems]
    assert explained == list(Problem)
    for problem in Problem:
        told = explanation_of(problem)
        assert told.meaning.endswith("."), problem
        assert told.causes, problem
        assert told.remedies, problem


def test_the_page_is_up_to_date() -> None:
    assert errors.page() == errors.PAGE.read_text(), "run: python ci/errors.py"


def test_each_error_that_a_user_sees_has_a_problem() -> None:
    found = Counter[str]()
    for path, tree in sources():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            name = node.func.id
            if name not in WITH_PROBLEM:
                continue
            first = node.args[0]
            member, wanted = named(first), WITH_PROBLEM[name]
            where = f"{path.relative_to(PACKAGE)}:{node.lineno}"
            assert member is not None or "problem" in ast.unparse(first).lower(), where
            if member is not None and wanted is not None:
                assert Problem[member].exit is wanted, where
            found[name] += 1
    assert min(found[name] for name in WITH_PROBLEM) > 10, found


def test_no_error_is_printed_without_its_number() -> None:
    bare = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.lower().startswith("error: ")
    ]
    assert bare == []


def test_an_error_is_what_why_and_fix() -> None:
    told = lines(Problem.PORT_TAKEN, "it\nbroke  twice.", "for\nthis.", "mend it")
    assert told == "error[PK07]: it broke twice\n  why: for this\n  fix: mend it"
    assert lines(Problem.UNFORESEEN, "it broke") == "error[PK53]: it broke"


@pytest.mark.parametrize("text", ["PK07", "pk7", "7", " 07 ", "error[PK07]", "[pk07]"])
def test_a_number_is_found_as_people_write_it(text: str) -> None:
    assert find(text) is Problem.PORT_TAKEN


@pytest.mark.parametrize("text", ["", "PK", "PK00", "PK999", "7a", "PORT", "PK-7", "\u0667"])
def test_other_texts_are_no_number(text: str) -> None:
    assert find(text) is None


def test_an_explanation_fits_its_width() -> None:
    for problem in Problem:
        page = for_people(problem, 72).splitlines()
        assert page[0].startswith(f"{problem.code}: {problem.title} (exit code ")
        assert [line for line in page[1:] if len(line) > 72] == []
        assert {"Usual causes", "What to do"} <= set(page)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError(Problem.LISTENERS, "x"), 78),
        (TemporaryError(Problem.PORT_TAKEN, "x"), 75),
        (StartError(Problem.DISK_FAILED, "x", fix="y"), 74),
    ],
)
def test_the_problem_decides_how_a_broker_ends(error: StartError, code: int) -> None:
    assert error.exit_code == code
