"""Where the block cache lies."""

from pathlib import Path

import pytest

from pyrklog.plane import cache_place
from pyrklog.plane.cache_place import CachePlace, in_container


def test_a_directory_that_is_named_is_taken_also_in_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_place, "in_container", lambda: True)
    assert cache_place.cache_place(str(tmp_path), -1) == CachePlace(tmp_path, None)


def test_a_container_has_none_of_its_own_accord(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_place, "in_container", lambda: True)
    directory, reason = cache_place.cache_place(None, -1)
    assert directory is None
    assert reason is not None
    assert "pyrklog.cache.dir" in reason


def test_elsewhere_it_is_shared_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache_place, "in_container", lambda: False)
    monkeypatch.setattr(cache_place, "SHARED_MEMORY", tmp_path)
    assert cache_place.cache_place(None, -1) == CachePlace(tmp_path, None)


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    directory, reason = cache_place.cache_place(str(tmp_path / "none"), -1)
    assert directory is None
    assert reason == f"{tmp_path / 'none'} is not a directory"


def test_switched_off_it_is_nowhere_and_nothing_is_said(tmp_path: Path) -> None:
    assert cache_place.cache_place(str(tmp_path), 0) == CachePlace(None, None)


def test_a_process_namespace_tells_a_container(tmp_path: Path) -> None:
    link = tmp_path / "pid"
    link.symlink_to("pid:[4026531836]")
    assert not in_container(link)
    link.unlink()
    link.symlink_to("pid:[4026532200]")
    assert in_container(link)
    assert not in_container(tmp_path / "none")
