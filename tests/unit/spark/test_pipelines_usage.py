"""The command line of the pipelines: what it says of each, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pyrklog.spark import pipelines
from pyrklog.spark.pipelines.__main__ import PROGRAMS, missing, parser

FOLDER = Path(pipelines.__file__).parent
WHERE = ["windows", "h:1", "folder"]


def test_every_program_is_told_with_its_topics() -> None:
    told = parser().format_help()
    for name, about in PROGRAMS.items():
        assert f"  {name:<11} {about}\n" in told
        source = (FOLDER / f"{name}.py").read_text()
        if name == "groups":
            source += (FOLDER / "files.py").read_text()
        topics = re.findall(r'run\.(?:rows|stream)\(\s*"([^"]+)"|"tables?", "([^"]+)"', source)
        read = {topic or table for topic, table in topics}
        assert read, name
        reads = about.partition(": ")[2].partition(" -> ")[0]
        assert read == set(reads.split(", "))
    assert {one.stem for one in FOLDER.glob("*.py") if "def start(" in one.read_text()} == set(
        PROGRAMS
    )


@pytest.mark.parametrize(
    ("text", "expected"), [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000)]
)
def test_times_are_read(text: str, expected: int) -> None:
    assert parser().parse_args([*WHERE, "--every", text]).every == expected
    assert parser().parse_args(WHERE).every is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--every", "often"], "argument --every: 'often' is no time, such as 500ms, 10s,"),
        (["--every", "10"], "argument --every: '10' is no time"),
        (["--every=-1s"], "argument --every: '-1s' is no time"),
        (["--records", "0"], "argument --records: '0' is not a whole number of 1 or more"),
        (["--records", "x"], "argument --records: 'x' is not a whole number of 1 or more"),
        (["--mirror", "there"], "argument --mirror: 'there' is not HOST:PORT"),
    ],
)
def test_what_is_no_time_or_number_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*WHERE, *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_broker_is_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser().parse_args(["windows", "h:1, i:2", "folder"]).bootstrap == "h:1,i:2"
    with pytest.raises(SystemExit):
        parser().parse_args(["windows", "localhost", "folder"])
    assert "argument bootstrap: 'localhost' is not HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "absent", "told"),
    [
        ("windows", "pyspark", 'windows needs pyspark: pip install "pyrklog[spark]"'),
        ("windows", "psycopg", None),
        ("upserts", "psycopg", 'upserts needs psycopg: pip install "pyrklog[postgres]"'),
        ("lake", "deltalake", 'lake needs deltalake: pip install "pyrklog[delta]"'),
        ("silences", "google.protobuf", 'silences needs google.protobuf: pip install "pyrklog[st'),
    ],
)
def test_what_is_not_installed_is_told(name: str, absent: str, told: str | None) -> None:
    def is_there(module: str) -> object:
        if module != absent:
            return object()
        if "." in module:
            raise ModuleNotFoundError(module)
        return None

    found = missing(name, is_there)
    assert found is None if told is None else (found or "").startswith(told)
