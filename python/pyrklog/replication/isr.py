"""The ISR of one partition, as its leader sees it. Pure.

The controller writes the ISR; the leader proposes changes (AlterPartition, KIP-497), one at a time.
Until the answer, both joining and leaving replicas count for the high watermark: whatever the
controller decides, every member has what clients were shown (``cluster.md``, section 4).
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
"""The leader is out of date: it waits for the next LeaderAndIsr."""

RESET = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Not now; replicas that still qualify are proposed again."""


class Proposal(NamedTuple):
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    """The version of the state that it changes."""


class Committed(NamedTuple):
    """The controller's last write."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    eligible: tuple[int, ...] = ()
    """Replicas outside the ISR that may lead (KIP-966): the high watermark stands still while there
    are any.
    """
    recovery_state: int = RECOVERED
    """RECOVERING while a leader elected uncleanly is alone."""


class InSyncReplicas:
    def __init__(self, leader: int, committed: Committed) -> None:
        self.leader = leader
        self.committed = committed
        self.pending: Proposal | None = None
        """Proposed, but not decided."""
        self._waits_for_controller = False

    @property
    def is_settled(self) -> bool:
        return self.pending is None and not self._waits_for_controller

    @property
    def maximal(self) -> tuple[int, ...]:
        """The replicas that the high watermark waits for: members and joining ones."""
        isr = self.committed.isr
        if self.pending is None:
            return isr
        return isr + tuple(broker for broker in self.pending.isr if broker not in isr)

    def caught_up(self, brokers: Collection[int]) -> Proposal | None:
        """Live followers that have reached the high watermark and the epoch's start."""
        isr = self.committed.isr
        joining = tuple(sorted(set(brokers) - set(isr)))
        return self._propose(isr + joining) if joining and self.is_settled else None

    def behind(self, brokers: Collection[int]) -> Proposal | None:
        isr = self.committed.isr
        staying = tuple(b for b in isr if b == self.leader or b not in brokers)
        return self._propose(staying) if staying != isr and self.is_settled else None

    def _propose(self, isr: tuple[int, ...]) -> Proposal:
        committed = self.committed
        self.pending = Proposal(isr, committed.leader_epoch, committed.partition_epoch)
        return self.pending

    def withdraw(self, proposal: Proposal) -> None:
        """Drops a proposal that was not sent and is not counted yet."""
        if self.pending == proposal:
            self.pending = None

    def told(self, committed: Committed) -> bool:
        """Takes a LeaderAndIsr for this leader; False when it is not newer."""
        before = self.committed
        is_newer = committed.leader_epoch > before.leader_epoch or (
            committed.leader_epoch == before.leader_epoch
            and committed.partition_epoch > before.partition_epoch
        )
        if is_newer:
            self._settle(committed)
        return is_newer

    def done(self, proposal: Proposal, answer: Committed) -> bool:
        """The controller has changed the ISR; False when the answer is out of date.

        An equal partition epoch changes nothing but ends the wait.
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
        """The controller refused; True when the same proposal is to be sent again.

        A proposal that is given up stays pending: it may have been written.
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
