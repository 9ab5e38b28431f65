"""``pyrklog log dump`` over made-up rows; Rust tests cover the rows themselves."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.dev.brokers import CONFIG_FILE
from pyrklog.dev.state import Cluster, Node, Place
from pyrklog.plane import offline

BATCH = {"kind": "batch", "position": 0, "base_offset": 5, "crc": 77, "valid": True}
RECORD = {"kind": "record", "offset": 5, "key": None, "value": b"\xff", "headers": [["h", b"x"]]}
DAMAGE = {"kind": "damage", "position": 61, "offset": 6, "message": "the CRC is wrong"}
LOG = "00000000000000000000.log"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A partition folder whose segment has rows, one of them damage."""
    for name in (LOG, "00000000000000000000.index", "partition.metadata", "notes.txt"):
        (tmp_path / name).touch()

    def dump_file(path: str, *, records: bool, verify: bool) -> Iterator[Mapping[str, Any]]:
        if path.endswith("notes.txt"):
            raise ValueError(f"{path} is none of ours")
        if path.endswith(".log"):
            yield BATCH
            if records:
                yield RECORD
            if verify:
                yield DAMAGE

    monkeypatch.setattr(offline, "dump_file", dump_file)
    return tmp_path


def dump(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    done = CliRunner().invoke(app, ["log", "dump", *map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_damage_is_located_and_ends_with_8(folder: Path) -> None:
    code, out, err = dump(folder / LOG)
    assert code == 8
    assert err.splitlines() == [
        f"damaged: {folder / LOG}: byte 61, offset 6: the CRC is wrong",
        "error[PK89]: 1 damage found",
    ]
    assert out.splitlines() == [
        str(folder / LOG),
        "POSITION  BASE_OFFSET  VALID",
        "       0            5    yes",
        "1 batch; 1 damaged",
        "",
    ]


def test_dump_without_verification_reports_no_damage(folder: Path) -> None:
    code, out, err = dump(folder / LOG, "--no-verify", "-o", "wide")
    assert (code, err) == (0, "")
    assert "CRC" in out
    assert "1 batch; no damage found" in out


def test_a_folder_stands_for_the_files_that_are_ours(folder: Path) -> None:
    _, out, _ = dump(folder)
    shown = [line for line in out.splitlines() if line.startswith(str(folder))]
    names = ["00000000000000000000.index", LOG, "partition.metadata"]
    assert shown == [str(folder / name) for name in names]


def test_records_are_lines_under_their_batch(folder: Path) -> None:
    _, out, _ = dump(folder / LOG, "--records")
    assert out.splitlines()[1:3] == [
        "batch position=0 base_offset=5 crc=77 valid=yes",
        '  record offset=5 key=- value={"base64": "/w=="} headers=[["h", "x"]]',
    ]


def test_no_record_writes_controls_to_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not CSI, as one character, nor the end of a line, nor what turns the direction of text."""
    evil = "\x9b2J\x1b[2J\x7f\u202e\u2028\u2066é"
    record = {**RECORD, "key": evil.encode(), "headers": [[evil, evil.encode()]]}
    damage = {**DAMAGE, "message": evil}
    monkeypatch.setattr(offline, "dump_file", lambda *_, **__: iter((record, damage)))
    code, out, err = dump(folder / LOG, "--records")
    assert code == 8
    told = '"\\u009b2J\\u001b[2J\\u007f\\u202e\\u2028\\u2066é"'
    assert f"key={told} " in out
    assert f"headers=[[{told}, {told}]]" in out
    assert r"offset 6: \x9b2J\x1b[2J\x7f\u202e\u2028\u2066é" in err
    for output in ("json", "jsonl", "yaml"):
        out += dump(folder / LOG, "--records", "-o", output)[1]
    assert all(one.isprintable() for one in (out + err).replace("\n", ""))
    lines = dump(folder / LOG, "--records", "-o", "jsonl")[1].splitlines()
    assert json.loads(lines[0])["key"] == evil


def test_programs_get_every_row_of_every_file_in_one_document(folder: Path) -> None:
    code, out, _ = dump(folder, folder / LOG, "-o", "json")
    assert code == 8
    items = json.loads(out)["items"]
    assert [(item["file"], item["kind"]) for item in items] == [
        (LOG, "batch"),
        (LOG, "damage"),
    ] * 2
    lines = dump(folder / LOG, "-o", "jsonl", "--records")[1].splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["batch", "record", "damage"]
    assert json.loads(lines[1])["value"] == {"base64": "/w=="}
    rows = list(csv.DictReader(io.StringIO(dump(folder / LOG, "-o", "csv")[1])))
    assert [row["position"] for row in rows] == ["0", "61"]


@pytest.mark.parametrize(
    ("name", "code", "complaint"),
    [("notes.txt", 2, "is none of ours"), ("missing.log", 4, "does not exist")],
)
def test_undumpable_paths_are_refused(folder: Path, name: str, code: int, complaint: str) -> None:
    got, _, err = dump(folder / name)
    assert got == code
    assert complaint in err


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    code, _, err = dump(tmp_path)
    assert code == 4
    assert "holds no log files" in err


def dev_replicas(home: Path, *numbers: int) -> list[Path]:
    """Replicas of t-0 on brokers of the cluster of ``pyrklog dev`` whose profile is in use."""
    place = Place(home / "pyrklog" / "dev", "default")
    place.folder.mkdir(parents=True)
    cluster = Cluster("default", 19092, [Node("broker", one) for one in (1, 2, 3)])
    place.save(cluster)
    found = []
    for node in cluster.brokers:
        data = place.node_folder(cluster, node) / "data"
        data.mkdir(parents=True)
        (data.parent / CONFIG_FILE).write_text(f"pyrklog.data.dir={data}\n")
        if node.number in numbers:
            found.append(data / "logs" / "t-0")
            found[-1].mkdir(parents=True)
            (found[-1] / LOG).touch()
    (home / "config.toml").write_text('profile = "dev"\n[profiles.dev]\ndev = "default"\n')
    return found


def test_a_partition_of_the_dev_cluster_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder / "home"
    two, three = dev_replicas(home, 2, 3)
    monkeypatch.setenv("XDG_DATA_HOME", str(home))
    monkeypatch.setenv("PYRKLOG_CONFIG", str(home / "config.toml"))
    code, out, err = dump("t:0", "--no-verify")
    assert (code, out.splitlines()[0]) == (0, str(two / LOG))
    assert err == f"note: this is {two}; t:0 is also {three}\n"
    # A directory that is named is the one that is meant.
    assert dump("t:0", "--data", home)[0] == 4
    assert dump("t:0", "--profile", "none")[0] == 4
