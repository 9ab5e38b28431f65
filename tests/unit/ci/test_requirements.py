"""``make`` installs what pyproject.toml declares."""

import tomllib
from pathlib import Path

import pytest

from ci.requirements import requirements

PROJECT: dict[str, object] = {
    "dependencies": ["trio>=1"],
    "optional-dependencies": {
        "spark": ["pyspark==4"],
        "demo": ["pyrklog[spark]", "pandas"],
        "dev": ["pyrklog[demo, spark]", "ruff"],
    },
}


def test_own_extras_are_expanded() -> None:
    assert requirements(PROJECT, []) == ["trio>=1"]
    assert requirements(PROJECT, ["demo"]) == ["pandas", "pyspark==4", "trio>=1"]
    assert requirements(PROJECT, ["dev"]) == ["pandas", "pyspark==4", "ruff", "trio>=1"]


def test_an_unknown_extra_is_an_error() -> None:
    with pytest.raises(KeyError):
        requirements(PROJECT, ["nope"])


def test_the_broker_needs_neither_spark_nor_test_tools() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    needed = requirements(tomllib.loads(text)["project"], [])
    assert not [one for one in needed if one.startswith(("pyspark", "pytest", "maturin"))]
