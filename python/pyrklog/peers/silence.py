"""Measures whether a broker answers one observer. Pure.

The observer asks one question at a time. A stopped process or a lost network shows as a question
without an answer for longer than the *limit*. Slowness must not: the limit grows with the delays of
the last minute, of answers and of the observer itself. An observer that was late starts to measure
anew, since the answer may lie in its own socket (``cluster.md``, section 7). All times are seconds
of one monotonic clock.

CPU time of the observer's own thread is not a delay: a thousand partitions that take it a quarter
of a second do not mean that the machine is busy.
"""

from __future__ import annotations

from collections import deque

LIMIT_MIN_SECONDS = 0.25
LIMIT_MAX_SECONDS = 5.0
DELAYS_IN_LIMIT = 4.0
"""The limit is this many times the longest recent delay."""
OWN_DELAY_MAX_SECONDS = 0.05
"""An observer that wakes up later than this has not watched."""
OWN_DELAY_COUNTED_SECONDS = 0.25
"""Own delays count up to this: the observer may have been stopped."""
REMEMBERED_SECONDS = 10.0
REMEMBERED_SPANS = 6
"""The longest delay of each of so many spans is kept: about a minute."""


class Silence:
    """One observer's view of one broker."""

    def __init__(self) -> None:
        self._asked: float | None = None
        """Since when an answer is awaited."""
        self._worked_when_asked = 0.0
        self._longest: deque[tuple[int, float]] = deque(maxlen=REMEMBERED_SPANS)
        """(span of time, its longest delay)."""

    @property
    def is_waiting(self) -> bool:
        return self._asked is not None

    def asked(self, now: float, worked: float = 0.0) -> None:
        """A question or its connection begins; the first one counts. ``worked``: the observer's CPU
        time so far.
        """
        if self._asked is None:
            self._asked = now
            self._worked_when_asked = worked

    def answered(self, now: float, worked: float = 0.0, *, is_back: bool = False) -> None:
        """The time counts as a delay, unless the broker ``is_back`` from a silence."""
        if self._asked is not None:
            if not is_back:
                self._delayed(now, now - self._asked - (worked - self._worked_when_asked))
            self._asked = None

    def ended(self) -> None:
        """The broker has refused the question or is unknown."""
        self._asked = None

    def woke(self, due: float, now: float, *, slept: float = 0.0, worked: float = 0.0) -> None:
        """The observer meant to look at ``due``. ``slept`` and ``worked``: its thread's CPU time
        then and now.
        """
        late = now - due
        self._delayed(now, min(late - (worked - slept), OWN_DELAY_COUNTED_SECONDS))
        if late > OWN_DELAY_MAX_SECONDS and self._asked is not None:
            self._asked = now
            self._worked_when_asked = worked

    def seconds(self, now: float) -> float:
        """How long a question has waited; 0 where none waits."""
        return 0.0 if self._asked is None else now - self._asked

    def limit(self, now: float) -> float:
        oldest = _span(now) - REMEMBERED_SPANS
        longest = max((delay for span, delay in self._longest if span > oldest), default=0.0)
        return min(max(LIMIT_MIN_SECONDS, DELAYS_IN_LIMIT * longest), LIMIT_MAX_SECONDS)

    def _delayed(self, now: float, seconds: float) -> None:
        seconds = max(seconds, 0.0)
        span = _span(now)
        if self._longest and self._longest[-1][0] == span:
            seconds = max(seconds, self._longest.pop()[1])
        self._longest.append((span, seconds))


def _span(now: float) -> int:
    return int(now // REMEMBERED_SECONDS)
