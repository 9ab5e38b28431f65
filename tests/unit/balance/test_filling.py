"""When retention has deleted what a log has; back-fills of batches."""

import pytest

from pyrklog.balance.filling import (
    RETENTION_BYTES,
    RETENTION_MS,
    SEGMENT_BYTES,
    SEGMENT_MS,
    Fill,
    Filling,
    Lack,
    fill_of,
    in_turn,
    retention_s,
)

HOUR_MS = 3_600_000
A, B = ("t", 0), ("t", 1)


@pytest.mark.parametrize(
    ("options", "rate_in", "seconds"),
    [
        ({}, 1000.0, None),
        ({RETENTION_MS: "-1", RETENTION_BYTES: "-1"}, 1000.0, None),
        # Nothing is written: the last segment is as old as its records.
        ({RETENTION_MS: str(HOUR_MS), SEGMENT_MS: str(9 * HOUR_MS)}, 0.0, 3600.0),
        # The segment that is written to is full after a minute, or old after nine hours.
        (
            {
                RETENTION_MS: str(HOUR_MS),
                SEGMENT_MS: str(9 * HOUR_MS),
                SEGMENT_BYTES: "60000",
            },
            1000.0,
            3660.0,
        ),
        ({RETENTION_MS: str(HOUR_MS), SEGMENT_MS: str(9 * HOUR_MS)}, 1.0, 36_000.0),
        ({RETENTION_BYTES: "100000", SEGMENT_BYTES: "20000"}, 1000.0, 120.0),
        ({RETENTION_BYTES: "100000"}, 0.0, None),
        ({RETENTION_BYTES: "100000", RETENTION_MS: "50000"}, 1000.0, 50.0),
    ],
)
def test_when_retention_has_deleted_what_there_is(
    options: dict[str, str | None], rate_in: float, seconds: float | None
) -> None:
    assert retention_s(options, rate_in) == seconds


def test_brokers_fill_at_rates_of_their_own() -> None:
    filling = Filling([A, B], {3: 10, 4: 1, 5: 7}, {A: None, B: 60.0})
    lacks = [Lack(A, 3, 1000), Lack(A, 4, 10), Lack(B, 3, 500)]
    assert fill_of(lacks, filling, 1.0) == Fill(1510, 1.0, 151.0, None, {3: 10, 4: 1})
    by_both = fill_of(lacks[2:], filling, 1.0)
    assert (by_both.whole_s, by_both.is_by_retention) == (51.0, False)
    by_retention = fill_of([Lack(B, 9, 500)], filling, 1.0)
    assert (by_retention.whole_s, by_retention.is_by_retention) == (61.0, True)
    assert fill_of([Lack(A, 9, 1)], filling, 1.0).whole_s is None, "it fills nothing"
    assert fill_of([Lack(A, 9, 0)], filling, 1.0).whole_s == 1.0, "it lacks nothing"


def test_batches_are_filled_one_after_the_other() -> None:
    one, other = Fill(10, 1.0, 21.0, 91.0, {3: 5}), Fill(20, 1.0, 31.0, 81.0, {4: 5})
    assert in_turn([(0.0, one), (21.0, other)]) == Fill(30, 22.0, 52.0, 102.0, {3: 5, 4: 5})
    never = in_turn([(0.0, one._replace(whole_s=None)), (None, other)])
    assert (never.tail_s, never.whole_s, never.retention_s) == (None, None, None)
