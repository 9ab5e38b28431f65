"""The in-sync replicas of one partition, as its leader sees them. Pure.

The controller writes the ISR; the leader asks for changes (AlterPartition, KIP-497), one at a time.
Until the answer is there a replica that is to join already counts for the high watermark, and one
that is to leave still does: whatever the controller decides, what was shown to clients is on every
member (``cluster.md``, section 4).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyrklog.errors import ErrorCode
from pyrklog.metastore.znodes import RECOVERED

GIVEN_UP = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The leader knows too little: the next LeaderAndIsr says how things stand."""

RESET = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Not now; whoever still qualifies is asked for anew."""


class Proposal(NamedTuple):
    """An ISR to ask for."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    """The version of the state that it builds on."""


class Committed(NamedTuple):
    """What the controller has written."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    eligible: tuple[int, ...] = ()
    """Replicas outside the ISR that may be elected as if they were in it: as long as there are any,
    the high watermark stands still."""
    recovery_state: int = RECOVERED
    """RECOVERING while a leader that was elected uncleanly is alone."""


class InSyncReplicas:
    """See the module."""

    def __init__(self, leader: int, committed: Committed) -> None:
        self.leader = leader
        self.committed = committed
        self.pending: Proposal | None = None
        """What was asked for and is not decided."""
        self._waits_for_controller = False

    @property
    def is_settled(self) -> bool:
        """Whether a change may be asked for."""
        return self.pending is None and not self._waits_for_controller

    @property
    def maximal(self) -> tuple[int, ...]:
        """Whom the high watermark waits for: members, and those who are to become members."""
        isr = self.committed.isr
        if self.pending is None:
            return isr
        return isr + tuple(broker for broker in self.pending.isr if broker not in isr)

    def caught_up(self, brokers: Collection[int]) -> Proposal | None:
        """Followers that have reached the high watermark and the epoch's start, and live."""
        isr = self.committed.isr
        joining = tuple(sorted(set(brokers) - set(isr)))
        return self._propose(isr + joining) if joining and self.is_settled else None

    def behind(self, brokers: Collection[int]) -> Proposal | None:
        """Followers that have not been caught up for too long."""
        isr = self.committed.isr
        staying = tuple(b for b in isr if b == self.leader or b not in brokers)
        return self._propose(staying) if staying != isr and self.is_settled else None

    def _propose(self, isr: tuple[int, ...]) -> Proposal:
        committed = self.committed
        self.pending = Proposal(isr, committed.leader_epoch, committed.partition_epoch)
        return self.pending

    def withdraw(self, proposal: Proposal) -> None:
        """It was not asked for, and nobody counts by it."""
        if self.pending == proposal:
            self.pending = None

    def told(self, committed: Committed) -> bool:
        """A LeaderAndIsr of this broker's leadership; false when it is not news."""
        before = self.committed
        is_newer = committed.leader_epoch > before.leader_epoch or (
            committed.leader_epoch == before.leader_epoch
            and committed.partition_epoch > before.partition_epoch
        )
        if is_newer:
            self._settle(committed)
        return is_newer

    def done(self, proposal: Proposal, answer: Committed) -> bool:
        """The controller has changed the ISR, or found it changed; false when that is out of date.

        An equal partition epoch is no news of its own but ends the waiting: nothing was to be done.
        """
        if self.pending != proposal:
            return False
        is_stale = (
            answer.leader_epoch != self.committed.leader_epoch
            or answer.partition_epoch < self.committed.partition_epoch
        )
        if is_stale:
            return False
        self._settle(answer)
        return True

    def failed(self, proposal: Proposal, error: ErrorCode) -> bool:
        """The controller refused; true when the same proposal is to be sent again.

        One that is given up stays pending: nobody knows whether it was written before.
        """
        if self.pending != proposal:
            return False
        if error in RESET:
            self.pending = None
            return False
        if error in GIVEN_UP:
            self._waits_for_controller = True
            return False
        return True

    def _settle(self, committed: Committed) -> None:
        self.committed = committed
        self.pending = None
        self._waits_for_controller = False
