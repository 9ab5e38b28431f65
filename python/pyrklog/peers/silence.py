"""Whether a broker answers requests, by the times of what one observer has asked it. Pure.

An observer asks again and again, one question at a time. What stands still between the two, a
stopped process, a machine without a network, shows as a question without an answer for longer than
the *limit*. What is only slow must not: so the limit grows with the delays that were seen in the
last minute, those of the answers and those of the observer itself, and an observer that came late
itself begins to measure anew, since the answer may lie in its own socket (``cluster.md``,
section 7). All times are seconds of one monotonic clock.

What the observer's own thread has *worked* meanwhile is no delay: a thousand partitions that take
it a quarter of a second say nothing about how busy the machine is. It is told as CPU time.
"""

from __future__ import annotations

from collections import deque

LIMIT_MIN_SECONDS = 0.25
LIMIT_MAX_SECONDS = 5.0
DELAYS_IN_LIMIT = 4.0
"""The limit is so many times the longest delay of late."""
OWN_DELAY_MAX_SECONDS = 0.05
"""An observer that wakes up so much too late has not watched."""
OWN_DELAY_COUNTED_SECONDS = 0.25
"""No more of an observer's own delay makes it patient: it may have been stopped itself."""
REMEMBERED_SECONDS = 10.0
REMEMBERED_SPANS = 6
"""The longest delay of each of so many spans of time is kept: about a minute."""


class Silence:
    """One observer's view of one broker."""

    def __init__(self) -> None:
        self._asked: float | None = None
        """Since when an answer is waited for."""
        self._worked_when_asked = 0.0
        self._longest: deque[tuple[int, float]] = deque(maxlen=REMEMBERED_SPANS)
        """(span of time, the longest delay in it)."""

    @property
    def is_waiting(self) -> bool:
        """Whether a question has no answer yet."""
        return self._asked is not None

    def asked(self, now: float, worked: float = 0.0) -> None:
        """A question goes out, or a connection for it is asked for; the first one counts.
        ``worked`` is the CPU time of the observer's thread so far."""
        if self._asked is None:
            self._asked = now
            self._worked_when_asked = worked

    def answered(self, now: float, worked: float = 0.0, *, is_back: bool = False) -> None:
        """The broker lives. What it took counts as a delay, unless the broker ``is_back`` from a
        silence: that was none of business."""
        if self._asked is not None:
            if not is_back:
                self._delayed(now, now - self._asked - (worked - self._worked_when_asked))
            self._asked = None

    def ended(self) -> None:
        """The question says nothing any more: the broker has refused it, or is not known."""
        self._asked = None

    def woke(self, due: float, now: float, *, slept: float = 0.0, worked: float = 0.0) -> None:
        """The observer, which meant to look at ``due``, looks. ``slept`` and ``worked`` are the CPU
        time of its thread when it went to sleep and now."""
        late = now - due
        self._delayed(now, min(late - (worked - slept), OWN_DELAY_COUNTED_SECONDS))
        if late > OWN_DELAY_MAX_SECONDS and self._asked is not None:
            self._asked = now
            self._worked_when_asked = worked

    def seconds(self, now: float) -> float:
        """For how long a question has had no answer; 0 where none waits."""
        return 0.0 if self._asked is None else now - self._asked

    def limit(self, now: float) -> float:
        """From how long on it is silence."""
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
