"""A metadata directory is that of a broker which is alone, or of one in a cluster."""

from pathlib import Path

import pytest

from pyrklog.errors import ConfigError
from pyrklog.metastore.database import DATABASE_NAME
from pyrklog.standing import MEMBER_FILE, check_standing, note_member

ZOOKEEPER = "zk.example:2181/pyrklog"


def test_what_is_new_may_become_either(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none"):
        check_standing(place, None)
        check_standing(place, ZOOKEEPER)
    assert list(tmp_path.iterdir()) == []


def test_a_members_directory_is_refused_to_one_that_is_alone(tmp_path: Path) -> None:
    meta = tmp_path / "meta"
    note_member(meta, ZOOKEEPER)
    check_standing(meta, ZOOKEEPER)
    with pytest.raises(ConfigError) as refused:
        check_standing(meta, None)
    assert ZOOKEEPER in str(refused.value)
    assert f"--zookeeper {ZOOKEEPER}" in str(refused.value.fix)
    assert str(meta / MEMBER_FILE) in str(refused.value.fix)
    (meta / MEMBER_FILE).unlink()
    check_standing(meta, None)


def test_a_cluster_may_move_to_another_address(tmp_path: Path) -> None:
    note_member(tmp_path, ZOOKEEPER)
    check_standing(tmp_path, "other:2181/pyrklog")
    note_member(tmp_path, "other:2181/pyrklog")
    with pytest.raises(ConfigError, match="other:2181"):
        check_standing(tmp_path, None)
    assert [path.name for path in tmp_path.iterdir()] == [MEMBER_FILE]


@pytest.mark.parametrize("content", ["", "{}", "[1]", "null", "nonsense"])
def test_a_file_that_says_nothing_is_one_all_the_same(tmp_path: Path, content: str) -> None:
    (tmp_path / MEMBER_FILE).write_text(content)
    with pytest.raises(ConfigError):
        check_standing(tmp_path, None)


def test_the_directory_of_one_that_is_alone_is_refused_to_a_member(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).touch()
    check_standing(tmp_path, None)
    with pytest.raises(ConfigError, match="alone"):
        check_standing(tmp_path, ZOOKEEPER)
