"""The lag of the groups that this broker coordinates.

It looks at all of them in turn, a slice of offsets at a time, and keeps their totals; groups that
are asked for by name are looked at anew.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import trio

from pyrklog.base.logs import get_logger
from pyrklog.groups.group_manager import GroupManager
from pyrklog.lag.history import Age
from pyrklog.lag.lag_history import NO_LAG, Lag
from pyrklog.lag.lag_recorder import TOPICS_MAX, LagRecorder, topic_lag
from pyrklog.lag.leader_offsets import Answers, LeaderOffsets, Questions, TopicPartition
from pyrklog.lag.trends import LAGS_MAX, Trends
from pyrklog.protocol.lag import UNKNOWN, PartitionLag, Trend

ROUND_SECONDS = 10.0
SHORT_ROUND_SECONDS = 1.0
OFFSETS_A_SECOND = 200
"""While these and the groups are so few, rounds come sooner than after ten seconds."""
LONG_ROUND_SECONDS = 60.0
SLICE_MAX = 500
SLICE_SECONDS = 0.25
"""From one slice to the next at least."""
GROUPS_MAX = 20_000
SERIES_A_TURN = 50
"""Groups, and topics of these, that are taken into histories."""
ROWS_A_TURN = 200
NEW_MAX = 100
"""New groups looked at before a page."""
COUNT_MAX = 2**63 - 1
"""Of records, as answers have them."""
WORST_MAX = 20

log = get_logger("lag")

Ask = Callable[[Questions], Awaitable[Answers]]
_WHOLE: TopicPartition = ("", -1)
"""Stands for the whole group among its partitions."""


class Totals(NamedTuple):
    """Of a group; -1: unknown. ``lag_ms`` is the longest. ``ahead``: committed beyond log ends."""

    group_id: str
    lag: int = UNKNOWN
    lag_ms: int = UNKNOWN
    is_least: bool = False
    lost: int = UNKNOWN
    trend: Trend = Trend.UNKNOWN
    ahead: int = 0


class Look(NamedTuple):
    """At one group: its totals, the rows of its first partitions, and how many more there are."""

    totals: Totals
    rows: list[PartitionLag]
    left_out: int
    looked: int
    """Offsets."""
    is_whole: bool
    """All its offsets."""


class _Sum:
    """A group that is being looked at: the totals so far, and rows where they are wanted."""

    __slots__ = (
        "ahead",
        "at_ms",
        "group_id",
        "is_least",
        "is_partial",
        "lag",
        "lag_ms",
        "left_out",
        "lost",
        "room",
        "rows",
        "topics",
        "trends",
    )

    def __init__(self, group_id: str, trends: Trends[TopicPartition], rows_max: int) -> None:
        self.group_id = group_id
        self.trends = trends
        self.room = rows_max
        self.rows: list[PartitionLag] = []
        self.left_out = 0
        self.lag = self.lag_ms = self.lost = UNKNOWN
        self.ahead = 0
        self.is_least = self.is_partial = False
        self.topics: dict[str, Lag] | None = None
        """Where they are wanted."""
        self.at_ms = 0
        """When it was looked at, for the history."""

    def totals(self, trend: Trend) -> Totals:
        return Totals(
            self.group_id, self.lag, self.lag_ms, self.is_least, self.lost, trend, self.ahead
        )


Committed = tuple[_Sum, TopicPartition, int]
"""With the committed offset."""


class GroupLags:
    def __init__(
        self,
        manager: GroupManager,
        ask: Ask,
        recorder: LagRecorder | None = None,
        *,
        groups_max: int = GROUPS_MAX,
    ) -> None:
        """``recorder`` None: no histories of groups are kept."""
        self._manager = manager
        self._ask = ask
        self._recorder = recorder
        self._work = 0
        """Offsets and groups of the last round."""
        self._groups_max = groups_max
        self._trends: dict[str, Trends[TopicPartition]] = {}
        self._trend_lags = 0
        self._are_trends_left_out = False
        self._totals: dict[str, Totals] = {}
        self._names: list[str] = []
        """Sorted."""
        self.worst: Sequence[Totals] = ()
        """The groups that are most behind in seconds, at most :data:`WORST_MAX`. Those with members
        come first: groups that were abandoned hide none that is in use."""
        self.left_out = 0
        """Groups beyond the bound."""
        self.is_whole = False
        """All within the bound have been looked at once."""

    # --- all groups ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        is_told = False
        while True:
            began = trio.current_time()
            try:
                await self.look_at_all()
            except Exception as error:
                log.error("group_lags_unknown", exc_info=error)
            took = trio.current_time() - began
            if took > LONG_ROUND_SECONDS and not is_told:
                log.warning(
                    "lag_round_long",
                    seconds=round(took),
                    groups=len(self._names),
                    consequence="lag of all groups, and its metrics, are so old at most",
                )
            is_told = took > LONG_ROUND_SECONDS
            await trio.sleep(max(SLICE_SECONDS, self._round_seconds() - took))

    def _round_seconds(self) -> float:
        if self._recorder is None:
            return ROUND_SECONDS
        return min(max(SHORT_ROUND_SECONDS, self._work / OFFSETS_A_SECOND), ROUND_SECONDS)

    async def look_at_all(self) -> None:
        """One round."""
        # The oldest ones, however many there are: groups that come later leave no other one out.
        names = sorted(islice(self._manager.groups, self._groups_max))
        self._tell_left_out(len(self._manager.groups) - self._groups_max)
        for group_id in self._trends.keys() - set(names):
            del self._trends[group_id]
        self._trend_lags = sum(map(len, self._trends.values()))
        done: dict[str, _Sum] = {}
        self._work = len(names)
        for some in _slices(self._manager, (self._begin(name, 0, done) for name in names)):
            began = trio.current_time()
            await self._look_at(some)
            self._work += len(some)
            await trio.sleep_until(began + SLICE_SECONDS)
        totals: dict[str, Totals] = {}
        series = 0
        for name, one in done.items():
            if name in self._manager.groups:
                totals[name] = self._whole(one)
                self._record(one)
            series += 1 + min(len(one.topics or ()), TOPICS_MAX)
            if series >= SERIES_A_TURN:
                series = 0
                await trio.lowlevel.checkpoint()
        self._totals, self._names = totals, list(totals)
        self.worst = heapq.nlargest(
            WORST_MAX,
            (one for one in totals.values() if one.lag_ms > 0),
            lambda one: (self._has_members(one.group_id), one.lag_ms),
        )
        self.is_whole = True
        if self._recorder is not None:
            await self._recorder.end_round()

    def _record(self, one: _Sum) -> None:
        if self._recorder is None or not one.topics:
            return  # a group without offsets
        # What another broker does not tell for a while is no fall of the lag.
        lag = NO_LAG if one.is_partial else Lag(one.lag, one.lag_ms)
        self._recorder.record(one.group_id, one.at_ms, lag, one.topics)

    def _has_members(self, group_id: str) -> bool:
        machine = self._manager.groups.get(group_id)
        return machine is not None and bool(machine.group.members)

    def _tell_left_out(self, left_out: int) -> None:
        left_out = max(0, left_out)
        if left_out and not self.left_out:
            log.warning(
                "lag_groups_left_out",
                groups=left_out,
                bound=self._groups_max,
                consequence="they are missing in lists by lag, and in metrics of all groups",
            )
        self.left_out = left_out

    async def look_at_new(self, offsets_max: int) -> int:
        """Groups that came since the last round began, so that a page has them; the next round has
        the rest. Returns the number of offsets that were looked at."""
        room = min(NEW_MAX, self._groups_max - len(self._totals))
        if room <= 0:
            return 0
        unknown = (name for name in self._manager.groups if name not in self._totals)
        looked = 0
        for name in list(islice(unknown, room)):
            found = await self.look_at(name, 0, offsets_max=offsets_max - looked)
            looked += found.looked
            if found.is_whole and name in self._manager.groups and name not in self._totals:
                self._totals[name] = found.totals
                insort(self._names, name)
            if looked >= offsets_max:
                break
        return looked

    @property
    def count(self) -> int:
        """Of groups whose totals are known."""
        return len(self._names)

    def page(
        self, after: str, limit: int, over_records: int, over_ms: int
    ) -> tuple[list[Totals], str | None]:
        """Groups behind a name whose lag is over one of these (-1: unlimited; both: any), and the
        name to go on from, None at the end."""
        first = bisect_right(self._names, after) if after else 0
        found: list[Totals] = []
        for name in islice(self._names, first, None):
            one = self._totals[name]
            is_any = over_records < 0 and over_ms < 0
            if is_any or 0 <= over_records < one.lag or 0 <= over_ms < one.lag_ms:
                if len(found) == limit:
                    return found, found[-1].group_id
                found.append(one)
        return found, None

    # --- one group -------------------------------------------------------------------------------

    async def look_at(
        self,
        group_id: str,
        rows_max: int,
        topic: str | None = None,
        *,
        offsets_max: int | None = None,
    ) -> Look:
        """A group, or what it has committed in a topic. With more offsets than ``offsets_max``, the
        totals are those of the last round, and unknown before one."""
        one = self._begin(group_id, rows_max)
        looked, is_whole = 0, True
        for some in _slices(self._manager, [one], topic):
            room = len(some) if offsets_max is None else offsets_max - looked
            if room > 0:
                await self._look_at(some[:room])
                looked += len(some[:room])
            if room < len(some):
                is_whole = False
                break
        if is_whole:
            totals = self._whole(one) if topic is None else one.totals(Trend.UNKNOWN)
            return Look(totals, one.rows, one.left_out, looked, is_whole)
        machine = self._manager.groups.get(group_id)
        committed = looked if machine is None else len(machine.group.offsets)
        totals = self._totals.get(group_id, Totals(group_id))
        return Look(totals, one.rows, max(0, committed - len(one.rows)), looked, is_whole)

    # --- partitions ------------------------------------------------------------------------------

    async def _look_at(self, committed: Sequence[Committed]) -> None:
        questions: dict[TopicPartition, list[int]] = {}
        for _, partition, offset in committed:
            offsets = questions.get(partition)
            if offsets is None:
                questions[partition] = [offset]
            else:
                offsets.append(offset)
        answers = await self._ask(questions)
        await trio.lowlevel.checkpoint()
        at_ms = 0 if self._recorder is None else self._recorder.now_ms()
        ages = {key: iter(told.ages) for key, told in answers.items() if not told.error}
        for count, (one, partition, offset) in enumerate(committed, 1):
            one.at_ms = at_ms
            if partition in ages:
                told = answers[partition]
                self._take(one, partition, offset, told, next(ages[partition]))
            else:
                # Offsets in a deleted topic stay for long; nobody will tell more of them.
                if partition not in answers or answers[partition].exists:
                    one.is_partial = True
                    _add_topic(one, partition, UNKNOWN, UNKNOWN)
                _note(one, PartitionLag(*partition, offset))
            if count % ROWS_A_TURN == 0:
                await trio.lowlevel.checkpoint()

    def _take(
        self,
        one: _Sum,
        partition: TopicPartition,
        offset: int,
        told: LeaderOffsets,
        age: Age | None,
    ) -> None:
        # A client may commit any number.
        lag = min(max(0, told.log_end - offset), COUNT_MAX)
        lost = min(max(0, told.log_start - offset), COUNT_MAX)
        ahead = max(0, offset - told.log_end)
        one.ahead = min(one.ahead + ahead, COUNT_MAX)
        one.lag = lag if one.lag == UNKNOWN else min(one.lag + lag, COUNT_MAX)
        one.lost = lost if one.lost == UNKNOWN else min(one.lost + lost, COUNT_MAX)
        lag_ms, is_least = (UNKNOWN, False) if age is None else age
        if lag_ms > one.lag_ms:
            one.lag_ms, one.is_least = lag_ms, is_least
        _add_topic(one, partition, lag, lag_ms)
        trend = self._trend(one.trends, partition, lag)
        if one.room > 0:
            end = told.log_end
            row = PartitionLag(*partition, offset, end, lag, lag_ms, is_least, lost, trend, ahead)
            _note(one, row)
        else:
            one.left_out += 1

    def _begin(self, group_id: str, rows_max: int, among: dict[str, _Sum] | None = None) -> _Sum:
        trends = self._trends.get(group_id)
        if trends is None:
            trends = self._trends[group_id] = Trends()
        before = len(trends)
        trends.begin(trio.current_time())
        self._trend_lags += len(trends) - before
        found = _Sum(group_id, trends, rows_max)
        if among is not None:
            among[group_id] = found
            found.topics = None if self._recorder is None else {}
        return found

    def _whole(self, one: _Sum) -> Totals:
        if one.lag == UNKNOWN or one.is_partial:
            # What another broker does not tell for a while is no fall of the lag.
            return one.totals(Trend.UNKNOWN)
        return one.totals(self._trend(one.trends, _WHOLE, one.lag))

    def _trend(self, trends: Trends[TopicPartition], name: TopicPartition, lag: int) -> Trend:
        if not trends.has_taken(name):
            if self._trend_lags >= LAGS_MAX and not trends.knows(name):
                if not self._are_trends_left_out:
                    log.warning("lag_trends_left_out", bound=LAGS_MAX)
                self._are_trends_left_out = True
                return Trend.UNKNOWN
            self._trend_lags += 1
        return trends.take(name, lag)


def _note(one: _Sum, row: PartitionLag) -> None:
    if one.room > 0:
        one.rows.append(row)
        one.room -= 1
    else:
        one.left_out += 1


def _add_topic(one: _Sum, partition: TopicPartition, lag: int, lag_ms: int) -> None:
    if one.topics is not None:
        one.topics[partition[0]] = topic_lag(one.topics.get(partition[0]), lag, lag_ms)


def _slices(
    manager: GroupManager, groups: Iterable[_Sum], topic: str | None = None
) -> Iterator[list[Committed]]:
    """Committed offsets as they are by then; groups come whole, one after another. A slice is of so
    many groups at most, too."""
    found: list[Committed] = []
    for count, one in enumerate(groups, 1):
        after: TopicPartition | None = None if topic is None else (topic, -1)
        while machine := manager.groups.get(one.group_id):
            page = machine.group.offsets.page(after, SLICE_MAX - len(found))
            found += [
                (one, key, committed.offset)
                for key, committed in page
                if topic is None or topic == key[0]
            ]
            if not page or (topic is not None and page[-1][0][0] != topic):
                break
            after = page[-1][0]
            if len(found) >= SLICE_MAX:
                yield found
                found = []
        if count % SLICE_MAX == 0:
            yield found
            found = []
    if found:
        yield found
