"""Log starts, log ends and ages of offsets: of partitions led here, and of those led elsewhere,
which their leaders are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import trio

from pyrklog.base.logs import get_logger
from pyrklog.cluster.metadata import Metadata
from pyrklog.coordinators.calls import BrokerCalls, PeerUnreachableError
from pyrklog.errors import ErrorCode
from pyrklog.lag.histories import Histories, PartitionKey
from pyrklog.lag.history import Age, History, PastPoint
from pyrklog.lag.pace import Pace
from pyrklog.lag.sampler import Sampler
from pyrklog.lag.steady_clock import SteadyClock
from pyrklog.plane.core_plane import Plane
from pyrklog.protocol.lag import (
    PARTITION_OFFSETS,
    UNKNOWN,
    PartitionOffsetsPartition,
    PartitionOffsetsRequest,
    PartitionOffsetsResponse,
    PartitionOffsetsTopic,
)

ANSWER_SECONDS = 2.0
SILENT_SECONDS = 10.0
"""A broker that has not answered is left alone for so long."""
OFFSETS_A_TURN = 200

log = get_logger("lag")

TopicPartition = tuple[str, int]
Questions = Mapping[TopicPartition, Sequence[int]]


class LeaderOffsets(NamedTuple):
    """``ages`` in order of the offsets asked for; None: unknown. ``past``: where the log ended so
    long ago, or when this broker began to lead; ``data_end``: now, without transaction markers
    behind it."""

    error: ErrorCode = ErrorCode.NONE
    log_start: int = UNKNOWN
    log_end: int = UNKNOWN
    ages: Sequence[Age | None] = ()
    data_end: int = UNKNOWN
    past: PastPoint | None = None
    exists: bool = True


GONE = LeaderOffsets(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, exists=False)
"""Of a partition that the cluster does not have, which is no lack of an answer."""
Answers = dict[TopicPartition, LeaderOffsets]


class LedOffsets:
    """Of partitions that this broker leads."""

    def __init__(
        self,
        metadata: Metadata,
        plane: Plane,
        histories: Histories,
        sampler: Sampler,
        clock: SteadyClock,
    ) -> None:
        self._metadata = metadata
        self._plane = plane
        self._histories = histories
        self._sampler = sampler
        self._clock = clock

    async def answer(
        self, questions: Questions, pace: Pace | None = None, *, back_ms: int = 0
    ) -> Answers:
        """In turns of :data:`OFFSETS_A_TURN`, those of ``pace`` if there is one. ``back_ms``: also
        the log ends so long ago."""
        answers: Answers = {}
        for some in _turns(questions):
            if pace is None:
                self._answer_some(some, answers, back_ms)
                await trio.lowlevel.checkpoint()
            else:
                async with pace.turn() as work:
                    self._answer_some(some, answers, back_ms)
                    work.offsets = sum(max(1, len(offsets)) for offsets in some.values())
        return answers

    def _answer_some(self, questions: Questions, answers: Answers, back_ms: int) -> None:
        keys = list(questions)
        data_ends = self._plane.data_ends(keys)
        starts, ends = self._plane.log_starts(keys), self._plane.log_ends(keys)
        now_ms = self._clock.now_ms()
        for key, start, end, data_end in zip(keys, starts, ends, data_ends, strict=True):
            if start.error or end is None:
                error = ErrorCode(start.error or ErrorCode.NOT_LEADER_OR_FOLLOWER)
                found = LeaderOffsets(error, ages=[None] * len(questions[key]))
            else:
                caught_up = end[1] if data_end is None else data_end
                name, history = self._history(key)
                ages = self._ages(history, questions[key], caught_up, now_ms)
                found = LeaderOffsets(ErrorCode.NONE, start.own, end[1], ages)
                since_ms = None if name is None else self._sampler.led_since(name)
                if back_ms > 0 and history is not None and since_ms is not None:
                    past = history.past(min(back_ms, max(0, now_ms - since_ms)), now_ms)
                    found = found._replace(data_end=caught_up, past=past)
            before = answers.get(key)
            answers[key] = found if before is None else _joined(before, found)

    def _history(self, key: TopicPartition) -> tuple[PartitionKey | None, History | None]:
        entry = self._metadata.image.topics.get(key[0])
        if entry is None:
            return None, None
        name = PartitionKey(key[0], entry.id, key[1])
        return name, self._histories.by_key.get(name)

    def _ages(
        self, history: History | None, offsets: Sequence[int], end: int, now_ms: int
    ) -> list[Age | None]:
        """``end``: of the data. Behind it are only transaction markers, which no group reads."""
        if history is None:
            return [Age(0) if one >= end else None for one in offsets]
        if offsets:
            history.asked_ms = now_ms
        unmoved_ms = self._sampler.looked_ms
        return [Age(0) if one >= end else history.age(one, now_ms, unmoved_ms) for one in offsets]


def _joined(before: LeaderOffsets, found: LeaderOffsets) -> LeaderOffsets:
    """Of further offsets of the same partition. One that was lost meanwhile is an error."""
    error = before.error or found.error
    if error:
        return LeaderOffsets(error, ages=[None] * (len(before.ages) + len(found.ages)))
    return found._replace(ages=[*before.ages, *found.ages])


def _turns(questions: Questions) -> Iterator[Questions]:
    """Each has at most :data:`OFFSETS_A_TURN` offsets. Those of one partition may need several."""
    some: dict[TopicPartition, Sequence[int]] = {}
    count = 0
    for key, offsets in questions.items():
        for first in range(0, max(1, len(offsets)), OFFSETS_A_TURN):
            part = offsets[first : first + OFFSETS_A_TURN]
            weight = max(1, len(part))
            if count + weight > OFFSETS_A_TURN:
                yield some
                some, count = {}, 0
            some[key] = part
            count += weight
    if some:
        yield some


class AllOffsets:
    """Of any partitions. What no leader tells stays unknown; what there is not, is :data:`GONE`."""

    def __init__(self, metadata: Metadata, led: LedOffsets, calls: BrokerCalls | None) -> None:
        """``calls`` None: the broker is alone."""
        self._metadata = metadata
        self._led = led
        self._calls = calls
        self._silent_until: dict[int, float] = {}

    async def ask(self, questions: Questions) -> Answers:
        """Of at most :data:`pyrklog.protocol.lag.OFFSETS_MAX` offsets."""
        answers: Answers = {}
        own: dict[TopicPartition, Sequence[int]] = {}
        others: dict[int, dict[TopicPartition, Sequence[int]]] = {}
        for key, offsets in questions.items():
            known = self._metadata.image.partition(*key)
            if known is None:
                # The image is whole before this broker coordinates a group.
                answers[key] = GONE
            elif known.leader == self._metadata.node_id:
                own[key] = offsets
            elif known.leader >= 0:
                others.setdefault(known.leader, {})[key] = offsets
        if others and self._calls is not None:
            async with trio.open_nursery() as nursery:
                for broker, asked in others.items():
                    nursery.start_soon(self._ask_other, self._calls, broker, asked, answers)
                answers.update(await self._led.answer(own))
        else:
            answers.update(await self._led.answer(own))
        return answers

    async def _ask_other(
        self, calls: BrokerCalls, broker: int, questions: Questions, answers: Answers
    ) -> None:
        if trio.current_time() < self._silent_until.get(broker, 0.0):
            return
        reason = f"no answer within {ANSWER_SECONDS:g} s"
        with trio.move_on_after(ANSWER_SECONDS):
            try:
                asked = _request(questions)
                response = await calls.call(broker, PARTITION_OFFSETS, 0, asked)
                answers.update(_answers(response, questions))
                self._silent_until.pop(broker, None)
                return
            except PeerUnreachableError as error:
                reason = str(error)
        self._silent_until[broker] = trio.current_time() + SILENT_SECONDS
        log.debug("partition_offsets_unknown", broker=broker, reason=reason)


def _request(questions: Questions) -> PartitionOffsetsRequest:
    topics: dict[str, list[PartitionOffsetsPartition]] = {}
    for (topic, partition), offsets in questions.items():
        asked = PartitionOffsetsPartition(partition, list(offsets))
        topics.setdefault(topic, []).append(asked)
    return PartitionOffsetsRequest([PartitionOffsetsTopic(*one) for one in topics.items()])


def _answers(response: PartitionOffsetsResponse, questions: Questions) -> Answers:
    """What was asked for; anything else is dropped."""
    found: Answers = {}
    for topic in response.topics:
        for one in topic.partitions:
            key = (topic.name, one.partition_index)
            if key not in questions or len(one.ages) != len(questions[key]):
                continue
            ages = [None if age.age_ms < 0 else Age(age.age_ms, age.is_least) for age in one.ages]
            if one.error_code == ErrorCode.NONE:
                found[key] = LeaderOffsets(
                    ErrorCode.NONE, one.log_start_offset, one.log_end_offset, ages
                )
    return found
