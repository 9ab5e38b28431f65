"""Readers of committed records and of groups' offsets."""

from __future__ import annotations

from pyrklog.errors import ErrorCode
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from tests.sim.clients import FETCH_VERSION
from tests.sim.settings import TOPIC
from tests.sim.transactions.client import Client
from tests.sim.transactions.ledger import Ledger, Reading
from tests.sim.transactions.messages import CommittedRecords, Fetched, fetch_body, fetched
from tests.sim.transactions.offsets import fetch_offset
from tests.sim.world import World
from tests.support import wire

WAIT_MS = 300
PAUSE_US, WATCH_US = (1_000, 400_000), (1_000, 1_000_000)


class CommittedReader(Client):
    """Reads a partition from its start."""

    def __init__(self, world: World, ledger: Ledger, name: str, index: int) -> None:
        super().__init__(world)
        self.reading = Reading(ledger, name, index)
        self.offset = 0
        self._index = index

    async def follow(self, until_us: int) -> None:
        dice = self.world.heap.dice(f"reader {self._index}")
        while self.world.heap.now_us < until_us:
            await self.sleep(dice.randint(*PAUSE_US))
            await self.read(WAIT_MS)

    async def read(self, wait_ms: int) -> Fetched | None:
        """Reads on. Returns the answer, None if there is none."""
        found = self.leader(self._index)
        if found is None:
            return None
        broker, epoch = found
        body = fetch_body(TOPIC, self._index, epoch, self.offset, wait_ms)
        answer = await self.exchange(broker, wire.FETCH, FETCH_VERSION, body)
        if answer is None:
            return None
        got = fetched(answer)
        if got.error == ErrorCode.NONE:
            records = CommittedRecords(got, self.offset)
            for record in records:
                self.reading.take(record)
            self.offset = records.next_offset
        return got

    async def read_all(self) -> None:
        """Returns at the last stable offset. A still cluster's is its high watermark."""
        while True:
            got = await self.read(0)
            if got is not None and got.error == ErrorCode.NONE:
                if self.offset >= got.last_stable:
                    return
            else:
                await self.sleep(PAUSE_US[1])


class OffsetWatcher(Client):
    """Asks for a group's offset, without waiting for open transactions."""

    def __init__(self, world: World, ledger: Ledger, name: str) -> None:
        super().__init__(world)
        self._ledger = ledger
        self._name = name

    async def follow(self, until_us: int) -> None:
        dice = self.world.heap.dice(f"watcher {self._name}")
        while self.world.heap.now_us < until_us:
            await self.sleep(dice.randint(*WATCH_US))
            found = self.leader(0, OFFSETS_TOPIC)
            if found is not None:
                await self.look(found[0])

    async def look(self, broker: int, *, require_stable: bool = False) -> int | None:
        """The offset, None without an answer."""
        error, offset = await fetch_offset(self, broker, self._name, require_stable=require_stable)
        if error is not ErrorCode.NONE:
            return None
        self._ledger.offset_seen(self._name, offset)
        return offset

    async def final(self) -> int:
        """The offset that counts, of a still cluster."""
        while True:
            found = self.leader(0, OFFSETS_TOPIC)
            offset = None if found is None else await self.look(found[0], require_stable=True)
            if offset is not None:
                return offset
            await self.sleep(PAUSE_US[1])
