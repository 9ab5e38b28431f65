"""A cluster for the driver's part of the sink: transactions and decisions in memory, and a driver
that dies, is overtaken or runs out of time between any two of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyrklog.producing import (
    OpenTransaction,
    TransactionFencedError,
    UnsupportedClusterError,
)
from pyrklog.spark.decisions import Decision, DecisionLog, decoded, encoded
from pyrklog.spark.sink_commit import Committer
from pyrklog.spark.sink_slots import Slots
from pyrklog.spark.sink_task import Attempt

SINK = "query"
FENCED = "PRODUCER_FENCED"
TIMEOUT_S = 60.0
"""Of the transactions."""


class Died(BaseException):
    """The driver's process is gone: nothing of it runs any more."""


@dataclass
class Transaction:
    """Of a transactional id: its present epoch, and what becomes of its records."""

    producer_id: int
    epoch: int = 0
    state: str = "none"
    records: list[str] = field(default_factory=list)


class World:
    """All that outlives a driver. ``at_step`` is called before and after each of its effects."""

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.decisions: list[bytes] = []
        self.visible: Counter[str] = Counter()
        self.owner = 0
        self.can_list = True
        self.now_s = 0.0
        self.while_asked: Callable[[], None] = lambda: None
        """What happens while a driver asks whether the topic of decisions keeps them."""
        self.steps = 0
        self.at_step: Callable[[int], None] = lambda step: None

    def step(self) -> None:
        self.steps += 1
        self.at_step(self.steps)

    def die_at(self, step: int) -> None:
        """The driver dies at this step from now on."""
        last = self.steps + step

        def die(now: int) -> None:
            if now == last:
                raise Died

        self.at_step = die

    def once_at(self, step: int, act: Callable[[], None]) -> None:
        """Something happens at this step from now on."""
        last = self.steps + step

        def run(now: int) -> None:
            if now == last:
                self.at_step = lambda step: None
                act()

        self.at_step = run

    def init(self, transactional_id: str) -> tuple[int, int]:
        known = self.transactions.setdefault(
            transactional_id, Transaction(len(self.transactions) + 1, -1)
        )
        if known.state == "open":
            self._end(known, "aborted")
        known.epoch += 1
        known.state = "none"
        return known.producer_id, known.epoch

    def write(self, transactional_id: str, records: Sequence[str]) -> OpenTransaction:
        producer = self.init(transactional_id)
        known = self.transactions[transactional_id]
        known.state, known.records = "open", list(records)
        return OpenTransaction(transactional_id, *producer, (("t", (0,)),))

    def expire(self) -> None:
        """The time of all open transactions is over."""
        for known in self.transactions.values():
            if known.state == "open":
                self._end(known, "aborted")
                known.epoch += 1

    def end(self, one: OpenTransaction, state: str) -> str | None:
        known = self.transactions[one.transactional_id]
        if (known.producer_id, known.epoch) != (one.producer_id, one.epoch):
            return FENCED
        if known.state == "open":
            self._end(known, state)
        return None if known.state == state else "INVALID_TXN_STATE"

    def _end(self, known: Transaction, state: str) -> None:
        known.state = state
        if state == "committed":
            self.visible.update(known.records)

    def open_ids(self) -> list[str]:
        return sorted(name for name, one in self.transactions.items() if one.state == "open")


class WorldEnds:
    """Of one driver."""

    def __init__(self, world: World) -> None:
        self._world = world

    def why_closed(self, transactions: Sequence[OpenTransaction]) -> list[str | None]:
        self._world.step()
        found = [(one, self._world.transactions[one.transactional_id]) for one in transactions]
        return [
            None if known.state == "open" and known.epoch == one.epoch else FENCED
            for one, known in found
        ]

    def commit(self, transactions: Sequence[OpenTransaction]) -> list[str | None]:
        return self._each(transactions, "committed")

    def abort(self, transactions: Sequence[OpenTransaction]) -> None:
        self._each(transactions, "aborted")

    def _each(self, transactions: Sequence[OpenTransaction], state: str) -> list[str | None]:
        codes = []
        for one in transactions:
            self._world.step()
            codes.append(self._world.end(one, state))
            self._world.step()
        return codes

    def open_with_prefix(self, prefix: str) -> list[str]:
        if not self._world.can_list:
            raise UnsupportedClusterError("there is no ListTransactions")
        self._world.step()
        return [name for name in self._world.open_ids() if name.startswith(prefix)]

    def fence(self, transactional_id: str) -> tuple[int, int]:
        self._world.step()
        return self._world.init(transactional_id)


class WorldLog:
    """Of one driver: it writes only while nobody has taken over since."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._token = 0

    def require_safe(self) -> None:
        self._world.while_asked()
        self._world.step()

    def take_over(self) -> None:
        self._world.step()
        self._world.owner += 1
        self._token = self._world.owner
        self._world.step()

    def peek(self) -> Decision | None:
        return self.last()

    def last(self) -> Decision | None:
        self._world.step()
        return decoded(self._world.decisions[-1]) if self._world.decisions else None

    def write(self, decision: Decision) -> None:
        self._world.step()
        if self._token == 0:
            self.take_over()
        if self._token != self._world.owner:
            raise TransactionFencedError("another driver has taken over")
        self._world.decisions.append(encoded(decision))
        self._world.step()


class Stream:
    """A query whose checkpoint is ``done``: it runs the next number until that is committed."""

    def __init__(self, world: World, *, fail_on_data_loss: bool = True) -> None:
        self.world = world
        self.done = -1
        self.runs = 0
        self._fail_on_data_loss = fail_on_data_loss
        self.start()

    def start(self) -> None:
        """A new driver with new workers."""
        self.runs += 1
        self.slots = [Slots(f"{self.runs}-{worker}") for worker in range(2)]

    def committer(self) -> Committer:
        return Committer(
            SINK,
            self.log(),
            WorldEnds(self.world),
            is_stream=True,
            fail_on_data_loss=self._fail_on_data_loss,
            timeout_s=TIMEOUT_S,
            clock=lambda: self.world.now_s,
        )

    def log(self) -> DecisionLog:
        """Of a new driver, or of a task."""
        return WorldLog(self.world)

    def attempts(self, number: int) -> list[Attempt]:
        """Two tasks and a half: one has no rows, and one of the others fails first."""
        last = self.log().peek()
        if last is not None and last.number >= number:
            return [Attempt(SINK, number, is_skipped=True)] * 3
        self._attempt(number, 0, ["never"])
        return [
            self._attempt(number, 0, [f"{number}a", f"{number}b"]),
            self._attempt(number, 1, [f"{number}c"]),
            Attempt(SINK, number),
        ]

    def _attempt(self, number: int, worker: int, records: list[str]) -> Attempt:
        slot = self.slots[worker].take(SINK, number, number - 1)
        transaction = self.world.write(slot.transactional_id, records)
        self.slots[worker].give_back(slot, is_open=True)
        opened_s = self.world.now_s
        return Attempt(SINK, number, len(records), transaction, opened_s=opened_s)

    def run_next(self) -> None:
        """As Spark does: the number is done when its commit returns."""
        number = self.done + 1
        self.committer().commit(number, self.attempts(number))
        self.done = number

    @staticmethod
    def expected(numbers: int) -> Counter[str]:
        return Counter(f"{number}{part}" for number in range(numbers) for part in "abc")
