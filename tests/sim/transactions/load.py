"""The transactional clients of a run: what they do until it ends, and what must hold then."""

from __future__ import annotations

import struct

from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from tests.sim.clients import FETCH_VERSION
from tests.sim.heap import Process
from tests.sim.internal_topics import PARTITION
from tests.sim.settings import TOPIC
from tests.sim.transactions.ledger import Ledger
from tests.sim.transactions.messages import fetch_body, fetched
from tests.sim.transactions.processor import RETURN_US, Processor
from tests.sim.transactions.readers import CommittedReader, OffsetWatcher
from tests.sim.world import World
from tests.support import wire

NAMES = {"one": 1, "two": 2}
"""Processors and their transaction versions."""
CONCLUDED_US = 20_000_000


class TransactionalLoad:
    def __init__(self, world: World, until_us: int) -> None:
        self._world = world
        self.ledger = Ledger(world.violated, world.heap.note)
        self._process = Process("readers")
        for name, version in NAMES.items():
            for life in range(len(RETURN_US)):
                Processor(world, self.ledger, name, life, version, until_us)
            watcher = OffsetWatcher(world, self.ledger, name)
            world.scheduler.run_in(self._process, watcher.follow, until_us)
        for index in world.settings.partitions:
            reader = CommittedReader(world, self.ledger, f"reader of t-{index}", index)
            world.scheduler.run_in(self._process, reader.follow, until_us)
        self._is_concluded = False

    # --- the end ---------------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """Whether a transaction hangs: why the cluster is not still, or None."""
        places = [(TOPIC, index) for index in self._world.settings.partitions]
        for topic, index in (*places, (OFFSETS_TOPIC, PARTITION)):
            hangs = self._hangs(topic, index)
            if hangs is not None:
                return f"{topic}-{index} {hangs}"
        return None

    def _hangs(self, topic: str, index: int) -> str | None:
        for life in self._world.live():
            view = life.sim.partition(topic, index)
            if view is None or view[0] != "Leader":
                continue
            request = fetch_body(topic, index, view[1], view[2][0], 0)
            frame = wire.header(wire.FETCH, FETCH_VERSION, 0) + request
            answer = life.exchange_now(struct.pack(">i", len(frame)) + frame)
            if answer is None:
                return "gives no answer"
            got = fetched(answer[4:])
            if got.error != ErrorCode.NONE or got.last_stable < got.high_watermark:
                return f"has the last stable offset {got.last_stable} of {got.high_watermark}"
            return None
        return "has no leader"

    def conclude(self) -> None:
        """Reads everything again. Raises :class:`tests.sim.cluster.Violation`."""
        world = self._world
        world.scheduler.run_in(self._process, self._conclude)
        deadline_us = world.heap.now_us + CONCLUDED_US
        while not self._is_concluded:
            if world.heap.now_us >= deadline_us:
                world.violated("offsets and records cannot be read in the end")
            world.run_until(world.heap.now_us + 100_000)

    async def _conclude(self) -> None:
        world, ledger = self._world, self.ledger
        offsets = {name: await OffsetWatcher(world, ledger, name).final() for name in NAMES}
        readings = []
        for index in world.settings.partitions:
            reader = CommittedReader(world, ledger, f"last reader of t-{index}", index)
            await reader.read_all()
            readings.append(reader.reading)
        ledger.conclude(offsets, readings)
        world.heap.note(f"offsets {offsets} in the end")
        self._is_concluded = True
