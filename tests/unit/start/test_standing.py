"""Log directories belong to a lone broker, or to one in a cluster."""

from pathlib import Path

import pytest

from pyrklog.errors import ConfigError
from pyrklog.metastore.database import DATABASE_NAME
from pyrklog.start.standing import (
    NOTE,
    UNSEEN,
    check_standing,
    forget_standing,
    is_member,
    note_standing,
)

ZOOKEEPER = "zk.example:2181/pyrklog"


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "d1", tmp_path / "d2"]
    for path in found:
        path.mkdir()
    return found


def check(log_dirs: list[Path], zookeeper: str | None) -> None:
    check_standing(log_dirs, log_dirs[0].parent / "meta", zookeeper)


def test_new_directories_fit_a_lone_broker_and_a_member(log_dirs: list[Path]) -> None:
    for paths in (log_dirs, [log_dirs[0] / "none"]):
        check(paths, None)
        check(paths, ZOOKEEPER)
    assert not is_member(log_dirs)
    assert [list(path.iterdir()) for path in log_dirs] == [[], []]


def test_lone_broker_refuses_directories_of_a_member(log_dirs: list[Path]) -> None:
    note_standing(log_dirs, ZOOKEEPER)
    check(log_dirs, ZOOKEEPER)
    assert is_member(log_dirs)
    with pytest.raises(ConfigError) as refused:
        check(log_dirs, None)
    assert ZOOKEEPER in str(refused.value)
    assert f"--zookeeper {ZOOKEEPER}" in str(refused.value.fix)
    for path in log_dirs:
        assert str(path / NOTE) in str(refused.value.fix)
        (path / NOTE).unlink()
    check(log_dirs, None)


@pytest.mark.parametrize(("before", "after"), [(ZOOKEEPER, None), (None, ZOOKEEPER)])
def test_note_in_any_log_directory_counts(
    log_dirs: list[Path], before: str | None, after: str | None
) -> None:
    """The first log directory decides where the metadata directory is."""
    note_standing(log_dirs[1:], before)
    check(log_dirs, before)
    with pytest.raises(ConfigError):
        check(log_dirs, after)


def test_a_cluster_may_move_to_another_address(log_dirs: list[Path]) -> None:
    note_standing(log_dirs, ZOOKEEPER)
    check(log_dirs, "other:2181/pyrklog")
    note_standing(log_dirs, "other:2181/pyrklog")
    with pytest.raises(ConfigError, match="other:2181"):
        check(log_dirs, None)
    assert [path.name for path in log_dirs[0].iterdir()] == [NOTE]


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"null", b"nonsense", b"\xff\xfe{"])
def test_empty_note_counts_as_a_members(log_dirs: list[Path], content: bytes) -> None:
    (log_dirs[0] / NOTE).write_bytes(content)
    with pytest.raises(ConfigError):
        check(log_dirs, None)
    check(log_dirs, ZOOKEEPER)
    note_standing(log_dirs, ZOOKEEPER)
    with pytest.raises(ConfigError, match=r"zk\.example"):
        check(log_dirs, None)


def test_member_refuses_directories_of_a_lone_broker(log_dirs: list[Path]) -> None:
    note_standing(log_dirs, None)
    check(log_dirs, None)
    assert not is_member(log_dirs)
    with pytest.raises(ConfigError, match="alone"):
        check(log_dirs, ZOOKEEPER)
    unseen = log_dirs[0] / UNSEEN
    unseen.touch()
    forget_standing(log_dirs)
    check(log_dirs, ZOOKEEPER)
    assert not unseen.exists()


def test_store_without_notes_belongs_to_a_lone_broker(log_dirs: list[Path]) -> None:
    store = log_dirs[0].parent / "meta" / DATABASE_NAME
    store.parent.mkdir()
    store.touch()
    check(log_dirs, None)
    with pytest.raises(ConfigError) as refused:
        check(log_dirs, ZOOKEEPER)
    assert str(store) in str(refused.value.fix)
    note_standing(log_dirs[:1], ZOOKEEPER)
    check(log_dirs, ZOOKEEPER)


def test_a_directory_that_cannot_be_written_to_stops_nothing(
    log_dirs: list[Path],
) -> None:
    (log_dirs[0] / (NOTE + ".tmp")).mkdir()  # not even root can write to it
    note_standing([log_dirs[0], log_dirs[1] / "none", log_dirs[1]], ZOOKEEPER)
    assert not (log_dirs[0] / NOTE).exists()
    assert (log_dirs[1] / NOTE).exists()
