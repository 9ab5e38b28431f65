"""Completion: the names of a cluster, their cache, and what shells get."""

import json
import os
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pyrklog.cli import completing_names, completion
from pyrklog.cli.app import app
from pyrklog.cli.completing import Kind
from pyrklog.cli.completing_names import KEPT_S, cached_names, within
from pyrklog.cli.options import Settings
from pyrklog.protocol.group_admin import LIST_GROUPS, ListedGroup, ListGroupsResponse
from pyrklog.protocol.metadata import METADATA, MetadataBroker, MetadataResponse, MetadataTopic
from tests.support.deaf_peer import deaf_peer

ROOT = Path(__file__).parents[3]


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.delenv("PYRKLOG_BOOTSTRAP", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return dict(os.environ)


def frame(body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), 1) + body


def topics(*names: str, brokers: list[MetadataBroker] | None = None) -> bytes:
    found = [MetadataTopic(0, name, False) for name in names]
    response = MetadataResponse(0, brokers or [], "id", -1, found)
    return frame(METADATA.encode_response(response, METADATA.versions[0]))


@pytest.fixture
def silent() -> Iterator[str]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_topics_come_from_the_cluster_and_are_remembered(environ: dict[str, str]) -> None:
    with deaf_peer(topics("orders", "other", "__consumer_offsets", "__strimzi_canary")) as address:
        line = f"pyrklog topic describe -b {address} o"
        assert completion.lines(["bash", line, "o"], environ) == ["names", "orders", "other"]
    # Without a letter internal topics are left out; __strimzi_canary is none.
    line = f"pyrklog topic describe -b {address} "
    shown = completion.lines(["bash", line, ""], environ)
    assert shown == ["names", "__strimzi_canary", "orders", "other"]
    for word, found in (("or", ["orders"]), ("x", []), ("__c", ["__consumer_offsets"])):
        line = f"pyrklog topic describe -b {address} {word}"
        assert completion.lines(["bash", line, word], environ) == ["names", *found]
    [folder] = Path(environ["XDG_CACHE_HOME"]).glob("pyrklog/completion")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_groups_come_from_every_coordinator(environ: dict[str, str]) -> None:
    listed = ListGroupsResponse(groups=[ListedGroup("app:1", "consumer")])
    with deaf_peer(frame(LIST_GROUPS.encode_response(listed, 0))) as coordinator:
        host, _, port = coordinator.partition(":")
        brokers = [MetadataBroker(1, host, int(port)), MetadataBroker(2, host, 1)]
        with deaf_peer(topics(brokers=brokers)) as address:
            line = f"pyrklog -b {address} group describe app:"
            # Bash takes the colon for a separator.
            assert completion.lines(["bash", line, ":"], environ) == ["names", "1"]
    assert completion.lines(["fish", "-b", address, "group", "describe", "ap"], environ) == [
        "names",
        "app:1\t",
    ]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(b"\0" * 9), b""])
def test_a_broken_cluster_completes_nothing(answer: bytes, environ: dict[str, str]) -> None:
    with deaf_peer(answer) as address:
        found = completion.lines(["zsh", "topic", "describe", "-b", address, ""], environ)
    assert found == ["names"]
    assert not Path(environ["XDG_CACHE_HOME"]).exists(), "a failure is not remembered"


def test_a_cluster_that_is_silent_or_absent_completes_nothing(
    environ: dict[str, str], silent: str
) -> None:
    for address in (silent, "127.0.0.1:1", "host.invalid:1", "::1:1"):
        found = completion.lines(["zsh", "topic", "describe", "-b", address, ""], environ | {})
        assert found == ["names"]


def test_an_answer_that_is_late_is_none() -> None:
    def late() -> list[str]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.accept()
        return ["a"]

    def broken() -> list[str]:
        raise RuntimeError

    assert within(0.01, late) is None
    assert within(10.0, broken) is None
    assert within(10.0, lambda: []) == []


