"""Whether a broker's logs have everything of its last life."""

import pytest

from pyrklog.membership.life import LastLife, decode_log_dirs, encode_log_dirs, has_all
from pyrklog.plane.seam import DirectoryPast

EPOCH = 7
CLEAN, CACHED = DirectoryPast(EPOCH, is_reattached=False), DirectoryPast(None, is_reattached=True)
CRASHED, EARLIER = DirectoryPast(None, is_reattached=False), DirectoryPast(3, is_reattached=False)


def whole(last: list[str] | None, *used: str, **now: DirectoryPast) -> bool:
    life = LastLife(EPOCH, None if last is None else frozenset(last))
    return has_all(life, list(now), list(now.values()), used)


def test_cleanly_closed_or_cached_directories_are_whole() -> None:
    assert whole(None, a=CLEAN, b=CACHED)
    assert whole(["a", "b"], "a", "b", a=CLEAN, b=CACHED)
    assert not whole(["a"], "a", a=EARLIER)


def test_what_a_directory_that_cannot_be_used_has_is_missing() -> None:
    for last in (None, frozenset("ab"), frozenset("a")):
        assert not has_all(LastLife(EPOCH, last), ["a", "b"], [CLEAN], ["a"])


def test_added_directory_lacks_no_records() -> None:
    assert whole(["a"], "a", a=CLEAN, b=CRASHED)
    assert whole(["a"], "a", a=CLEAN, b=EARLIER), "used once, and empty since"
    assert not whole(["a"], "a", a=CRASHED, b=CRASHED), "the other one does lack something"


@pytest.mark.parametrize("used", [(), ("b",)])
def test_empty_directory_of_the_last_life_counts(used: tuple[str, ...]) -> None:
    """It crashed, or an empty disk replaces a lost one."""
    assert not whole(["a", "b"], "a", *used, a=CLEAN, b=CRASHED)


def test_added_directory_with_partitions_counts() -> None:
    assert not whole(["a"], "a", "b", a=CLEAN, b=CRASHED)


def test_directory_that_replaces_another_counts() -> None:
    assert not whole(["a", "lost"], "a", a=CLEAN, b=CRASHED)
    assert whole(["a", "lost"], "a", a=CLEAN)


def test_without_a_list_of_the_last_life_every_directory_counts() -> None:
    assert not whole(None, "a", a=CLEAN, b=CRASHED)


def test_log_directories_are_written_down() -> None:
    assert decode_log_dirs(encode_log_dirs(["/a", "/ü,b"])) == frozenset({"/a", "/ü,b"})
    for data in (b"", b"\xff", b"[]", b"{}", b'{"log_dirs":7}', b"7", b"[" * 100_000):
        assert decode_log_dirs(data) is None
