"""Carries out the controller's orders on this broker; the local end of ``BrokerChannel``."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import trio

from pyrklog.controller.requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    TopicPartition,
)
from pyrklog.dataplane import Plane
from pyrklog.errors import ErrorCode
from pyrklog.image import LeaderSpec
from pyrklog.logs import get_logger
from pyrklog.metadata import Metadata
from pyrklog.replication.machine import LeadershipDecision, Replicas

Answered = Callable[[ControlResponse], None]

log = get_logger("replication")


class ReplicationDriver:
    """Takes orders one at a time, in order; waits for the plane beside it."""

    def __init__(self, node_id: int, metadata: Metadata, plane: Plane) -> None:
        self.replicas = Replicas(node_id)
        self._metadata = metadata
        self._plane = plane
        self._orders_in, self._orders = trio.open_memory_channel[tuple[ControlRequest, Answered]](
            math.inf
        )
        self._stopping: dict[TopicPartition, trio.Event] = {}
        """Replicas whose deletion is under way: a topic of the same name waits for it."""

    def post(self, request: ControlRequest, answered: Answered) -> None:
        """See ``BrokerChannel``; the bound is the controller's, which waits for answers."""
        self._orders_in.send_nowait((request, answered))

    async def run(self) -> None:
        """Carries out orders until cancelled."""
        async with trio.open_nursery() as nursery:
            async for request, answered in self._orders:
                if isinstance(request, LeaderAndIsrRequest):
                    await self._lead(request, answered, nursery)
                elif isinstance(request, StopReplicaRequest):
                    self._stop(request, answered, nursery)
                else:
                    error = self.replicas.metadata_told(request)
                    if error is ErrorCode.NONE:
                        await self._metadata.load_options_of(request.topics)
                        self._metadata.take_metadata(request)
                    answered(error)

    async def _lead(
        self, request: LeaderAndIsrRequest, answered: Answered, nursery: trio.Nursery
    ) -> None:
        decision = self.replicas.leadership_told(request)
        if decision.error is not ErrorCode.NONE:
            answered(LeaderAndIsrResponse(decision.error, {}))
            return
        await self._metadata.load_options_of(request.topics)
        self._metadata.take_partitions(request.topics)
        nursery.start_soon(self._carry_out, decision, answered)

    async def _carry_out(self, decision: LeadershipDecision, answered: Answered) -> None:
        errors = dict(decision.errors)
        if decision.stop:
            stopped = await self._plane.stop_partitions([(*key, False) for key in decision.stop])
            for key, code in zip(decision.stop, stopped, strict=True):
                errors[key] = _stop_error(code)
        if decision.lead:
            await self._wait_for_deletions(decision.lead)
            codes = await self._plane.become_leaders(decision.lead)
            overtaken = self.replicas.lead_done(decision.lead, codes)
            self._report(decision.lead, codes, overtaken)
            for spec, code in zip(decision.lead, codes, strict=True):
                errors[(spec.topic, spec.partition)] = ErrorCode(code)
            self._metadata.changes.notify()
        answered(LeaderAndIsrResponse(ErrorCode.NONE, errors))

    async def _wait_for_deletions(self, specs: Sequence[LeaderSpec]) -> None:
        for spec in specs:
            deletion = self._stopping.get((spec.topic, spec.partition))
            if deletion is not None:
                await deletion.wait()

    def _report(
        self,
        specs: Sequence[LeaderSpec],
        codes: Sequence[int],
        overtaken: Collection[TopicPartition],
    ) -> None:
        failed = [
            (spec, code)
            for spec, code in zip(specs, codes, strict=True)
            if code and (spec.topic, spec.partition) not in overtaken
        ]
        log.info("leading", partitions=codes.count(0), failed=len(failed))
        for spec, code in failed:
            log.error(
                "leading_failed",
                topic=spec.topic,
                partition=spec.partition,
                error=ErrorCode(code).name,
            )

    def _stop(self, request: StopReplicaRequest, answered: Answered, nursery: trio.Nursery) -> None:
        decision = self.replicas.stop_told(request)
        if decision.error is not ErrorCode.NONE:
            refused = {(r.topic, r.partition): decision.error for r in request.replicas}
            answered(StopReplicaResponse(decision.error, refused))
            return
        done = trio.Event()
        for topic, partition, _ in decision.stop:
            self._stopping[(topic, partition)] = done

        async def carry_out() -> None:
            errors = dict(decision.errors)
            try:
                codes = await self._plane.stop_partitions(decision.stop) if decision.stop else []
            finally:
                done.set()
                for topic, partition, _ in decision.stop:
                    self._stopping.pop((topic, partition), None)
            for (topic, partition, delete), code in zip(decision.stop, codes, strict=True):
                errors[(topic, partition)] = _stop_error(code)
                log.debug("stopped", topic=topic, partition=partition, delete=delete, code=code)
            answered(StopReplicaResponse(ErrorCode.NONE, errors))

        nursery.start_soon(carry_out)

    def log_dir_failed(self, partitions: Sequence[TopicPartition]) -> None:
        """The plane lost a log directory."""
        self.replicas.log_dir_failed(partitions)
        self._metadata.changes.notify()


def _stop_error(code: int) -> ErrorCode:
    # A replica that is not there has stopped.
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        return ErrorCode.NONE
    return ErrorCode(code)
