"""What records of internal topics say, in ``log dump``."""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.plane import offline
from pyrklog.protocol import group_records as groups
from pyrklog.protocol import transaction_records as transactions

LOG = "00000000000000000000.log"
OFFSET = (
    groups.encode_offset_key(groups.OffsetKey("billing", "orders", 3)),
    groups.encode_offset_value(groups.OffsetValue(17, 4, "note", 1_000)),
)
ID = transactions.encode_transaction_key(transactions.TransactionKey("pay-1"))


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def group_value(protocol_type: str = "consumer") -> bytes:
    subscription = struct.pack(">hi", 1, 1) + text("orders") + struct.pack(">i", -1)
    assignment = struct.pack(">hi", 1, 1) + text("orders") + struct.pack(">iiii", 2, 0, 3, -1)
    member = groups.MemberValue(
        "m-1", None, "app", "/10.0.0.5", 60_000, 10_000, subscription, assignment
    )
    return groups.encode_group_value(
        groups.GroupValue(protocol_type, 5, "range", "m-1", 2_000, [member])
    )


def transaction_value(status: int) -> bytes:
    parts = [transactions.PartitionsValue("orders", [0, 2])] if status else None
    return transactions.encode_transaction_value(
        transactions.TransactionValue(9, 1, 60_000, status, parts, 1_000, 900)
    )


def dump(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    records: Sequence[Mapping[str, Any]],
    *options: str,
    code: int = 0,
) -> str:
    def dump_file(_path: str, *, records: bool, verify: bool) -> Iterator[Mapping[str, Any]]:
        yield {"kind": "batch", "position": 0}
        yield from written

    written = [{"kind": "record", "offset": n, **one} for n, one in enumerate(records)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG).touch()
    monkeypatch.setattr(offline, "dump_file", dump_file)
    arguments = ["log", "dump", str(folder / LOG), "--records", *options]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    return done.output


def pair(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return {"key": key, "value": value}


def decoded(told: str) -> list[Any]:
    rows = [json.loads(line) for line in told.splitlines()]
    return [row.get("decoded") for row in rows if row["kind"] == "record"]


def test_offsets_and_groups_are_told_by_the_folders_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group = groups.encode_group_key(groups.GroupKey("billing"))
    records = [pair(*OFFSET), pair(OFFSET[0], None), pair(group, group_value()), pair(group, None)]
    told = dump(monkeypatch, tmp_path / "__consumer_offsets-7", records, "-o", "jsonl")
    place = {"group": "billing", "topic": "orders", "partition": 3}
    value = {"offset": 17, "leader_epoch": 4, "metadata": "note", "commit_timestamp": 1_000}
    first, second, third, last = decoded(told)
    assert first == {"key": place, "value": {**value, "expire_timestamp": -1}}
    assert second == {"key": place, "value": None}
    assert last == {"key": {"group": "billing"}, "value": None}
    [member] = third["value"].pop("members")
    assert third["value"] == {
        "protocol_type": "consumer",
        "generation": 5,
        "protocol": "range",
        "leader": "m-1",
        "current_state_timestamp": 2_000,
    }
    assert (member["subscription"], member["assignment"]) == (["orders"], {"orders": [0, 3]})
    # What programs had before is still there.
    assert json.loads(told.splitlines()[1])["value"]


def test_members_that_are_no_consumers_keep_their_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group = groups.encode_group_key(groups.GroupKey("connect"))
    records = [pair(group, group_value("connect"))]
    told = dump(monkeypatch, tmp_path / "__consumer_offsets-7", records, "-o", "jsonl")
    [one] = decoded(told)
    [member] = one["value"]["members"]
    assert member["subscription"].keys() == member["assignment"].keys() == {"base64"}


def test_states_of_transactions_have_their_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    records = [pair(ID, transaction_value(n)) for n in (0, 2)]
    folder = tmp_path / "__transaction_state-1"
    empty, committed = decoded(dump(monkeypatch, folder, records, "-o", "jsonl"))
    assert empty["key"] == committed["key"] == {"transactional_id": "pay-1"}
    assert (empty["value"]["state"], empty["value"]["partitions"]) == ("Empty", {})
    assert committed["value"]["state"] == "PrepareCommit"
    assert committed["value"]["partitions"] == {"orders": [0, 2]}


def test_a_line_has_what_a_record_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = dump(monkeypatch, tmp_path / "__consumer_offsets-7", [pair(*OFFSET)])
    [line] = [line for line in told.splitlines() if line.startswith("  record")]
    assert 'key={"group": "billing", "topic": "orders", "partition": 3}' in line
    assert 'value={"offset": 17, ' in line
    assert "decoded" not in line


def test_the_kind_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copied, home = tmp_path / "copied", tmp_path / "__consumer_offsets-7"
    lines = "-o", "jsonl"
    assert decoded(dump(monkeypatch, copied, [pair(*OFFSET)], *lines)) == [None]
    [one] = decoded(dump(monkeypatch, copied, [pair(*OFFSET)], "--decode", "offsets", *lines))
    assert one["value"]["offset"] == 17
    told = dump(monkeypatch, home, [pair(*OFFSET)], "--decode", "raw", *lines)
    assert decoded(told) == [None]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--records", "--decode", "acls"], "--decode 'acls' is unknown"),
        (["--records", "--decode", "acls"], "one of offsets, transactions, raw"),
        (["--decode", "offsets"], "--decode needs --records"),
    ],
)
def test_a_wrong_kind_is_refused_before_a_file_is_shown(
    tmp_path: Path, options: Sequence[str], told: str
) -> None:
    (tmp_path / LOG).touch()
    done = CliRunner().invoke(app, ["log", "dump", str(tmp_path), *options])
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


@pytest.mark.parametrize(
    "record",
    [
        pair(None, b"x"),
        pair(b"\x00", b"x"),
        pair(struct.pack(">h", 99) + b"later", b"x"),
        pair(OFFSET[0], b"\x00\x03\x00"),
        {**pair(OFFSET[0], OFFSET[1]), "control_type": "commit"},
    ],
)
def test_what_cannot_be_read_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record: Mapping[str, Any]
) -> None:
    told = dump(monkeypatch, tmp_path / "__consumer_offsets-7", [record], "-o", "jsonl")
    assert decoded(told) == [None]
