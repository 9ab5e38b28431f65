from fractions import Fraction

import pytest

from pyrklog.cli.key_partitions import moved_share, murmur2, partition_of


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_kafka(data: bytes, expected: int) -> None:
    """Kafka's ``UtilsTest.testMurmur2``."""
    assert murmur2(data) == expected & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [(3, 6, "1/2"), (3, 4, "3/4"), (1, 4, "3/4"), (4, 5, "4/5"), (6, 9, "2/3"), (5, 5, "0")],
)
def test_the_share_of_moved_keys(before: int, after: int, share: str) -> None:
    assert moved_share(before, after) == Fraction(share)
    hashes = range(before * after)
    moved = sum(one % before != one % after for one in hashes)
    assert Fraction(moved, len(hashes)) == Fraction(share)


def test_partitions_are_within_bounds() -> None:
    for number in range(1000):
        assert 0 <= partition_of(str(number).encode(), 7) < 7
