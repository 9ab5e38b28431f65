"""``pyrklog log verify`` and other commands, run against a test's cluster."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from pyrklog.cli.app import app
from tests.support.waiting import wait_until


def run(bootstrap: str, *arguments: str, code: int = 0) -> tuple[str, str]:
    """Standard output and error of a command that must end with ``code``."""
    done = CliRunner().invoke(app, ["-b", bootstrap, *arguments])
    assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}{done.exception}"
    return done.stdout, done.stderr


def verify(bootstrap: str, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    out, _ = run(bootstrap, "log", "verify", *arguments, "-o", "json", code=code)
    items: list[dict[str, Any]] = json.loads(out)["items"]
    return items


def assert_replicas_equal(bootstrap: str, topic: str, count: int) -> None:
    """Waits until the high watermarks of all replicas cover ``count`` records, and compares the
    replicas."""
    found: list[dict[str, Any]] = []

    def are_compared() -> bool:
        found[:] = verify(bootstrap, topic)
        return sum(int(item["end_offset"]) for item in found) >= count

    wait_until(are_compared, f"fewer than {count} records are on all replicas")
    assert [item["status"] for item in found] == ["equal"] * len(found)
