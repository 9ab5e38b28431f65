"""Output to terminals and files whose encoding is not UTF-8."""

import json
import os
import subprocess
import sys

import pytest


def pyrklog(encoding: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "pyrklog", *arguments],
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )


@pytest.mark.parametrize(
    ("encoding", "heading", "valid"),
    [
        ("ascii", "retention.ms ? topic ? long", "  valid     ? -1"),
        ("latin-1", "retention.ms · topic · long", "  valid     ? -1"),
        ("utf-8", "retention.ms · topic · long", "  valid     ≥ -1"),
    ],
)
def test_what_an_encoding_lacks_is_a_question_mark(encoding: str, heading: str, valid: str) -> None:
    done = pyrklog(encoding, "config", "explain", "retention.ms")
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode(encoding).splitlines()
    assert lines[0] == heading
    assert valid in lines


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_programs_get_every_character(encoding: str) -> None:
    done = pyrklog(encoding, "config", "explain", "retention.ms", "-o", "json")
    assert done.returncode == 0
    (item,) = json.loads(done.stdout.decode(encoding))["items"]
    assert item["valid"] == "≥ -1"


def test_a_start_is_told_on_any_terminal() -> None:
    done = pyrklog("ascii", "serve", "--check", "--set", "broker.rack=né")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith(b"configuration is good: ")
    done = pyrklog("ascii", "serve", "--print-config", "--set", "broker.rack=né")
    assert done.returncode == 0
    assert b"broker.rack=n?" in done.stdout
