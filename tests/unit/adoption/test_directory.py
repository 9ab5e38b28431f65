"""Kafka's metadata folder and partition folders: files in, state out."""

from pathlib import Path

import pytest

from pyrklog.adoption.batches import encode_values, read_values
from pyrklog.adoption.directory import (
    METADATA_FOLDER,
    compacted_topics,
    newest_epochs,
    read_kraft,
)
from pyrklog.adoption.export import ExportedTopic, encode_bootstrap
from pyrklog.errors import ConfigError
from pyrklog.plane.seam import FoundPartition

A, B = b"a" * 16, b"b" * 16
REMOVE_A = b"\x01\x09\x00" + A + b"\x00"


def snapshot(*topics: tuple[str, bytes]) -> bytes:
    exported = [ExportedTopic(name, topic_id, {0: 3}, {}) for name, topic_id in topics]
    return encode_bootstrap(1, exported, 0, lambda _topic, _index: bytes(16), 9)


def records(data: bytes) -> list[bytes]:
    return [value.data for value in read_values(data, 0, torn_end=False)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / METADATA_FOLDER
    path.mkdir()
    return path


def names(log_dir: Path) -> set[str]:
    state = read_kraft([log_dir])
    assert state is not None
    return set(state.by_name())


def test_directory_without_metadata_gives_none(tmp_path: Path) -> None:
    assert read_kraft([tmp_path]) is None
    (tmp_path / "bootstrap.checkpoint").write_bytes(snapshot())  # as kafka-storage format leaves it
    assert read_kraft([tmp_path]) is None


def test_bootstrap_checkpoint_of_an_export_is_read(tmp_path: Path) -> None:
    (tmp_path / "bootstrap.checkpoint").write_bytes(snapshot(("t", A)))
    state = read_kraft([tmp_path])
    assert state is not None
    assert state.by_name().keys() == {"t"}
    assert state.is_own_export


def test_topics_that_were_compacted(tmp_path: Path) -> None:
    for name, text in (("a", "0\n2\nt 0 5\nu 3 0\n"), ("b", "0\n1\nv 0 7\n\n"), ("c", "0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cleaner-offset-checkpoint").write_text(text)
    (tmp_path / "d").mkdir()
    found = compacted_topics([tmp_path / name for name in "abcd"])
    assert found == {"t", "u", "v"}


def test_the_newest_snapshot_and_what_follows_it(folder: Path) -> None:
    (folder / f"{4:020}-{1:010}.checkpoint").write_bytes(snapshot(("older", b"o" * 16)))
    (folder / f"{9:020}-{2:010}.checkpoint").write_bytes(snapshot(("t", A)))
    stale = encode_values([b"not even a record"] * 9, 0, 5)  # offsets 0 to 8: in the snapshot
    later = records(snapshot(("u", B)))
    (folder / f"{0:020}.log").write_bytes(stale + encode_values(later, 9, 5))
    end = 9 + len(later)
    (folder / f"{end:020}.log").write_bytes(encode_values([REMOVE_A], end, 5))
    assert names(folder.parent) == {"u"}


def test_torn_end_is_accepted_and_a_gap_is_damage(folder: Path) -> None:
    first = encode_values(records(snapshot(("t", A))), 0, 5)
    torn = encode_values([REMOVE_A], 3, 5)[:-1]
    (folder / f"{0:020}.log").write_bytes(first + torn)
    assert names(folder.parent) == {"t"}
    (folder / f"{3:020}.log").write_bytes(b"")
    with pytest.raises(ConfigError, match="the file ends within a batch"):
        read_kraft([folder.parent])


def test_a_log_that_begins_too_late(folder: Path) -> None:
    (folder / f"{7:020}.log").write_bytes(b"")
    with pytest.raises(ConfigError, match="begins at offset 7, behind offset 0"):
        read_kraft([folder.parent])


def test_damage_names_the_file_and_a_way_out(folder: Path) -> None:
    damaged = bytearray(snapshot(("t", A)))
    damaged[-30] ^= 1
    path = folder / f"{9:020}-{2:010}.checkpoint"
    path.write_bytes(damaged)
    with pytest.raises(ConfigError, match=r"checkpoint: byte \d+: the checksum") as failed:
        read_kraft([folder.parent])
    assert METADATA_FOLDER in (failed.value.fix or "")


@pytest.mark.parametrize(
    ("content", "epoch"),
    [("0\n2\n0 0\n5 17\n", 5), ("0\n0\n", None), ("garbage", None), ("0\n1\nx y\n", None)],
)
def test_leader_epochs_of_folders_are_read(tmp_path: Path, content: str, epoch: int | None) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text(content)
    found = [FoundPartition("t", 0, A, str(tmp_path)), FoundPartition("t", 1, A, str(tmp_path))]
    assert newest_epochs(found).get(("t", 0)) == epoch
    assert ("t", 1) not in newest_epochs(found)
