"""What a group keeps of records that are redriven, beside a plain set of offsets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.cli.redrive_progress import (
    METADATA_BYTES_MAX,
    PREFIX,
    RANGES_BYTES_MAX,
    Progress,
    parse_progress,
)

FIRST, LAST = 100, 160
RANGES = st.lists(
    st.tuples(st.integers(FIRST - 5, LAST), st.integers(0, 8)).map(lambda one: (one[0], sum(one)))
)


@given(RANGES)
def test_progress_is_the_set_of_its_ranges(ranges: list[tuple[int, int]]) -> None:
    progress = Progress(FIRST)
    done = set(range(FIRST))
    for start, stop in ranges:
        progress.add(start, stop)
        done |= set(range(start, stop))
    wanted = {offset: offset in done for offset in range(LAST + 10)}
    assert {offset: progress.covers(offset) for offset in wanted} == wanted
    assert progress.next == next(offset for offset, is_done in wanted.items() if not is_done)
    again = parse_progress(progress.next, progress.metadata())
    assert {offset: again.covers(offset) for offset in wanted} == wanted
    assert (again.next, again.metadata()) == (progress.next, progress.metadata())


def test_the_metadata() -> None:
    progress = Progress(10)
    assert progress.metadata() == ""
    progress.add(12, 17)
    progress.add(18, 19)
    assert progress.metadata() == f"{PREFIX}2+5,1"
    progress.add(10, 12)
    assert (progress.next, progress.metadata()) == (17, f"{PREFIX}1")


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "of another program",
        PREFIX,
        f"{PREFIX}x",
        f"{PREFIX}1,",
        f"{PREFIX}0+1",
        f"{PREFIX}1+0",
        f"{PREFIX}-1+2",
        f"{PREFIX}1+2+3",
        f"{PREFIX}{'9' * 19}",
        f"{PREFIX}{'9' * 5000}",
    ],
)
def test_metadata_that_says_nothing(metadata: str) -> None:
    progress = parse_progress(5, metadata)
    assert (progress.next, progress.metadata()) == (5, "")


def test_offsets_without_a_record_join_what_is_done_around_them() -> None:
    progress = Progress(10)
    progress.bridge(10, 12)
    progress.add(20, 21)
    for start, stop in ((12, 12), (14, 16), (18, 20), (21, 22)):
        progress.bridge(start, stop)
    assert (progress.next, progress.metadata()) == (12, f"{PREFIX}8")
    progress.add(30, 31)
    progress.bridge(21, 30)
    assert (progress.next, progress.metadata()) == (12, f"{PREFIX}8+11")


@pytest.mark.parametrize(("first", "step"), [(0, 2), (0, 2_000), (2**62, 2**50)])
def test_what_has_room_fits_whatever_is_expected(first: int, step: int) -> None:
    progress = Progress(first)
    sent: list[int] = []
    while progress.has_room(offset := first + (len(sent) + 1) * step):
        progress.expect(offset)
        sent.append(offset)
        assert len(sent) < METADATA_BYTES_MAX
    for one in sent:
        progress.add(one, one + 1)
    assert len(sent) > 90
    progress.settle()
    assert RANGES_BYTES_MAX // 2 < len(progress.metadata()) <= RANGES_BYTES_MAX


def _full() -> tuple[Progress, int]:
    """Every other record is done, as many as there is room for; and the next offset."""
    progress = Progress(0)
    offset = 1
    while progress.has_room(offset):
        progress.add(offset, offset + 1)
        offset += 2
    return progress, offset


def test_full_progress_has_room_for_what_lengthens_a_range() -> None:
    progress, offset = _full()
    assert not progress.has_room(offset)
    assert progress.has_room(offset - 1)
    assert progress.has_room(0)
    many = 0
    while progress.has_room(offset - 1 + many):
        progress.expect(offset - 1 + many)
        many += 1
        assert many < METADATA_BYTES_MAX
    assert many > 400
    progress.settle()
    assert not progress.is_expecting


def test_metadata_beyond_the_bound_can_be_redriven_away() -> None:
    """An earlier version wrote it: without room for its first record nothing went on."""
    text = PREFIX + ",".join(["7"] * ((METADATA_BYTES_MAX - len(PREFIX)) // 2 + 40))
    progress = parse_progress(0, text)
    assert len(progress.metadata()) > METADATA_BYTES_MAX
    for offset in range(17_000):
        if not progress.covers(offset):
            assert progress.has_room(offset)
            progress.add(offset, offset + 1)
    assert progress.metadata() == ""


STEPS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3), st.integers(8, 12), st.integers(0, 10**6)),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    max_size=100,
)
"""Of each record: offsets before it; whether they have no record; whether it is done; whether
brokers have acknowledged all up to it by then."""


@given(st.sampled_from([1, 100, 1_300, 1_480, 1_990]), STEPS, st.integers(0, 5))
def test_no_outcome_of_what_had_room_is_too_long(
    ranges: int, steps: list[tuple[int, bool, bool, bool]], gap: int
) -> None:
    progress = parse_progress(0, PREFIX + ",".join(["1"] * ranges))
    size = len(progress.metadata())
    offset = 2 * ranges + gap
    done: list[int] = []
    holes: list[tuple[int, int]] = []

    def settle() -> None:
        for one in done:
            progress.add(one, one + 1)
        for start, stop in holes:
            progress.bridge(start, stop)
        progress.settle()
        done.clear()

    for distance, is_hole, is_done, is_settled in steps:
        if is_hole:
            holes.append((offset, offset + distance))
        offset += distance
        if progress.has_room(offset):
            progress.expect(offset)
            done += [offset] if is_done else []
        offset += 1
        if is_settled:
            settle()
    settle()
    assert len(progress.metadata()) <= max(METADATA_BYTES_MAX, size)
