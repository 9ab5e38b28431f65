"""Saves histories every ten seconds. What fails here costs only what a restart would have known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import trio

from pyrklog.base.logs import get_logger
from pyrklog.lag.history_file import HistoryFile
from pyrklog.lag.steady_clock import SteadyClock
from pyrklog.lag.turns import in_turns

SAVE_SECONDS = 10.0
LAST_SECONDS = 1.0
"""An orderly end waits so long for the last round."""
ROUNDS_BYTES_MIN = 2**20
ROUNDS_BYTES_MAX = 4 * 2**20
"""Of rounds, before the file is written anew; between the two, as many as of the rest."""
DUMPED_A_TURN = 100
DUMPED_POINTS = 20_000
"""About so many points make a turn, too: copies are memory."""

Result = TypeVar("Result")
Key = TypeVar("Key")
Value = TypeVar("Value")
Points = TypeVar("Points")

log = get_logger("lag")


class Dumped(Protocol):
    """A history. Its points are of the type that its file takes."""

    @property
    def points(self) -> int: ...

    def dump(self) -> list[Any]: ...


Kept = TypeVar("Kept", bound=Dumped)


class Saved(Protocol[Key, Kept, Value]):
    """Histories of partitions or of groups."""

    @property
    def by_key(self) -> Mapping[Key, Kept]: ...

    def restore(self, loaded: Mapping[Key, Kept]) -> Iterator[None]: ...

    def take_moved(self) -> dict[Key, Value]: ...


class HistorySaver(Generic[Key, Kept, Points, Value]):
    def __init__(
        self,
        file: HistoryFile[Key, Kept, Points, Value],
        histories: Saved[Key, Kept, Value],
        clock: SteadyClock,
    ) -> None:
        self._file = file
        self._form = file.form
        self._histories = histories
        self._clock = clock
        self._thread = trio.CapacityLimiter(1)
        self._is_saving = False
        self._is_failed = False
        # Only the thread touches these.
        self._numbers: dict[Key, int] = {}
        self._base_bytes = 0
        self._rounds_bytes = ROUNDS_BYTES_MAX
        """At first so many that the file is written anew."""

    async def load(self) -> int:
        """Restores the histories; returns the time until which they go, 0 without a file."""
        found = await self._in_thread(lambda: self._file.load(self._clock.wall_ms()))
        if found is None:
            return 0
        await in_turns(self._histories.restore(found.histories))
        return found.until_ms

    async def run(self) -> None:
        """Saves until cancelled."""
        try:
            while True:
                await trio.sleep(SAVE_SECONDS)
                await self.save()
        finally:
            # A save that was cut short may still run: then nobody else touches the file.
            if not self._is_saving:
                with trio.move_on_after(LAST_SECONDS, shield=True):
                    await self.save()
                    await self._in_thread(self._file.close)

    async def save(self) -> None:
        self._is_saving = True
        try:
            moved = self._histories.take_moved()
            if self._is_to_be_new(moved):
                await self._write_anew()
            else:
                await self._in_thread(lambda: self._append(self._times(), moved))
        except OSError as error:
            self._rounds_bytes = ROUNDS_BYTES_MAX
            await self._in_thread(self._file.give_up)
            if not self._is_failed:
                consequence = "lag in seconds goes on; a restart would forget what is not saved"
                log.warning(
                    "lag_history_unsaved",
                    file=self._form.name,
                    reason=str(error),
                    consequence=consequence,
                )
            self._is_failed = True
        else:
            if self._is_failed:
                log.info("lag_history_saved", file=self._form.name)
            self._is_failed = False
        self._is_saving = False

    def _is_to_be_new(self, moved: Mapping[Key, Value]) -> bool:
        most = min(max(ROUNDS_BYTES_MIN, self._base_bytes), ROUNDS_BYTES_MAX)
        if self._rounds_bytes >= most:
            return True
        names = len(self._numbers)
        if names + len(moved) <= self._form.names_max:
            return False
        # Few of those that have moved may be new.
        return names + sum(key not in self._numbers for key in moved) > self._form.names_max

    def _times(self) -> tuple[int, int]:
        return self._clock.now_ms(), self._clock.wall_ms()

    async def _write_anew(self) -> None:
        await self._in_thread(self._begin)
        self._histories.take_moved()
        left = iter(list(self._histories.by_key.items()))
        while dumps := _dumps(left):
            await self._in_thread(partial(self._add, dumps))
        moved = self._histories.take_moved()
        await self._in_thread(lambda: self._finish(self._times(), moved))

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await trio.to_thread.run_sync(work, limiter=self._thread, abandon_on_cancel=True)

    # --- in the thread ---------------------------------------------------------------------------

    def _begin(self) -> None:
        self._numbers = {}
        self._file.begin()

    def _add(self, dumps: Sequence[tuple[Key, list[Points]]]) -> None:
        self._file.add(b"".join(self._dumped(dumps)))

    def _dumped(self, dumps: Sequence[tuple[Key, list[Points]]]) -> Iterator[bytes]:
        for key, columns in dumps:
            number = self._numbers[key] = len(self._numbers)
            yield self._form.name_chunk(number, key)
            for tier, one in enumerate(columns):
                yield self._form.points_chunk(number, tier, one)

    def _finish(self, times: tuple[int, int], moved: dict[Key, Value]) -> None:
        self._file.add(self._round(times, moved))
        self._base_bytes = self._file.finish()
        self._rounds_bytes = 0

    def _append(self, times: tuple[int, int], moved: dict[Key, Value]) -> None:
        piece = self._round(times, moved)
        self._file.append(piece)
        self._rounds_bytes += len(piece)

    def _round(self, times: tuple[int, int], moved: dict[Key, Value]) -> bytes:
        """With the names of partitions that have none yet."""
        names: list[bytes] = []
        values: dict[int, Value] = {}
        for key, value in moved.items():
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._numbers)
                names.append(self._form.name_chunk(number, key))
            values[number] = value
        return b"".join([*names, self._form.round_chunk(*times, values)])


def _dumps(left: Iterator[tuple[Key, Kept]]) -> list[tuple[Key, list[Any]]]:
    """Of a turn."""
    found: list[tuple[Key, list[Any]]] = []
    points = 0
    for key, history in islice(left, DUMPED_A_TURN):
        found.append((key, history.dump()))
        points += history.points
        if points >= DUMPED_POINTS:
            break
    return found
