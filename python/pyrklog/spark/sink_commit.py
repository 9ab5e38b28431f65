"""The driver's part of the sink: decides a number, ends its transactions, cleans up.

The steps and every crash between them: ``docs/understanding/spark-sink.md``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from pyrklog.producing import OpenTransaction, ProduceError, UnsupportedClusterError
from pyrklog.spark.decisions import Decision, DecisionLog
from pyrklog.spark.sink_slots import ids_prefix
from pyrklog.spark.sink_task import Attempt

logger = logging.getLogger("pyrklog.spark")

# What a decision needs until all transactions are ended: 120 s for its own record and 30 s for the
# ends, where the time-out leaves so much.
_TO_DECIDE_S = 150.0
_TO_DECIDE_SHARE = 0.25


class NotDecidedError(ProduceError):
    """A transaction was over, or nearly, before it was decided. All were aborted; the number can be
    written again."""


class LostTransactionError(ProduceError):
    """A transaction was over after it was decided: its records are lost."""


class StaleNumberError(ProduceError):
    """A stream's number is older than the last one that was decided."""


class Ends(Protocol):
    """What the driver needs of ``pyrklog.producing.Transactions``."""

    def why_closed(self, transactions: Sequence[OpenTransaction]) -> list[str | None]: ...
    def commit(self, transactions: Sequence[OpenTransaction]) -> list[str | None]: ...
    def abort(self, transactions: Sequence[OpenTransaction]) -> None: ...
    def open_with_prefix(self, prefix: str) -> list[str]: ...
    def fence(self, transactional_id: str) -> tuple[int, int]: ...


