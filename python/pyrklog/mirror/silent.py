"""Partitions whose leaders do not answer: they are left out, so that they hold up no others, and
looked for meanwhile.

A leader that is gone is no such case: metadata tell it. One that the mirror cannot reach, or whose
disk hangs, keeps its partitions for hours. Each question to it lasts as long as a time-out, so the
looks are on a thread of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from queue import Empty, SimpleQueue

from pyrklog.mirror.errors import MirrorError
from pyrklog.mirror.state import Partition
from pyrklog.scanning import LeftOut, ScanError

LOOK_S = 10.0
LOOK_MAX_S = 600.0
"""Between looks, for partitions that answer a look and then no longer."""
CALM_S = 3600.0
"""After so long without a new one looks are frequent again."""

Partitions = Mapping[str, Sequence[int]]
Ask = Callable[[Partitions], Iterable[Partition]]
"""Which of the partitions do not answer now."""


class Silent:
    """Of one cluster, which is called ``where``. ``ask`` is called on another thread."""

    def __init__(
        self,
        where: str,
        ask: Ask,
        note: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where = where
        self._ask = ask
        self._note = note
        self._clock = clock
        self._silent: set[Partition] = set()
        self._returned: set[Partition] = set()
        """Those that answered a look, since the looks were frequent last."""
        self._wait_s = LOOK_S
        self._added_at = clock()
        self._look_at = clock()
        self._answers: SimpleQueue[set[Partition] | None] = SimpleQueue()
        self._is_looking = False

    def add(self, left_out: Sequence[LeftOut]) -> None:
        """Partitions that have not answered, by their names at the source."""
        new = {(one.topic, one.partition) for one in left_out} - self._silent
        if not new:
            return
        now = self._clock()
        if now - self._added_at > CALM_S:
            self._wait_s = LOOK_S
            self._returned.clear()
        elif new & self._returned:
            self._wait_s = min(LOOK_MAX_S, 2 * self._wait_s)
        self._added_at = now
        self._look_at = now + self._wait_s
        self._silent |= new
        topic, partition = min(new)
        others = f" and {len(new) - 1} others" if len(new) > 1 else ""
        self._note(
            f"partition {partition} of topic {topic}{others} at the {self._where}: no leader that "
            f"answers ({left_out[0].reason}); the mirror goes on without it"
        )

    def without(self, partitions: Partitions) -> dict[str, list[int]]:
        """These partitions but those that do not answer."""
        return {
            topic: [one for one in some if (topic, one) not in self._silent]
            for topic, some in partitions.items()
        }

    def look(self, partitions: Partitions) -> bool:
        """Starts a look if it is time for one. Whether some of ``partitions``, which are all that
        count, answer again."""
        self._silent &= {(topic, one) for topic, some in partitions.items() for one in some}
        back = self._answered()
        if back:
            self._silent -= back
            self._returned |= back
            topic, partition = min(back)
            others = f" and {len(back) - 1} others" if len(back) > 1 else ""
            what = f"partition {partition} of topic {topic}{others}"
            self._note(f"{what} at the {self._where}: there is an answer again")
        if self._silent and not self._is_looking and self._clock() >= self._look_at:
            self._start()
        return bool(back)

    def _answered(self) -> set[Partition]:
        try:
            back = self._answers.get_nowait()
        except Empty:
            return set()
        self._is_looking = False
        self._look_at = self._clock() + self._wait_s
        return (back or set()) & self._silent

    def _start(self) -> None:
        asked: dict[str, list[int]] = {}
        for topic, one in sorted(self._silent):
            asked.setdefault(topic, []).append(one)
        self._is_looking = True
        # At an exit nobody waits for it.
        threading.Thread(target=self._run, args=(asked,), name="mirror-look", daemon=True).start()

    def _run(self, asked: Partitions) -> None:
        try:
            still = set(self._ask(asked))
        except (MirrorError, ScanError):
            # Nobody answers now, or a topic is gone: the next look at the topics tells.
            self._answers.put(None)
            return
        self._answers.put({(topic, one) for topic, some in asked.items() for one in some} - still)
