"""The place of the block cache."""

from pathlib import Path

import pytest

from pyrklog.errors import ConfigError
from pyrklog.plane import cache_place
from pyrklog.plane.cache_place import CachePlace, in_container


def test_named_cache_directory_is_used_in_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_place, "in_container", lambda: True)
    assert cache_place.cache_place(str(tmp_path), -1) == CachePlace(tmp_path, None)


def test_container_has_no_block_cache_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_place, "in_container", lambda: True)
    directory, reason = cache_place.cache_place(None, -1)
    assert directory is None
    assert reason is not None
    assert "pyrklog.cache.dir" in reason


def test_block_cache_is_in_shared_memory_by_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache_place, "in_container", lambda: False)
    monkeypatch.setattr(cache_place, "SHARED_MEMORY", tmp_path)
    assert cache_place.cache_place(None, -1) == CachePlace(tmp_path, None)


def test_missing_shared_memory_gives_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cache_place, "in_container", lambda: False)
    monkeypatch.setattr(cache_place, "SHARED_MEMORY", tmp_path / "none")
    directory, reason = cache_place.cache_place(None, -1)
    assert directory is None
    assert reason == f"{tmp_path / 'none'} is not a directory"


def test_a_named_directory_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pyrklog\.cache\.dir: .*/none is not a directory"):
        cache_place.cache_place(str(tmp_path / "none"), -1)


def test_disabled_block_cache_gives_no_reason(tmp_path: Path) -> None:
    assert cache_place.cache_place(str(tmp_path), 0) == CachePlace(None, None)


def test_a_process_namespace_tells_a_container(tmp_path: Path) -> None:
    link = tmp_path / "pid"
    link.symlink_to("pid:[4026531836]")
    assert not in_container(link)
    link.unlink()
    link.symlink_to("pid:[4026532200]")
    assert in_container(link)
    assert not in_container(tmp_path / "none")
