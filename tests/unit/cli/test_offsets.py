"""The range of ``consume -o``."""

import pytest

from pyrklog.cli.offsets import (
    BEGINNING,
    END,
    OffsetPosition,
    OffsetRange,
    RangeError,
    ResolvedRange,
    parse_range,
    resolve,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("texts", "start", "stop"),
    [
        ([], BEGINNING, None),
        (["beginning"], BEGINNING, None),
        (["start"], BEGINNING, None),
        (["earliest"], BEGINNING, None),
        (["end"], END, None),
        (["latest"], END, None),
        (["5"], OffsetPosition("offset", 5), None),
        (["-10"], OffsetPosition("tail", 10), None),
        (["5:9"], OffsetPosition("offset", 5), OffsetPosition("offset", 9)),
        ([":end"], BEGINNING, END),
        (["5:"], OffsetPosition("offset", 5), None),
        (["-10:end"], OffsetPosition("tail", 10), END),
        (["start:-3"], BEGINNING, OffsetPosition("tail", 3)),
        (["@1600000000000"], OffsetPosition("time", 1_600_000_000_000), None),
        (["@5"], OffsetPosition("time", 5), None),
        (["@-1h"], OffsetPosition("time", NOW_MS - HOUR_MS), None),
        (["@-90m:end"], OffsetPosition("time", NOW_MS - 90 * 60_000), END),
        (
            ["@-2d:@-1d"],
            OffsetPosition("time", NOW_MS - 48 * HOUR_MS),
            OffsetPosition("time", NOW_MS - 24 * HOUR_MS),
        ),
        (["@-5s:@now"], OffsetPosition("time", NOW_MS - 5000), OffsetPosition("time", NOW_MS)),
        (["@2023-11-14"], OffsetPosition("time", 1_699_920_000_000), None),
        (["@2023-11-14T22:13:20"], OffsetPosition("time", NOW_MS), None),
        (["@2023-11-14T22:13:20Z"], OffsetPosition("time", NOW_MS), None),
        (["@2023-11-15T00:13:20+02:00"], OffsetPosition("time", NOW_MS), None),
        (
            ["@2023-11-14T22:13:20:@2023-11-14T22:13:21.500"],
            OffsetPosition("time", NOW_MS),
            OffsetPosition("time", NOW_MS + 1500),
        ),
        (["s@1000", "e@2000"], OffsetPosition("time", 1000), OffsetPosition("time", 2000)),
        (["e@2000"], BEGINNING, OffsetPosition("time", 2000)),
    ],
)
def test_ranges(texts: list[str], start: OffsetPosition, stop: OffsetPosition | None) -> None:
    assert parse_range(texts, NOW_MS) == OffsetRange(start, stop)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "xx",
        "1:2:3",
        "--5",
        "@",
        "@yesterday",
        "5-9",
        "@2023-13-01",
        "1.5",
        "+3",
        "٣",
        "@" + "9" * 30,
        "@" + "9" * 19,
    ],
)
def test_texts_that_are_no_range(text: str) -> None:
    with pytest.raises(RangeError, match="-o "):
        parse_range([text], NOW_MS)


def no_time(_timestamp_ms: int) -> int:
    """For ranges without a time."""
    raise AssertionError


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("beginning", ResolvedRange(10, None)),
        ("end", ResolvedRange(20, None)),
        ("10:20", ResolvedRange(10, 20)),
        ("-3", ResolvedRange(17, None)),
        ("-300:end", ResolvedRange(10, 20)),
        ("20", ResolvedRange(20, None)),
        ("15:100", ResolvedRange(15, 100)),
        ("start:-2", ResolvedRange(10, 18)),
    ],
)
def test_a_range_meets_a_log_from_10_to_20(text: str, bounded: ResolvedRange) -> None:
    assert resolve(parse_range([text], NOW_MS), 10, 20, no_time) == (bounded, None)


def test_times_are_looked_up() -> None:
    answers = {1000: 12, 2000: -1}
    found, remark = resolve(parse_range(["@1000:@2000"], NOW_MS), 10, 20, answers.__getitem__)
    assert (found, remark) == (ResolvedRange(12, 20), None)


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("end", ResolvedRange(15, None)),
        ("-3:end", ResolvedRange(12, 20)),
        ("start:-2", ResolvedRange(10, 18)),
        ("17:", ResolvedRange(17, None)),
    ],
)
def test_a_start_counts_from_where_records_are_decided(text: str, bounded: ResolvedRange) -> None:
    found = resolve(parse_range([text], NOW_MS), 10, 20, no_time, stable=15)
    assert found == (bounded, None)


def test_an_offset_that_is_gone_is_remarked_upon() -> None:
    found, remark = resolve(parse_range(["3:15"], NOW_MS), 10, 20, no_time)
    assert found == ResolvedRange(10, 15)
    assert remark == "offset 3 is gone; the log starts at 10"


def test_an_offset_past_the_end_is_remarked_upon() -> None:
    found, remark = resolve(parse_range(["21:30"], NOW_MS), 10, 20, no_time)
    assert found == ResolvedRange(21, 30)
    assert remark == "offset 21 is past the end of the log, which is 20"


@pytest.mark.parametrize("text", ["5:2", "@2000:@1000", "@2024-01-31:@2024-01-30", "@now:@-1h"])
def test_a_range_that_ends_before_it_begins_is_refused(text: str) -> None:
    with pytest.raises(RangeError, match=f"^-o {text} ends before it begins$"):
        parse_range([text], NOW_MS)


@pytest.mark.parametrize("text", ["5:5", "end:start", "-1:-5", "5:@1000"])
def test_a_range_may_be_empty_where_only_a_log_can_tell(text: str) -> None:
    assert parse_range([text], NOW_MS).stop is not None
