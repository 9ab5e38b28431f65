"""What ``pyrklog mirror verify`` lists, and its exit code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from pyrklog.cli import mirror as command
from pyrklog.cli.app import app
from pyrklog.mirror import status, verify
from pyrklog.mirror.state import Origin, Partition, Progress, State
from pyrklog.mirror.verify import Compared, Other, Verdict


class Fake(NamedTuple):
    """Of a side, or of a cluster's admin."""

    topic: str
    partition: int

    def options(self, _topics: Sequence[str]) -> dict[str, Any]:
        return {}


def listed(
    monkeypatch: pytest.MonkeyPatch,
    differing: Sequence[Partition],
    same: Sequence[Partition],
    others: dict[Partition, tuple[Other, str]],
) -> tuple[int, dict[Partition, tuple[str, str | None]]]:
    """The exit code; result and difference of each partition."""
    known = {key: Progress(f"east.{key[0]}", 5, 0, 5) for key in [*differing, *same, *others]}
    state = State(Origin("a", "b", "prefix"), known)
    sides: Any = {key: (Fake(*key), Fake(*key)) for key in [*differing, *same]}

    def compared(source: Any, target: Any, *, is_compacted: bool, keeps: bool) -> Verdict:
        assert not is_compacted
        assert not keeps
        difference = "records" if source in differing else ""
        name, number = source
        return Verdict(name, number, f"east.{target.topic}", difference=difference)

    admin = Fake("", 0)
    monkeypatch.setattr(command, "admins", lambda *_: (admin, admin))
    monkeypatch.setattr(status, "stored", lambda *_: state)
    monkeypatch.setattr(verify, "sides", lambda *_, keeps: Compared(sides, others))
    monkeypatch.setattr(verify, "compare", compared)
    places = ("--from", "east=h:1", "--to", "west=h:2", "-o", "json")
    done = CliRunner().invoke(app, ["mirror", "verify", *places])
    items = json.loads(done.stdout)["items"]
    found = {(one["topic"], one["partition"]): (one["result"], one["difference"]) for one in items}
    return done.exit_code, found


def test_a_partition_that_is_not_compared_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = {
        ("gone", 0): (Other.GONE, "source"),
        ("anew", 0): (Other.ANEW, "source"),
        ("led", 1): (Other.LEADERLESS, "source"),
        ("led", 2): (Other.LEADERLESS, "target"),
        ("lost", 0): (Other.GONE, "target"),
        ("made", 0): (Other.ANEW, "target"),
    }
    code, found = listed(monkeypatch, [("other", 0)], [("led", 0)], others)
    assert code == 8
    assert found == {
        ("gone", 0): ("gone at the source", None),
        ("anew", 0): ("created anew at the source", None),
        ("led", 0): ("same", None),
        ("led", 1): ("no leader at the source", None),
        ("led", 2): ("no leader at the target", None),
        ("lost", 0): ("differs", "the topic is gone at the target"),
        ("made", 0): ("differs", "the topic was created anew at the target"),
        ("other", 0): ("differs", "records"),
    }


@pytest.mark.parametrize("why", Other)
def test_a_partition_that_was_not_compared_is_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, why: Other
) -> None:
    found, _ = listed(monkeypatch, [], [("t", 0)], {("t", 1): (why, "source")})
    assert found == 9


def test_what_was_compared_and_is_the_same_is_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = listed(monkeypatch, [], [("t", 0), ("t", 1)], {})
    assert found == 0


def test_a_pattern_that_matches_no_copy_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty list would say that all is the same."""
    state = State(Origin("a", "b", "prefix"), {("orders", 0): Progress("east.orders", 5, 0, 5)})
    admin = Fake("", 0)
    monkeypatch.setattr(command, "admins", lambda *_: (admin, admin))
    monkeypatch.setattr(status, "stored", lambda *_: state)
    monkeypatch.setattr(verify, "sides", lambda *_: Compared({}, {}))
    places = ("--from", "east=h:1", "--to", "west=h:2")
    done = CliRunner().invoke(app, ["mirror", "verify", *places, "--topics", "order"])
    assert done.exit_code == 4
    assert "mirror east has no topic that matches --topics 'order'" in str(done.stderr)
    assert "orders" in done.stderr
