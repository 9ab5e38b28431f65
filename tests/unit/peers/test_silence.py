"""When an unanswered question means silence, and when a busy broker."""

import pytest

from pyrklog.peers.silence import (
    DELAYS_IN_LIMIT,
    LIMIT_MAX_SECONDS,
    LIMIT_MIN_SECONDS,
    OWN_DELAY_COUNTED_SECONDS,
    Silence,
)


def test_silence_counts_from_the_first_question_to_its_answer() -> None:
    silence = Silence()
    assert (silence.is_waiting, silence.seconds(7.0)) == (False, 0.0)
    silence.asked(10.0)
    # A failed connection is retried: the broker was silent all the time.
    silence.asked(11.0)
    assert (silence.is_waiting, silence.seconds(12.0)) == (True, 2.0)
    silence.answered(12.5)
    assert (silence.is_waiting, silence.seconds(13.0)) == (False, 0.0)


def test_ended_probe_is_no_silence() -> None:
    silence = Silence()
    silence.asked(10.0)
    silence.ended()
    assert silence.seconds(20.0) == 0.0
    assert silence.limit(20.0) == LIMIT_MIN_SECONDS


@pytest.mark.parametrize(
    ("took", "limit"),
    [
        (0.001, LIMIT_MIN_SECONDS),
        (0.1, DELAYS_IN_LIMIT * 0.1),
        (0.5, DELAYS_IN_LIMIT * 0.5),
        (100.0, LIMIT_MAX_SECONDS),
    ],
)
def test_slow_answer_raises_the_limit_for_a_minute(took: float, limit: float) -> None:
    silence = Silence()
    silence.asked(1000.0 - took)
    silence.answered(1000.0)
    assert silence.limit(1001.0) == pytest.approx(limit)
    assert silence.limit(1045.0) == pytest.approx(limit)
    assert silence.limit(1060.0) == LIMIT_MIN_SECONDS


def test_limit_follows_the_longest_recent_delay() -> None:
    silence = Silence()
    for begin, took in ((100.0, 0.01), (101.0, 0.2), (102.0, 0.01), (112.0, 0.01)):
        silence.asked(begin)
        silence.answered(begin + took)
    assert silence.limit(113.0) == pytest.approx(DELAYS_IN_LIMIT * 0.2)


def test_answer_after_a_silence_does_not_raise_the_limit() -> None:
    silence = Silence()
    silence.asked(100.0)
    silence.answered(104.0, is_back=True)
    assert silence.limit(104.0) == LIMIT_MIN_SECONDS


def test_late_observer_starts_measuring_again() -> None:
    silence = Silence()
    silence.asked(100.0)
    silence.woke(100.05, 100.06)
    assert silence.seconds(100.06) == pytest.approx(0.06), "a little late is not late"
    silence.woke(100.2, 108.2)
    assert silence.seconds(108.2) == 0.0
    assert silence.limit(108.2) == pytest.approx(DELAYS_IN_LIMIT * OWN_DELAY_COUNTED_SECONDS)


def test_occasionally_late_observer_has_a_higher_limit() -> None:
    silence = Silence()
    silence.woke(100.0, 100.2)
    assert not silence.is_waiting
    assert silence.limit(101.0) == pytest.approx(DELAYS_IN_LIMIT * 0.2)


def test_own_work_of_the_observer_does_not_raise_the_limit() -> None:
    silence = Silence()
    silence.asked(100.0, 7.0)
    silence.woke(100.05, 100.3, slept=7.0, worked=7.24)
    assert silence.seconds(100.3) == 0.0, "it has not watched all the same"
    silence.asked(100.3, 7.25)
    silence.answered(100.6, 7.54)
    assert silence.limit(100.6) == LIMIT_MIN_SECONDS
    silence.asked(101.0, 8.0)
    silence.answered(101.4, 8.2)
    assert silence.limit(101.4) == pytest.approx(DELAYS_IN_LIMIT * 0.2)
