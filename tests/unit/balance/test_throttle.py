"""A rate that is raised while all is calm, and lowered at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.balance.throttle import (
    ALARMS,
    LEAST_BYTES,
    MOST_BYTES,
    RAISE,
    REST_STEPS,
    START_BYTES,
    AutoThrottle,
    Signs,
    raise_s,
)

CALM = Signs(latency_ms=2.0, disk_wait_s=0.0)


def test_it_is_raised_step_by_step_up_to_a_bound() -> None:
    throttle = AutoThrottle(calm_ms=2.0)
    rates = [throttle.step(CALM) for _ in range(40)]
    assert rates[:2] == [START_BYTES * 5 // 4, START_BYTES * 25 // 16]
    assert rates == sorted(rates)
    assert rates[-1] == MOST_BYTES


@pytest.mark.parametrize(
    ("signs", "why"),
    [
        (Signs(latency_ms=9.1), "a source answers in 9 ms, not 2"),
        (Signs(disk_wait_s=0.2), "a disk lets wait for 0.2 s"),
        (Signs(findings=["clock_skew", "reads_stuck"]), "reads_stuck"),
        (Signs(behind=3), "3 partitions lack a replica in sync"),
    ],
)
def test_trouble_lowers_it_at_once_and_it_rests(signs: Signs, why: str) -> None:
    throttle = AutoThrottle(calm_ms=2.0)
    assert throttle.step(signs) == START_BYTES // 2
    assert throttle.why == why
    assert [throttle.step(CALM) for _ in range(REST_STEPS)] == [START_BYTES // 2] * REST_STEPS
    assert throttle.step(CALM) == START_BYTES // 2 * 5 // 4


def test_what_is_unknown_or_harmless_is_no_trouble() -> None:
    throttle = AutoThrottle(calm_ms=None)
    assert throttle.step(Signs(latency_ms=900.0)) > START_BYTES
    assert throttle.step(Signs(findings=["clock_skew", "disk_filling"])) > START_BYTES
    assert AutoThrottle(calm_ms=2.0).step(Signs(latency_ms=8.9)) > START_BYTES


@given(
    st.lists(
        st.builds(
            Signs,
            st.one_of(st.none(), st.floats(0, 1e4)),
            st.one_of(st.none(), st.floats(0, 10)),
            st.lists(st.sampled_from([*sorted(ALARMS), "clock_skew"]), max_size=2),
            st.integers(0, 2),
        ),
        max_size=60,
    )
)
def test_it_stays_within_its_bounds(seen: list[Signs]) -> None:
    throttle = AutoThrottle(calm_ms=1.0)
    for signs in seen:
        before = throttle.rate_bytes
        now = throttle.step(signs)
        assert LEAST_BYTES <= now <= MOST_BYTES
        if signs.behind or ALARMS & set(signs.findings):
            assert now <= max(LEAST_BYTES, before // 2)


def test_what_a_rate_that_is_raised_takes_longer() -> None:
    # 20, 25 and 31 MB in the first seconds, then 39 MB/s.
    copied = START_BYTES * (1 + RAISE + RAISE**2)
    rate = int(START_BYTES * RAISE**3)
    lasts_s = copied / rate + 10
    assert raise_s(lasts_s, rate) == pytest.approx(13 - lasts_s)
    assert raise_s(10.0, START_BYTES // 2) == 0.0, "the disks allow less than it begins with"
    assert raise_s(0.0, rate) == 0.0