def test_names_are_asked_for_again_after_half_a_minute(environ: dict[str, str]) -> None:
    settings, now = Settings("h:1"), 1000.0
    answers = iter([["a"], ["b"], ["c"], ["d"]])

    def names(at_s: float, of: Settings = settings, kind: Kind = Kind.TOPICS) -> list[str]:
        return cached_names(kind, of, environ, lambda *_: next(answers), lambda: at_s)

    assert names(now) == ["a"]
    assert names(now + KEPT_S) == ["a"]
    assert names(now + KEPT_S + 1) == ["b"]
    assert names(now) == ["c"], "the clock was set back"
    assert names(now, Settings("h:1", {"sasl.username": "other"})) == ["d"]
    assert names(now, Settings("h:1", {"sasl.password": "other"})) == ["c"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[", b"5", b'{"at_s": "x", "names": []}', b'{"at_s": 1, "names": 5}', b"[" * 9999],
)
def test_a_damaged_cache_is_passed_over(content: bytes, environ: dict[str, str]) -> None:
    settings = Settings("h:1")
    assert cached_names(Kind.TOPICS, settings, environ, lambda *_: ["a"], lambda: 1.0) == ["a"]
    [file] = Path(environ["XDG_CACHE_HOME"]).rglob("*.json")
    file.write_bytes(content)
    assert cached_names(Kind.TOPICS, settings, environ, lambda *_: ["b"], lambda: 1.0) == ["b"]
    assert json.loads(file.read_text()) == {"at_s": 1.0, "names": ["b"]}


def test_without_a_place_for_the_cache_names_are_asked_for_each_time() -> None:
    answers = iter([["a"], ["b"]])
    for expected in (["a"], ["b"]):
        found = cached_names(
            Kind.TOPICS, Settings("h:1"), {"XDG_CACHE_HOME": "/dev/null"}, lambda *_: next(answers)
        )
        assert found == expected


def test_the_profile_of_the_line_says_which_cluster(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Settings] = []

    def ask(_: Kind, settings: Settings) -> list[str]:
        seen.append(settings)
        return ["orders"]

    monkeypatch.setattr(completing_names, "ask_cluster", ask)
    config = tmp_path / "config.toml"
    config.write_text(
        '[profiles.prod]\nbrokers = "p:1"\nproperties = {"security.protocol" = "SSL"}\n'
    )
    environ["PYRKLOG_CONFIG"] = str(config)
    words = ["zsh", "-p", "prod", "consume", "-X", "a=b", ""]
    assert completion.lines(words, environ) == ["names", "orders\t"]
    assert seen[0].bootstrap == "p:1"
    assert seen[0].properties == {"security.protocol": "SSL", "a": "b"}
    assert completion.lines(["zsh", "-p", "p"], environ) == ["names", "prod\t"]
    assert completion.lines(["zsh", "profile", "use", ""], environ) == [
        "names",
        "prod\t",
        "none\t",
    ]


def test_names_that_would_move_the_cursor_are_left_out(environ: dict[str, str]) -> None:
    with deaf_peer(topics("a\x1b[2J", "b\nc", "good")) as address:
        found = completion.lines(["zsh", "consume", "-b", address, ""], environ)
    assert found == ["names", "good\t"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", [""]),
        ("pyrklog ", ["pyrklog", ""]),
        ("pyrklog to", ["pyrklog", "to"]),
        ("pyrklog -p 'my d", ["pyrklog", "-p", "my d"]),
        ('pyrklog -p "my d', ["pyrklog", "-p", "my d"]),
        ("pyrklog -p my\\ ", ["pyrklog", "-p", "my "]),
        ("pyrklog a\\", ["pyrklog", "a\\"]),
    ],
)
def test_lines_of_bash_are_split_as_it_does(line: str, words: list[str]) -> None:
    assert completion.split(line) == words


def test_a_line_of_bash_with_an_equals_sign(environ: dict[str, str]) -> None:
    assert completion.lines(["bash", "pyrklog topic list --output=", "="], environ)[1:3] == [
        "table",
        "wide",
    ]
    line = "pyrklog topic list --output=js"
    assert completion.lines(["bash", line, "js"], environ) == ["names", "json", "jsonl"]
    assert completion.lines(["bash", "pyrklog log dump /tm", "/tm"], environ) == ["files"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_ask_this_program(shell: str) -> None:
    done = CliRunner().invoke(app, ["completion", shell])
    assert done.exit_code == 0
    assert f" __complete {shell} " in done.stdout
    assert "2>/dev/null" in done.stdout


def test_other_shells_are_refused() -> None:
    done = CliRunner().invoke(app, ["completion", "tcsh"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error[PK41]: completion takes bash, zsh, fish, not 'tcsh'\n"


def in_bash(script: str, folder: Path) -> list[str]:
    """Lines of a script in which ``pyrklog`` is completed."""
    program = folder / "pyrklog"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pyrklog "$@"\n')
    program.chmod(0o755)
    start = 'eval "$(pyrklog completion bash)"\n'
    start += (
        'try() { COMP_LINE=$1; COMP_POINT=${#1}; _pyrklog pyrklog "$2"; echo "${COMPREPLY[@]}"; }\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", start + script],
        env={
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "python", ROOT))),
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes_and_says_nothing_of_a_broken_cluster(
    environ: dict[str, str], tmp_path: Path
) -> None:
    with deaf_peer(topics("orders", "a b$(touch x)")) as address:
        script = f"""
        try "pyrklog topic des" des
        try "pyrklog -b {address} topic describe or" or
        try "pyrklog -b {address} topic describe a" a
        try "pyrklog -b 127.0.0.1:1 topic describe or" or
        try "pyrklog -p nope topic describe or" or
        try "pyrklog topic list --output=js" js
        try "pyrklog nope " ""
        """
        assert in_bash(script, tmp_path) == [
            "describe",
            "orders",
            r"a\ b\$\(touch\ x\)",
            "",
            "",
            "json jsonl",
            "",
        ]
