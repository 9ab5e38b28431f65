"""Whether a broker's logs have all that they had in its last life."""

import pytest

from pyrklog.membership.life import LastLife, decode_log_dirs, encode_log_dirs, has_all
from pyrklog.plane.dataplane import DirectoryPast

EPOCH = 7
CLEAN, CACHED = DirectoryPast(EPOCH, is_reattached=False), DirectoryPast(None, is_reattached=True)
CRASHED, EARLIER = DirectoryPast(None, is_reattached=False), DirectoryPast(3, is_reattached=False)


def whole(last: list[str] | None, *used: str, **now: DirectoryPast) -> bool:
    life = LastLife(EPOCH, None if last is None else frozenset(last))
    return has_all(life, list(now), list(now.values()), used)


def test_what_was_closed_in_order_or_has_its_block_cache_is_whole() -> None:
    assert whole(None, a=CLEAN, b=CACHED)
    assert whole(["a", "b"], "a", "b", a=CLEAN, b=CACHED)
    assert not whole(["a"], "a", a=EARLIER)


def test_a_directory_that_is_merely_added_lacks_nothing() -> None:
    assert whole(["a"], "a", a=CLEAN, b=CRASHED)
    assert whole(["a"], "a", a=CLEAN, b=EARLIER), "used once, and empty since"
    assert not whole(["a"], "a", a=CRASHED, b=CRASHED), "the other one does lack something"


@pytest.mark.parametrize("used", [(), ("b",)])
def test_a_directory_of_the_last_life_counts_though_it_is_empty(used: tuple[str, ...]) -> None:
    """It crashed, or an empty disk is in the place of a lost one."""
    assert not whole(["a", "b"], "a", *used, a=CLEAN, b=CRASHED)


def test_one_with_partitions_counts_wherever_it_comes_from() -> None:
    assert not whole(["a"], "a", "b", a=CLEAN, b=CRASHED)


def test_one_in_the_place_of_another_counts() -> None:
    assert not whole(["a", "lost"], "a", a=CLEAN, b=CRASHED)
    assert whole(["a", "lost"], "a", a=CLEAN)


def test_where_the_last_life_did_not_tell_every_directory_counts() -> None:
    assert not whole(None, "a", a=CLEAN, b=CRASHED)


def test_log_directories_are_written_down() -> None:
    assert decode_log_dirs(encode_log_dirs(["/a", "/ü,b"])) == frozenset({"/a", "/ü,b"})
    for data in (b"", b"\xff", b"[]", b"{}", b'{"log_dirs":7}', b"7", b"[" * 100_000):
        assert decode_log_dirs(data) is None
