"""How fast the last plans of clusters copied."""

from pathlib import Path

import pytest

from pyrklog.balance.prediction import RateFrom
from pyrklog.balance.throttle import AUTO
from pyrklog.cli.copy_rates import remember, remembered
from pyrklog.cli.reassign_planning import DEFAULT_RATE_BYTES, guess_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_each_cluster_and_each_kind_of_plan_has_its_own(cache: Path) -> None:
    assert remembered("one", None) is None
    remember("one", None, 80_000_000)
    remember("one", AUTO, 30_000_000)
    remember("other", None, 7_000_000)
    remember("one", None, 90_000_000)
    assert (remembered("one", None), remembered("one", AUTO)) == (90_000_000, 30_000_000)
    assert (remembered("other", None), remembered("other", AUTO)) == (7_000_000, None)
    assert len([one for one in cache.rglob("*") if one.is_file()]) == 2


def test_what_tells_nothing_is_not_kept(cache: Path) -> None:
    remember(None, None, 1_000_000)
    remember("one", "5MB/s", 5_000_000)
    remember("one", None, 0)
    assert list(cache.iterdir()) == []


def test_file_that_cannot_be_read_or_written_changes_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember("one", None, 80_000_000)
    [file] = (one for one in cache.rglob("*") if one.is_file())
    for content in ("", "[]", '{"none": "fast"}', "{" * 100_000):
        file.write_text(content)
        assert remembered("one", None) is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    remember("one", None, 80_000_000)
    assert remembered("one", None) is None


def test_what_is_known_best_predicts() -> None:
    assert guess_of("one", "5MB/s") == (5_000_000, RateFrom.GIVEN)
    assert guess_of("one", None) == (DEFAULT_RATE_BYTES, RateFrom.ASSUMED)
    remember("one", None, 80_000_000)
    assert guess_of("one", None) == (80_000_000, RateFrom.EARLIER)
    assert guess_of("one", AUTO) == (DEFAULT_RATE_BYTES, RateFrom.ASSUMED)
    assert guess_of("one", None, 9) == (9, RateFrom.GIVEN)
