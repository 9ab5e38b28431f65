"""The states of a group and their transitions."""

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    """Values are the protocol's names."""

    EMPTY = "Empty"
    """No members; the group is kept while it has offsets."""
    PREPARING = "PreparingRebalance"
    """Waiting for members to join (again)."""
    COMPLETING = "CompletingRebalance"
    """A generation has begun; the leader's assignment has not come yet."""
    STABLE = "Stable"
    """Each member has its assignment."""
    DEAD = "Dead"
    """Deleted, expired, or coordinated elsewhere."""


TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.PREPARING: frozenset({GroupState.COMPLETING, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING: frozenset({GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
"""From each state to its possible successors."""