class Committer:
    """Of one sink, for one call of Spark's: nothing is kept in between."""

    def __init__(
        self,
        sink: str,
        log: DecisionLog,
        ends: Ends,
        *,
        is_stream: bool,
        fail_on_data_loss: bool,
        timeout_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``timeout_s`` is the transactions'. ``clock`` gives seconds since 1970."""
        self._sink = sink
        self._log = log
        self._ends = ends
        self._is_stream = is_stream
        self._fail_on_data_loss = fail_on_data_loss
        self._timeout_s = timeout_s
        self._clock = clock

    def commit(self, number: int, attempts: Iterable[Attempt]) -> None:
        """Makes the attempts' records visible, unless the number is decided: then those of that
        decision. Raises NotDecidedError, LostTransactionError, StaleNumberError, ProduceError."""
        found = tuple(attempts)
        written = _transactions(found)
        self._log.take_over()
        last = self._log.last()
        if last is not None and last.number > number and self._is_stream:
            self._ends.abort(written)
            raise StaleNumberError(
                f"batch {number} of stream {self._sink} is older than batch {last.number}, which "
                "was written: the checkpoint was put back, and which rows were written since is "
                "not known; use a new checkpoint"
            )
        if last is not None:
            self._finish(last)
        if last is not None and last.number >= number:
            self._ends.abort(written)
            if not self._is_stream:
                logger.warning(
                    "%s was written before (the last one is %d): nothing is written. A new "
                    "checkpoint counts from 0 again and needs another txnAppId",
                    self._name(number),
                    last.number,
                )
        else:
            self._decide(number, found, written)
        self._sweep()

    def _decide(
        self, number: int, attempts: Sequence[Attempt], written: tuple[OpenTransaction, ...]
    ) -> None:
        if any(one.is_skipped for one in attempts):
            self._ends.abort(written)
            raise NotDecidedError(
                f"{self._name(number)} was decided when its tasks began, and is not any more: was "
                "the topic of decisions deleted?"
            )
        self._log.require_safe()
        self._require_open(number, written)
        self._require_time(number, attempts, written)
        decision = Decision(number, written, is_done=not written)
        self._log.write(decision)
        self._finish(decision)

    def abort(self, number: int, attempts: Iterable[Attempt]) -> None:
        """Aborts the attempts' transactions, unless the number is decided. Never raises
        ProduceError: what is left is aborted by its coordinator when its time is over."""
        written = _transactions(attempts)
        try:
            self._log.take_over()
            last = self._log.last()
            if last is not None and last.number < number:
                # Else its transactions would be swept away.
                self._finish(last)
            elif last is not None and not last.is_done:
                logger.warning(
                    "%s is decided, and the next run ends its transactions", self._name(last.number)
                )
                decided = {one.transactional_id for one in last.transactions}
                self._ends.abort([one for one in written if one.transactional_id not in decided])
                return
            self._ends.abort(written)
            self._sweep()
        except ProduceError as error:
            logger.warning(
                "%s is not written, and its transactions stay open until their time is over: %s",
                self._name(number),
                error,
            )

    def settle(self) -> int:
        """Ends what is known to be decided. The last such number, -1 for none: it and all below it
        are over."""
        last = self._log.peek()
        if last is not None and not last.is_done:
            # Another driver may decide a later number just now, which must stay the last one.
            self._log.take_over()
            last = self._log.last()
        if last is None:
            return -1
        self._finish(last)
        return last.number

    def _require_open(self, number: int, written: tuple[OpenTransaction, ...]) -> None:
        codes = self._ends.why_closed(written)
        closed = [
            f"{one.transactional_id} ({code})"
            for one, code in zip(written, codes, strict=True)
            if code is not None
        ]
        if closed:
            self._ends.abort(written)
            raise NotDecidedError(
                f"{self._name(number)} is not decided, and nothing of it is written: "
                f"{_some(closed)} of {len(written)} transactions were aborted before. Either they "
                "were open for longer than kafka.transaction.timeout.ms, or another run of the "
                "same query has ended them. It can be run again"
            )

    def _require_time(
        self, number: int, attempts: Sequence[Attempt], written: tuple[OpenTransaction, ...]
    ) -> None:
        """A transaction that is open now, and whose time is over before step 5 ends it, would be
        lost. A clock that is behind counts as one that is right: then step 3 must do."""
        opened = [one.opened_s for one in attempts if one.opened_s is not None]
        age_s = max(0.0, self._clock() - min(opened)) if opened else 0.0
        needed_s = min(_TO_DECIDE_S, self._timeout_s * _TO_DECIDE_SHARE)
        if age_s + needed_s > self._timeout_s:
            self._ends.abort(written)
            raise NotDecidedError(
                f"{self._name(number)} is not decided, and nothing of it is written: by the clocks "
                f"of driver and executors a transaction is open for {age_s:.0f} s, and would be "
                f"aborted after {self._timeout_s:.0f} s (kafka.transaction.timeout.ms), of which "
                f"the decision needs {needed_s:.0f} s. Write smaller batches "
                "(maxOffsetsPerTrigger), or allow more time. It can be run again"
            )

    def _finish(self, decision: Decision) -> None:
        if decision.is_done:
            return
        codes = self._ends.commit(decision.transactions)
        lost = [
            f"{one.transactional_id} ({code})"
            for one, code in zip(decision.transactions, codes, strict=True)
            if code is not None
        ]
        if lost:
            text = (
                f"records of {self._name(decision.number)} are lost: it was decided, and then "
                f"{_some(lost)} of {len(decision.transactions)} transactions were aborted. Either "
                "they were open for longer than kafka.transaction.timeout.ms, or another run of "
                "the same query has ended them"
            )
            if self._fail_on_data_loss:
                raise LostTransactionError(f"{text}. With failOnDataLoss=false the sink goes on")
            logger.warning("%s; failOnDataLoss is false", text)
        self._log.write(Decision(decision.number, is_done=True))

    def _sweep(self) -> None:
        """Aborts what attempts of this sink have left open: nothing of it will be decided. Else
        readers would wait for it."""
        try:
            for transactional_id in self._ends.open_with_prefix(ids_prefix(self._sink)):
                logger.info("transaction %s is aborted: nobody decides it", transactional_id)
                self._ends.fence(transactional_id)
        except UnsupportedClusterError as error:
            logger.info("open transactions cannot be listed: %s", error)
        except ProduceError as error:
            logger.warning("open transactions are left to their time-out: %s", error)

    def _name(self, number: int) -> str:
        if self._is_stream:
            return f"batch {number} of stream {self._sink}"
        app, _, topic = self._sink.partition("@")
        to = f" to topic {topic}" if topic else ""
        return f"txnVersion {number} of txnAppId {app}{to}"


def _transactions(attempts: Iterable[Attempt]) -> tuple[OpenTransaction, ...]:
    return tuple(one.transaction for one in attempts if one.transaction is not None)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"
