"""The five phases of a rebalance, as frames between members and coordinator.

The coordinator (1) learns that the membership changes, (2) tells the members, (3) gathers their
JoinGroups, (4) writes the new generation and its assignment, (5) answers the members. Wherever it
dies, unanswered requests must be repeated, no partition gets two owners in one generation, and no
commit is lost. The group has two members, and a third one joins.
"""

from collections.abc import Callable

from tests.support.watching_proxy import Passing

JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
REBALANCE_IN_PROGRESS = 27


class Phase:
    """Decides for each frame whether the phase is reached. Counts only once armed."""

    def __init__(self, is_reached: "Condition") -> None:
        self.seen: dict[tuple[bool, int], int] = {}
        self._is_reached = is_reached

    def is_reached(self, passing: Passing) -> bool:
        key = (passing.is_request, passing.api_key)
        self.seen[key] = self.seen.get(key, 0) + 1
        return self._is_reached(self, passing)

    def requests(self, api_key: int) -> int:
        return self.seen.get((True, api_key), 0)


def _error_of_heartbeat(passing: Passing) -> int:
    at = 4 + (passing.version >= 4) + 4 * (passing.version >= 1)
    return int.from_bytes(passing.payload[at : at + 2], "big")


def learns(phase: Phase, passing: Passing) -> bool:
    """The new member joins with its id."""
    return passing.is_request and phase.requests(JOIN_GROUP) == 2


def tells(_phase: Phase, passing: Passing) -> bool:
    """One member has read that there is a rebalance."""
    is_answer = not passing.is_request and passing.api_key == HEARTBEAT
    return is_answer and _error_of_heartbeat(passing) == REBALANCE_IN_PROGRESS


def gathers(phase: Phase, passing: Passing) -> bool:
    """One member of the old generation has asked to join."""
    return passing.is_request and phase.requests(JOIN_GROUP) == 3


def writes(phase: Phase, passing: Passing) -> bool:
    """All have sent SyncGroup, the leader's with the assignment."""
    return passing.is_request and phase.requests(SYNC_GROUP) == 3


def answers(_phase: Phase, passing: Passing) -> bool:
    """One member has its new assignment."""
    return not passing.is_request and passing.api_key == SYNC_GROUP


Condition = Callable[[Phase, Passing], bool]
PHASES: tuple[Condition, ...] = (learns, tells, gathers, writes, answers)
