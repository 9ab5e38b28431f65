"""The page that a newcomer follows: its commands exist, and speak of what the unit says."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from pyrklog.cli.app import app
from pyrklog.deploy.files import KINDS, Settings

PAGE = Path(__file__).parents[3] / "docs" / "using" / "service.md"
PROGRAM = Path("/opt/pyrklog/bin/pyrklog")
"""Where the page installs it."""


def blocks() -> list[str]:
    found = re.findall(r"^ *```\n(.*?)^ *```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [block.replace("\\\n", " ") for block in found]


def commands() -> list[list[str]]:
    """Words behind ``pyrklog``, of blocks and of the text."""
    inline = re.findall(r"`([^`\n]+)`", PAGE.read_text())
    found = []
    for line in [*(line for block in blocks() for line in block.splitlines()), *inline]:
        words = shlex.split(line.partition(" | ")[0], comments=True)
        for place, word in enumerate(words[:-1]):
            # User, unit and image have the same name, and no command behind it.
            if word in ("pyrklog", str(PROGRAM)) and words[place + 1].isalpha():
                found.append(words[place + 1 :])
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_of_the_page_exists(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and getattr(command, "commands", None):
        assert rest[0] in command.commands
        command = command.commands[rest.pop(0)]
    options = {name for one in command.params for name in one.opts}
    assert {word.partition("=")[0] for word in rest if word.startswith("-")} <= options
    if command.name == "deploy" and rest:
        assert rest[0] in KINDS


def test_the_page_has_the_commands() -> None:
    deployed = {one[1] for one in commands() if one[0] == "deploy" and len(one) > 1}
    assert deployed == set(KINDS)


def test_the_page_makes_what_the_unit_needs() -> None:
    (unit,) = KINDS["systemd"].files(Settings(PROGRAM)).values()
    steps = blocks()[0]
    user = re.search(r"^User=(\w+)$", unit, re.MULTILINE)
    config = re.search(r"--config (\S+)", unit)
    assert user is not None
    assert config is not None
    made = [line for line in steps.splitlines() if "useradd" in line]
    assert [line.split()[-1] for line in made] == [user[1]]
    assert f"sudo tee {config[1]}" in steps
    assert f"sudo {PROGRAM} deploy systemd --to /etc/systemd/system" in steps
    assert f"venv {PROGRAM.parent.parent}\n" in steps


def test_the_page_tells_what_the_unit_says() -> None:
    (unit,) = KINDS["systemd"].files(Settings(PROGRAM)).values()
    table = PAGE.read_text().partition("| the unit says | why |")[2].partition("\n\n")[0]
    told = re.findall(r"`([A-Z]\w+=[\w-]+)`", table.replace("`RemoveIPC=yes`", ""))
    told.remove("ProcSubset=pid")
    assert len(told) > 5
    assert set(told) <= set(unit.splitlines())
