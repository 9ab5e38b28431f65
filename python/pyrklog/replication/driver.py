"""Carries out the controller's requests on this broker; the local end of ``BrokerChannel``.

A failed request, or a partition that the plane refuses, is logged and answered with
UNKNOWN_SERVER_ERROR; everything else goes on.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

import trio

from pyrklog.base.logs import get_logger
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LogEnd,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicPartition,
)
from pyrklog.cluster.wire import error_of
from pyrklog.errors import ErrorCode
from pyrklog.plane.core_plane import Plane
from pyrklog.plane.values import FollowerSpec, LeaderSpec
from pyrklog.replication.isr_manager import IsrManager
from pyrklog.replication.machine import LeadershipDecision, Replicas

Answered = Callable[[ControlResponse], None]
_Specs = Sequence[LeaderSpec | FollowerSpec]
_Stop = tuple[str, int, bool]
"""Topic, partition, whether to delete it."""
_Spec = TypeVar("_Spec", LeaderSpec, FollowerSpec, _Stop)

log = get_logger("replication")


class _Gathered:
    def __init__(self, errors: dict[TopicPartition, ErrorCode], answered: Answered) -> None:
        self.waits_for = 0
        self._errors = errors
        self._ends: dict[TopicPartition, LogEnd] = {}
        self._answered = answered

    def take(
        self, specs: _Specs, codes: Sequence[int], ends: Mapping[TopicPartition, LogEnd] = {}
    ) -> None:
        """One part is done; ``ends`` are of partitions without a leader."""
        self._ends.update(ends)
        for spec, code in zip(specs, codes, strict=True):
            self._errors[(spec.topic, spec.partition)] = error_of(code)
        self.waits_for -= 1
        if not self.waits_for:
            self._answered(LeaderAndIsrResponse(ErrorCode.NONE, self._errors, self._ends))


class ReplicationDriver:
    """Takes requests one at a time, in order; waits for the plane in other tasks."""

    def __init__(self, node_id: int, metadata: Metadata, plane: Plane) -> None:
        self.replicas = Replicas(node_id)
        self._metadata = metadata
        self._plane = plane
        self._orders_in, self._orders = trio.open_memory_channel[tuple[ControlRequest, Answered]](
            math.inf
        )
        self._registered = trio.Event()
        self.isrs: IsrManager | None = None
        """None where there are no other brokers."""
        self._stopping: dict[TopicPartition, trio.Event] = {}
        """Replicas being deleted: a new topic of the same name waits."""

    @property
    def isr_changes(self) -> tuple[int, int]:
        """How many ISRs of led partitions have grown, and how many have shrunk."""
        return (0, 0) if self.isrs is None else (self.isrs.expands, self.isrs.shrinks)

    def registered(self, broker_epoch: int) -> None:
        """Requests for earlier broker epochs are refused from now on."""
        self.replicas.registered(broker_epoch)
        self._plane.set_broker_epoch(broker_epoch)
        self._registered.set()

    def post(self, request: ControlRequest, answered: Answered) -> None:
        """See ``BrokerChannel``; the controller bounds the queue, since it waits for answers."""
        self._orders_in.send_nowait((request, answered))

    async def run(self) -> None:
        """Carries out requests until cancelled.

        Waits for the registration: a request before may be for an earlier life.
        """
        await self._registered.wait()
        async with trio.open_nursery() as nursery:
            async for request, answered in self._orders:
                try:
                    await self._carry_out(request, answered, nursery)
                except Exception as error:
                    kind = type(request).__name__.removesuffix("Request")
                    log.error("control_request_failed", request=kind, exc_info=error)
                    answered(_failure(request))

    async def _carry_out(
        self, request: ControlRequest, answered: Answered, nursery: trio.Nursery
    ) -> None:
        if isinstance(request, LeaderAndIsrRequest):
            await self._lead(request, answered, nursery)
        elif isinstance(request, StopReplicaRequest):
            self._stop(request, answered, nursery)
        else:
            error = self.replicas.metadata_told(request)
            if error is ErrorCode.NONE and not self.replicas.is_late(request):
                await self._metadata.load_options_of(request.topics)
                self._metadata.take_metadata(request)
                self.replicas.metadata_taken(request)
                if strays := self.replicas.strays(request):
                    log.warning("strays_stopped", partitions=len(strays))
                    self._stop_all(strays, {}, lambda _errors: None, nursery)
                if self.isrs is not None:
                    self.isrs.brokers_changed()
            answered(error)

    async def _lead(
        self, request: LeaderAndIsrRequest, answered: Answered, nursery: trio.Nursery
    ) -> None:
        decision = self.replicas.leadership_told(request)
        if decision.error is not ErrorCode.NONE:
            answered(LeaderAndIsrResponse(decision.error, {}))
            return
        try:
            await self._metadata.load_options_of(request.topics)
            self._metadata.take_partitions(request.topics)
            self._tell_isrs(request, decision)
        except Exception:
            self.replicas.not_begun([*decision.lead, *decision.follow])
            raise
        gathered = _Gathered(decision.errors, answered)
        # Each passes its specs to the plane in its first step: requests keep their order.
        if decision.lead:
            gathered.waits_for += 1
            nursery.start_soon(self._lead_all, decision.lead, gathered)
        if decision.follow:
            gathered.waits_for += 1
            nursery.start_soon(self._follow_all, decision.follow, gathered)
        if not gathered.waits_for:
            answered(LeaderAndIsrResponse(ErrorCode.NONE, decision.errors))

    def _tell_isrs(self, request: LeaderAndIsrRequest, decision: LeadershipDecision) -> None:
        if self.isrs is None:
            return
        led = {(spec.topic, spec.partition) for spec in decision.lead}
        for topic in request.topics:
            for info in topic.partitions:
                if (topic.topic, info.partition) in led:
                    self.isrs.leads(topic.topic, topic.topic_id, info)
        for spec in decision.follow:
            self.isrs.leads_no_more((spec.topic, spec.partition))

    async def _lead_all(self, specs: Sequence[LeaderSpec], gathered: _Gathered) -> None:
        await self._wait_for_deletions(specs)
        codes = await _each(self._plane.become_leaders, specs)
        overtaken = self.replicas.done(specs, codes)
        self._report("leading", specs, codes, overtaken)
        gathered.take(specs, codes)
        self._metadata.changes.notify()

    async def _follow_all(self, specs: Sequence[FollowerSpec], gathered: _Gathered) -> None:
        await self._wait_for_deletions(specs)
        codes = await _each(self._plane.become_followers, specs)
        overtaken = self.replicas.done(specs, codes)
        self._report("following", specs, codes, overtaken)
        gathered.take(specs, codes, self._ends_of(specs, codes))

    def _ends_of(
        self, specs: Sequence[FollowerSpec], codes: Sequence[int]
    ) -> dict[TopicPartition, LogEnd]:
        """The controller chooses a leader by them where all replicas may lack records."""
        asked = {
            (spec.topic, spec.partition): spec.leader_epoch
            for spec, code in zip(specs, codes, strict=True)
            if spec.leader < 0 and not code
        }
        if not asked:
            return {}
        ends = zip(asked.items(), self._plane.log_ends(list(asked)), strict=True)
        return {key: LogEnd(epoch, *end) for (key, epoch), end in ends if end is not None}

    async def _wait_for_deletions(self, specs: _Specs) -> None:
        for spec in specs:
            deletion = self._stopping.get((spec.topic, spec.partition))
            if deletion is not None:
                await deletion.wait()

    def _report(
        self,
        what: str,
        specs: _Specs,
        codes: Sequence[int],
        overtaken: Collection[TopicPartition],
    ) -> None:
        failed = [
            (spec, code)
            for spec, code in zip(specs, codes, strict=True)
            if code and (spec.topic, spec.partition) not in overtaken
        ]
        log.info(what, partitions=codes.count(0), failed=len(failed))
        for spec, code in failed:
            log.error(
                f"{what}_failed",
                topic=spec.topic,
                partition=spec.partition,
                error=error_of(code).name,
            )

    def _stop(self, request: StopReplicaRequest, answered: Answered, nursery: trio.Nursery) -> None:
        decision = self.replicas.stop_told(request)
        if decision.error is not ErrorCode.NONE:
            refused = {(r.topic, r.partition): decision.error for r in request.replicas}
            answered(StopReplicaResponse(decision.error, refused))
            return
        self._stop_all(
            decision.stop,
            decision.errors,
            lambda errors: answered(StopReplicaResponse(ErrorCode.NONE, errors)),
            nursery,
        )

    def _stop_all(
        self,
        stops: Sequence[_Stop],
        errors: Mapping[TopicPartition, ErrorCode],
        stopped: Callable[[dict[TopicPartition, ErrorCode]], None],
        nursery: trio.Nursery,
    ) -> None:
        """Calls ``stopped`` with ``errors`` and the results of the stops."""
        done = trio.Event()
        for topic, partition, _ in stops:
            self._stopping[(topic, partition)] = done
            if self.isrs is not None:
                self.isrs.leads_no_more((topic, partition))

        async def carry_out() -> None:
            found = dict(errors)
            try:
                codes = await _each(self._plane.stop_partitions, stops) if stops else []
            finally:
                done.set()
                for topic, partition, _ in stops:
                    # A replica is stopped first, then deleted: the later event counts.
                    if self._stopping.get((topic, partition)) is done:
                        del self._stopping[(topic, partition)]
            for (topic, partition, delete), code in zip(stops, codes, strict=True):
                found[(topic, partition)] = _stop_error(code)
                log.debug("stopped", topic=topic, partition=partition, delete=delete, code=code)
            stopped(found)

        nursery.start_soon(carry_out)

    def partition_failed(self, key: TopicPartition, topic_id: bytes) -> None:
        """Has no effect for an earlier topic of the name."""
        if self.replicas.hosts(key, topic_id):
            self.partitions_failed([key])

    def partitions_failed(self, partitions: Sequence[TopicPartition]) -> None:
        self.replicas.partitions_failed(partitions)
        if self.isrs is not None:
            for key in partitions:
                self.isrs.leads_no_more(key)
        self._metadata.changes.notify()


def _stop_error(code: int) -> ErrorCode:
    # A missing replica has stopped.
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return ErrorCode.NONE
    return error_of(code)


async def _each(
    act: Callable[[Sequence[_Spec]], Awaitable[Sequence[int]]], specs: Sequence[_Spec]
) -> Sequence[int]:
    """The plane's codes. What it refuses together is retried one by one."""
    try:
        return await act(specs)
    except Exception as error:
        if len(specs) == 1:
            topic, partition = specs[0][0], specs[0][1]
            log.error("partition_set_aside", topic=topic, partition=partition, exc_info=error)
            return [ErrorCode.UNKNOWN_SERVER_ERROR]
    return [code for spec in specs for code in await _each(act, [spec])]


def _failure(request: ControlRequest) -> ControlResponse:
    if isinstance(request, LeaderAndIsrRequest):
        return LeaderAndIsrResponse(ErrorCode.UNKNOWN_SERVER_ERROR, {})
    if isinstance(request, StopReplicaRequest):
        failed = {(r.topic, r.partition): ErrorCode.UNKNOWN_SERVER_ERROR for r in request.replicas}
        return StopReplicaResponse(ErrorCode.UNKNOWN_SERVER_ERROR, failed)
    return ErrorCode.UNKNOWN_SERVER_ERROR
