"""The states of a transactional id and their transitions."""

from collections.abc import Mapping
from enum import IntEnum


class TransactionState(IntEnum):
    """Values are those of ``__transaction_state``."""

    EMPTY = 0
    """No transaction since the producer's initialization."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """The transaction is committed; markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """The transactional id expires: its tombstone is being written."""
    PREPARE_EPOCH_FENCE = 7
    """The epoch is raised before an abort. Never in the log."""

    @property
    def protocol_name(self) -> str:
        """As in DescribeTransactions and ListTransactions."""
        return _NAMES[self]


_NAMES: Mapping[TransactionState, str] = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
    TransactionState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

STATES_BY_NAME: Mapping[str, TransactionState] = {name: state for state, name in _NAMES.items()}

PREPARING = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
AT_REST = frozenset(
    {
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    }
)
"""No transaction is open: the id may expire."""

_S = TransactionState
TRANSITIONS: Mapping[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.PREPARE_ABORT}),
}
"""From each state to its possible successors in the log."""
