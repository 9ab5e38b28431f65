"""promises.md names tests; each of them exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NAMED = re.findall(
    r"`((?:tests|rust)/[\w/.]+)::(\w+)`", (ROOT / "docs/understanding/promises.md").read_text()
)


def test_there_are_promises() -> None:
    assert len(NAMED) > 20


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)))
def test_a_named_test_exists(path: str, name: str) -> None:
    source = (ROOT / path).read_text()
    definition = rf"^(?:async )?def {name}\(" if path.endswith(".py") else rf"^\s*fn {name}\("
    assert re.search(definition, source, re.MULTILINE), f"{path} has no {name}"


def test_every_promise_names_a_test() -> None:
    lines = (ROOT / "docs/understanding/promises.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|") and not line.startswith("|-")]
    promises = [row for row in rows if "held by" not in row]
    assert len(promises) > 20
    for row in promises:
        assert "::" in row.rsplit("|", 2)[1], row
