"""What a broker does for lag in seconds: histories, the groups' lag, and the answers about both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from pyrklog.base.client_places import ClientPlaces, NoPlaceError
from pyrklog.base.logs import get_logger
from pyrklog.cluster.metadata import Metadata
from pyrklog.config.broker import LAG_HISTORY_BYTES
from pyrklog.coordinators.calls import BrokerCalls
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.groups.group_manager import GroupManager
from pyrklog.lag.group_lags import GroupLags, Totals
from pyrklog.lag.histories import Histories
from pyrklog.lag.history_file import GROUPS, LOG_ENDS, HistoryFile
from pyrklog.lag.history_saver import HistorySaver
from pyrklog.lag.lag_histories import LagHistories, SeriesKey
from pyrklog.lag.lag_recorder import LagRecorder
from pyrklog.lag.leader_offsets import AllOffsets, LeaderOffsets, LedOffsets, TopicPartition
from pyrklog.lag.numbers import LagNumbers
from pyrklog.lag.pace import Pace, Work
from pyrklog.lag.past_lag import POINTS_AN_OFFSET, has_only, past_lag
from pyrklog.lag.sampler import Sampler
from pyrklog.lag.steady_clock import SteadyClock
from pyrklog.lag.turns import in_turns
from pyrklog.plane.core_plane import Plane, memory_bytes
from pyrklog.protocol.lag import (
    GROUPS_MAX,
    OFFSETS_MAX,
    PAGE_MAX,
    PARTITIONS_MAX,
    UNKNOWN,
    GroupLag,
    GroupLagRequest,
    GroupLagResponse,
    OffsetAge,
    PartitionLag,
    PartitionOffsetsRequest,
    PartitionOffsetsResponse,
    PartitionOffsetsResult,
    PartitionOffsetsTopicResult,
    PastEnd,
)

SHORTENED_LOOK_SECONDS = 60.0
LOOKED_MAX = 10_000
"""Offsets that are looked at for one answer to GroupLag."""
GROUPS_AN_OFFSET = 50
"""So many groups are gone through for a page in the time that one offset takes."""
WAITING_MAX = 64
"""Requests of each kind under way; one address has a quarter of these places."""

log = get_logger("lag")


class LagService:
    def __init__(
        self,
        metadata: Metadata,
        plane: Plane,
        manager: GroupManager,
        calls: BrokerCalls | None,
        *,
        folder: Path | None,
        clock: SteadyClock | None = None,
    ) -> None:
        """``calls`` None: the broker is alone; ``folder`` None: nothing is saved."""
        clock = SteadyClock() if clock is None else clock
        bytes_max = metadata.config.lag_history_bytes(memory_bytes())
        self._is_sampling = bytes_max > 0
        self._manager = manager
        self._histories = Histories(bytes_max // 2)
        self._sampler = Sampler(metadata, plane, self._histories, clock)
        self._group_histories = LagHistories(bytes_max // 2)
        self._clock = clock
        recorder = None
        if self._is_sampling:
            recorder = LagRecorder(manager, self._group_histories, clock)
        self._saver = self._group_saver = None
        if folder is not None and self._is_sampling:
            file, group_file = HistoryFile(folder, LOG_ENDS), HistoryFile(folder, GROUPS)
            self._saver = HistorySaver(file, self._histories, clock)
            self._group_saver = HistorySaver(group_file, self._group_histories, clock)
        self._led = LedOffsets(metadata, plane, self._histories, self._sampler, clock)
        ask = AllOffsets(metadata, self._led, calls).ask
        self.groups = GroupLags(manager, ask, recorder)
        self._forgotten = 0
        self._group_pace, self._group_places = Pace(), ClientPlaces(WAITING_MAX)
        self._offset_pace, self._offset_places = Pace(), ClientPlaces(WAITING_MAX)
        """Of requests about partitions, apart: coordinators wait two seconds for these."""

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            if self._is_sampling:
                if self._saver is not None:
                    self._sampler.looked_ms = await self._saver.load()
                    nursery.start_soon(self._saver.run)
                if self._group_saver is not None:
                    until_ms = await self._group_saver.load()
                    await in_turns(self._group_histories.begin(until_ms))
                    nursery.start_soon(self._group_saver.run)
                nursery.start_soon(self._sampler.run)
                nursery.start_soon(self._tell_shortened)
            nursery.start_soon(self.groups.run)

    async def _tell_shortened(self) -> None:
        """Once while histories are being shortened."""
        is_told = False
        while True:
            await trio.sleep(SHORTENED_LOOK_SECONDS)
            forgotten = self._histories.forgotten + self._group_histories.forgotten
            is_shortened = forgotten > self._forgotten
            if is_shortened and not is_told:
                log.warning(
                    "lag_history_shortened",
                    points=forgotten - self._forgotten,
                    consequence="long lag may be told as a least one, past lag less far back",
                    fix=f"set {LAG_HISTORY_BYTES} to more",
                )
            is_told = is_shortened
            self._forgotten = forgotten

    def numbers(self) -> LagNumbers:
        return LagNumbers(
            [(one.group_id, one.lag_ms) for one in self.groups.worst],
            self.groups.left_out,
            len(self._histories),
            self._histories.points,
            self._sampler.left_out,
            self._histories.forgotten,
        )

    async def rows(
        self, group_id: str, rows_max: int, topic: str | None
    ) -> tuple[list[PartitionLag], int]:
        """Of a group's first partitions, and how many more there are."""
        found = await self.groups.look_at(group_id, rows_max, topic)
        return found.rows, found.left_out

    # --- requests --------------------------------------------------------------------------------

    async def partition_offsets(
        self, request: PartitionOffsetsRequest, address: str
    ) -> PartitionOffsetsResponse:
        """Raises INVALID_REQUEST for too many offsets, or a partition named twice;
        THROTTLING_QUOTA_EXCEEDED while too many requests wait, of this address or of all."""
        questions: dict[TopicPartition, list[int]] = {}
        asked = 0
        for topic in request.topics:
            for one in topic.partitions:
                asked += max(1, len(one.offsets))
                if (topic.name, one.partition_index) in questions or asked > OFFSETS_MAX:
                    raise ApiError(ErrorCode.INVALID_REQUEST)
                questions[topic.name, one.partition_index] = one.offsets
        with _place(self._offset_places, address):
            back_ms = max(0, request.back_ms)
            answers = await self._led.answer(questions, self._offset_pace, back_ms=back_ms)
        return PartitionOffsetsResponse(
            topics=[
                PartitionOffsetsTopicResult(
                    topic.name,
                    [
                        _result(one.partition_index, answers[topic.name, one.partition_index])
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def group_lag(self, request: GroupLagRequest, address: str) -> GroupLagResponse:
        """Raises INVALID_REQUEST for too many groups, or a limit that is none;
        THROTTLING_QUOTA_EXCEEDED while too many requests wait, of this address or of all."""
        if request.groups is None:
            return await self._page(request, address)
        names = list(dict.fromkeys(request.groups))
        if len(names) > GROUPS_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if request.history_ms > 0:
            return await self._past(names, request, address)
        found: list[GroupLag] = []
        room = PARTITIONS_MAX
        with _place(self._group_places, address):
            async with self._group_pace.turn() as work:
                for name in names:
                    one = await self._named(name, room, work)
                    room -= len(one.partitions)
                    found.append(one)
        return GroupLagResponse(groups=found)

    async def _past(
        self, names: list[str], request: GroupLagRequest, address: str
    ) -> GroupLagResponse:
        if len(names) != 1:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        [name] = names
        answer = GroupLag(name, self._manager.describe_group(name).error)
        with _place(self._group_places, address):
            async with self._group_pace.turn() as work:
                topic = request.history_topic
                machine = self._manager.groups.get(name)
                if topic and machine is not None and has_only(machine.group.offsets, topic):
                    topic = ""
                history = self._group_histories.by_key.get(SeriesKey(name, topic))
                if history is not None:
                    found = past_lag(history, self._clock.now_ms(), request.history_ms)
                    work.offsets = 1 + len(found.ages_ms) // POINTS_AN_OFFSET
                    answer.history = [found]
        return GroupLagResponse(groups=[answer])

    async def _named(self, name: str, rows_max: int, work: Work) -> GroupLag:
        machine = self._manager.groups.get(name)
        if machine is None:
            error = self._manager.describe_group(name).error or ErrorCode.GROUP_ID_NOT_FOUND
            return GroupLag(name, error)
        offsets_max = LOOKED_MAX - work.offsets
        found = await self.groups.look_at(name, rows_max, offsets_max=offsets_max)
        work.offsets += found.looked
        answer = _group(found.totals, len(machine.group.members))
        answer.partitions, answer.left_out = found.rows, found.left_out
        return answer

    async def _page(self, request: GroupLagRequest, address: str) -> GroupLagResponse:
        if request.limit <= 0:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        if self._manager.is_loading:
            return GroupLagResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        with _place(self._group_places, address):
            async with self._group_pace.turn() as work:
                # Also what finds no group goes through all of them.
                work.offsets = self.groups.count // GROUPS_AN_OFFSET
                work.offsets += await self.groups.look_at_new(LOOKED_MAX)
                limit = min(request.limit, PAGE_MAX)
                found, after = self.groups.page(
                    request.after, limit, request.over_records, request.over_ms
                )
                machines = self._manager.groups
                groups = [
                    _group(one, len(machines[one.group_id].group.members))
                    for one in found
                    if one.group_id in machines
                ]
        return GroupLagResponse(
            groups=groups,
            after=after,
            left_out=self.groups.left_out,
            is_whole=self.groups.is_whole,
        )


@contextmanager
def _place(places: ClientPlaces, address: str) -> Iterator[None]:
    try:
        with places.place(address):
            yield
    except NoPlaceError:
        text = "As many requests for lag wait already as the broker keeps; come again."
        raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, text) from None


def _group(totals: Totals, members: int) -> GroupLag:
    return GroupLag(
        totals.group_id,
        members=members,
        lag=totals.lag,
        lag_ms=totals.lag_ms,
        is_least=totals.is_least,
        lost=totals.lost,
        trend=totals.trend,
        ahead=totals.ahead,
    )


def _result(partition: int, found: LeaderOffsets) -> PartitionOffsetsResult:
    past, end = found.past, found.data_end
    return PartitionOffsetsResult(
        partition,
        found.error,
        found.log_start,
        found.log_end,
        [
            OffsetAge(UNKNOWN) if age is None else OffsetAge(age.ms, age.is_least)
            for age in found.ages
        ],
        None if past is None else [PastEnd(past.age_ms, min(past.end, end), end)],
    )
