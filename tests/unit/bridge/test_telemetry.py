"""What client metrics take from the Rust extension."""

import pytest

from pyrklog.telemetry.core_telemetry import Pattern, crc32c, decompress
from tests.unit.telemetry.pushed_metrics import COMPRESSED

DATA = bytes(range(256)) * 40


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a|ab", "ab", True),
        ("a", "ab", False),
        ("b", "ab", False),
        ("", "", True),
        (".*", "x" * 256, True),
        ("a$", "a\n", False),
        ("(?i)A.B", "a.b", True),
        (r"\d+", "٣", False),
    ],
)
def test_a_pattern_matches_the_whole_text(pattern: str, text: str, expected: bool) -> None:
    assert Pattern(pattern).matches(text) is expected


@pytest.mark.parametrize("pattern", ["(", "a)|(b", "[", "*", "a{99999}", r"(a)\1", "(?=a)a"])
def test_what_is_no_pattern_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Pattern(pattern)


def test_no_pattern_takes_long() -> None:
    """Backtracking would take longer than the universe is old."""
    for pattern in ("(a+)+b", "(a|aa)+b", "(.*)*b", "(?:a?){50}a{50}b"):
        assert not Pattern(pattern).matches("a" * 256)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_each_codec_is_expanded_within_a_bound(codec: int) -> None:
    compressed = COMPRESSED[codec](DATA)
    assert decompress(codec, compressed, len(DATA)) == DATA
    with pytest.raises(OverflowError, match="expand to more than"):
        decompress(codec, compressed, len(DATA) - 1)


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 255])
def test_what_cannot_be_expanded_is_refused(codec: int) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decompress(codec, b"\xff" * 20, 1000)


def test_the_checksum_is_crc_32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
