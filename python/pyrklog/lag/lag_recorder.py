"""Takes the groups' lag into their histories, round by round."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import trio

from pyrklog.base.logs import get_logger
from pyrklog.groups.group_manager import GroupManager
from pyrklog.lag.lag_histories import LagHistories, SeriesKey
from pyrklog.lag.lag_history import NO_LAG, Lag
from pyrklog.lag.steady_clock import SteadyClock
from pyrklog.lag.turns import in_turns
from pyrklog.protocol.errors import ErrorCode

TOPICS_MAX = 100
"""Of a group, with histories of their own."""
RESTING_A_TURN = 500

log = get_logger("lag")


class LagRecorder:
    def __init__(self, manager: GroupManager, histories: LagHistories, clock: SteadyClock) -> None:
        self._manager = manager
        self._histories = histories
        self._clock = clock
        self._left_out = 0
        self.left_out = 0
        """Groups that the last round had no room for."""

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def record(self, group_id: str, at_ms: int, lag: Lag, topics: Mapping[str, Lag]) -> None:
        """A group as a round found it. An only topic has the group's history."""
        if not self._histories.observe(SeriesKey(group_id), at_ms, lag):
            self._left_out += 1
            return
        if len(topics) < 2:
            return
        for topic in heapq.nsmallest(TOPICS_MAX, topics):
            self._histories.observe(SeriesKey(group_id, topic), at_ms, topics[topic])

    async def end_round(self) -> None:
        left_out, self._left_out = self._left_out, 0
        await in_turns(self._histories.end_round(self.now_ms(), left_out))
        if left_out and not self.left_out:
            log.warning(
                "lag_group_histories_left_out",
                groups=left_out,
                consequence="their past lag is not told",
            )
        self.left_out = left_out
        await self._forget_deleted()

    async def _forget_deleted(self) -> None:
        resting = self._histories.resting()
        for first in range(0, len(resting), RESTING_A_TURN):
            some = resting[first : first + RESTING_A_TURN]
            self._histories.forget([key for key in some if self._is_deleted(key.group)])
            await trio.lowlevel.checkpoint()

    def _is_deleted(self, group_id: str) -> bool:
        """Not so while another broker coordinates it, or it is still to be loaded."""
        if group_id in self._manager.groups:
            return False
        return self._manager.describe_group(group_id).error == ErrorCode.NONE


def topic_lag(before: Lag | None, records: int, ms: int) -> Lag:
    """A topic's lag with one partition more; unknown once one partition's is."""
    if before is None:
        return Lag(records, ms)
    if records < 0 or before.records < 0:
        return NO_LAG
    return Lag(before.records + records, max(before.ms, ms))
