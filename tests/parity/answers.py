"""Apache Kafka's answers, kept in files: one a module of the table, a line a row."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "answers"
Answers = Mapping[str, Mapping[str, Any]]
"""Scenario -> title of a row -> answer."""


def load(reference: str, module: str) -> Answers:
    """FileNotFoundError if they were not recorded."""
    found: Answers = json.loads(_path(reference, module).read_text())
    return found


def save(reference: str, module: str, answers: Answers) -> None:
    path = _path(reference, module)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(answers))


def _path(reference: str, module: str) -> Path:
    return _FOLDER / reference / f"{module}.json"


def _text(answers: Answers) -> str:
    scenarios = []
    for name, rows in answers.items():
        lines = [f"  {json.dumps(title)}: {json.dumps(one)}" for title, one in rows.items()]
        scenarios.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(scenarios) + "\n}\n"
