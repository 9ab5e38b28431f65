"""``-o`` of commands that tell what they have done."""

from __future__ import annotations

import json

import pytest
import typer

from pyrklog.cli.admin_common import say
from pyrklog.cli.deeds import is_document, tell_done, telling
from pyrklog.cli.options import OutputFormat, Settings

QUIET = Settings(quiet=True)


@telling
def deed(options: Settings, dry_run: bool = False, fails: bool = False) -> None:
    tell_done(options, "orders: created", kind="topic", name="orders", result="created")
    if fails:
        raise typer.Exit(9)
    say(options, "all is well")


def test_people_get_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    deed(Settings(), output=OutputFormat.TABLE)
    assert capsys.readouterr().out == "orders: created\nall is well\n"
    deed(QUIET, output=OutputFormat.TABLE)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("dry_run", [False, True])
def test_programs_get_items(capsys: pytest.CaptureFixture[str], dry_run: bool) -> None:
    deed(QUIET, dry_run=dry_run, output=OutputFormat.JSON)
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "pyrklog.done/1"
    assert told["items"] == [
        {"kind": "topic", "name": "orders", "result": "created", "done": not dry_run},
        {"kind": None, "name": None, "result": "all is well", "done": not dry_run},
    ]
    assert not is_document()


def test_what_was_done_before_a_failure_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        deed(QUIET, fails=True, output=OutputFormat.CSV)
    assert capsys.readouterr().out == "kind,name,result,done\ntopic,orders,created,yes\n"
