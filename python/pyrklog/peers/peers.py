"""Puts together what only a broker of a cluster has."""

from __future__ import annotations

from collections.abc import Callable

import trio

from pyrklog.base.logs import get_logger
from pyrklog.base.told import Told
from pyrklog.cluster.metadata import Metadata
from pyrklog.cluster.requests import ControllerService, ProducerIdsResponse
from pyrklog.config.broker import BrokerConfig
from pyrklog.errors import ErrorCode
from pyrklog.peers.connection import PeerError
from pyrklog.peers.controller_link import ControllerLink
from pyrklog.plane.core_plane import Plane
from pyrklog.replication.driver import ReplicationDriver
from pyrklog.replication.isr_manager import IsrManager

ASK_RETRY_SECONDS = 0.1
TELL_SECONDS = 5.0
"""How long the same failure is not logged again: it is retried ten times a second."""
REASONS_MAX = 10
LEAVE_TRIES = 3
"""Kafka's ``controlled.shutdown.max.retries``."""
LEAVE_RETRY_SECONDS = 0.1
LEAVE_LIMIT_SECONDS = 5.0
"""Without any progress."""
LEAVE_LONGEST_SECONDS = 300.0

log = get_logger("peers")


class Peers:
    """The link to the controller, and the ISRs that depend on it."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: Metadata,
        replication: ReplicationDriver,
        plane: Plane,
        own: ControllerService,
        controller_id: Callable[[], int],
    ) -> None:
        self._link = ControllerLink(metadata, controller_id, own, config.listeners.inter_broker)
        self._isrs = IsrManager(
            metadata.node_id,
            plane,
            live_brokers=lambda: {broker.id for broker in metadata.image.brokers},
            broker_epoch=lambda: replication.replicas.broker_epoch,
            on_proposed=self._has_proposals,
        )
        self._replication = replication
        self._max_lag_ms = config.integer("replica.lag.time.max.ms")
        self._proposed = trio.Event()
        self._not_asked = Told(TELL_SECONDS, REASONS_MAX, trio.current_time)
        replication.isrs = self._isrs

    def _has_proposals(self) -> None:
        self._proposed.set()

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look_for_laggards)
                nursery.start_soon(self._alter_partitions)
        finally:
            with trio.CancelScope(shield=True):
                await self._link.close()

    async def _look_for_laggards(self) -> None:
        while True:
            await trio.sleep(self._max_lag_ms / 2000)
            try:
                self._isrs.look_for_laggards(self._max_lag_ms)
            except Exception as error:
                log.error("laggards_not_looked_for", exc_info=error)

    async def _alter_partitions(self) -> None:
        """Sends all proposals in one request; after a failure one by one, to find the one that
        fails.
        """
        is_one_by_one = False
        while True:
            asked = self._isrs.proposals
            if not asked:
                is_one_by_one = False
                self._proposed = trio.Event()
                await self._proposed.wait()
                continue
            if is_one_by_one:
                asked = dict([next(iter(asked.items()))])
            try:
                response = await self._link.alter_partitions(self._isrs.request(asked))
                is_done = self._isrs.take(asked, response)
            except PeerError as error:
                if self._not_asked.is_due(str(error)):
                    log.warning("isr_not_asked", reason=str(error), partitions=len(asked))
                is_done = False
            except Exception as error:
                if self._not_asked.is_due(repr(error)):
                    log.error("isr_not_asked", exc_info=error, partitions=len(asked))
                is_done = False
                is_one_by_one = True
                if len(asked) == 1:
                    self._isrs.set_aside(next(iter(asked)))
            if not is_done:
                await trio.sleep(ASK_RETRY_SECONDS)

    async def allocate_producer_ids(self) -> ProducerIdsResponse:
        """An error while no controller answers."""
        try:
            return await self._link.allocate_producer_ids(self._replication.replicas.broker_epoch)
        except PeerError as error:
            log.warning("no_producer_ids", reason=str(error))
            return ProducerIdsResponse(ErrorCode.NOT_CONTROLLER, None)

    async def leave(self, broker_epoch: int) -> None:
        """Controlled shutdown: others take over what this broker leads.

        Waits while there is progress: a broker may lead a hundred thousand partitions.
        """
        has_ended = trio.Event()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hand_over, broker_epoch, has_ended)
            progress = self._progress()
            while True:
                with trio.move_on_after(LEAVE_LIMIT_SECONDS):
                    await has_ended.wait()
                before, progress = progress, self._progress()
                is_late = trio.current_time() - began >= LEAVE_LONGEST_SECONDS
                if has_ended.is_set():
                    break
                if is_late or progress == before:
                    reason = f"nothing more within {LEAVE_LIMIT_SECONDS:g} s"
                    log.warning("not_left", reason=reason, leading=progress[0])
                    break
            nursery.cancel_scope.cancel()

    def _progress(self) -> tuple[int, int]:
        """Partitions that this broker leads, and the sum of leader epochs."""
        hosted = self._replication.replicas.hosted.values()
        return sum(item.leads for item in hosted), sum(item.leader_epoch for item in hosted)

    async def _hand_over(self, broker_epoch: int, has_ended: trio.Event) -> None:
        tries = LEAVE_TRIES
        while tries:
            before = self._progress()
            try:
                response = await self._link.shut_down(broker_epoch)
            except PeerError as error:
                log.warning("not_left", reason=str(error))
            except Exception as error:
                # The logs must be closed cleanly all the same.
                log.error("not_left", exc_info=error)
            else:
                if response.error is ErrorCode.NONE and not response.remaining:
                    log.info("left")
                    break
                log.warning(
                    "not_left", error=response.error.name, remaining=len(response.remaining)
                )
            tries -= self._progress() == before
            await trio.sleep(LEAVE_RETRY_SECONDS)
        has_ended.set()
