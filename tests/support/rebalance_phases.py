"""The five phases of a rebalance, as frames between members and coordinator.

They are those of the consumer rewrite design (seed 000): the coordinator (1) learns that the
members change, (2) tells the members, (3) gathers their requests to join, (4) writes the new
generation and its assignment, (5) answers the members. Wherever it dies, whatever was not answered
must be asked again, no partition gets two owners in one generation, and nothing committed is
forgotten. The group has two members, and a third one comes.
"""

from collections.abc import Callable

from tests.support.watching_proxy import Passing

JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
REBALANCE_IN_PROGRESS = 27


class Phase:
    """Says of each frame whether the phase is reached. Counts only once it is armed."""

    def __init__(self, is_reached: "Condition") -> None:
        self.seen: dict[tuple[bool, int], int] = {}
        self._is_reached = is_reached

    def is_reached(self, passing: Passing) -> bool:
        """Whether this frame is the one."""
        key = (passing.is_request, passing.api_key)
        self.seen[key] = self.seen.get(key, 0) + 1
        return self._is_reached(self, passing)

    def requests(self, api_key: int) -> int:
        """How many requests of an API have passed."""
        return self.seen.get((True, api_key), 0)


def _error_of_heartbeat(passing: Passing) -> int:
    at = 4 + (passing.version >= 4) + 4 * (passing.version >= 1)
    return int.from_bytes(passing.payload[at : at + 2], "big")


def learns(phase: Phase, passing: Passing) -> bool:
    """The new member has got its id and joins with it."""
    return passing.is_request and phase.requests(JOIN_GROUP) == 2


def tells(_phase: Phase, passing: Passing) -> bool:
    """One member has read that there is a rebalance."""
    is_answer = not passing.is_request and passing.api_key == HEARTBEAT
    return is_answer and _error_of_heartbeat(passing) == REBALANCE_IN_PROGRESS


def gathers(phase: Phase, passing: Passing) -> bool:
    """One member of the old generation has asked to join."""
    return passing.is_request and phase.requests(JOIN_GROUP) == 3


def writes(phase: Phase, passing: Passing) -> bool:
    """All have asked for their assignment, the leader with all of them in hand."""
    return passing.is_request and phase.requests(SYNC_GROUP) == 3


def answers(_phase: Phase, passing: Passing) -> bool:
    """One member has its new assignment."""
    return not passing.is_request and passing.api_key == SYNC_GROUP


Condition = Callable[[Phase, Passing], bool]
PHASES: tuple[Condition, ...] = (learns, tells, gathers, writes, answers)
