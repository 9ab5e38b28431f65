"""The coordinator is killed in each phase of a rebalance, and the group comes through.

The phases are those of the consumer rewrite design (seed 000): the coordinator (1) learns that the
members change, (2) tells the members, (3) gathers their requests to join, (4) writes the new
generation and its assignment, (5) answers the members. In each, whatever was not answered must be
asked again, no partition gets two owners in one generation, and nothing committed is forgotten.
"""

import threading
from collections.abc import Callable

import pytest

from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.faults.test_group_churn import check_generations
from tests.support.groups import ConfluentMember, Crew, KafkaPythonMember, create_topic, fill
from tests.support.watching_proxy import Passing, WatchingProxy

JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 11, 12, 14
REBALANCE_IN_PROGRESS = 27
PARTITIONS = 6
EACH = 10
TOPIC = "churn"
GROUP = "phases"


class Phase:
    """Says of each frame whether the phase is reached. Counts only once it is armed."""

    def __init__(self, is_reached: Callable[["Phase", Passing], bool]) -> None:
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


def _learns(phase: Phase, passing: Passing) -> bool:
    """The new member has got its id and joins with it."""
    return passing.is_request and phase.requests(JOIN_GROUP) == 2


def _tells(_phase: Phase, passing: Passing) -> bool:
    """One member has read that there is a rebalance."""
    is_answer = not passing.is_request and passing.api_key == HEARTBEAT
    return is_answer and _error_of_heartbeat(passing) == REBALANCE_IN_PROGRESS


def _gathers(phase: Phase, passing: Passing) -> bool:
    """One member of the old generation has asked to join."""
    return passing.is_request and phase.requests(JOIN_GROUP) == 3


def _writes(phase: Phase, passing: Passing) -> bool:
    """All have asked for their assignment, the leader with all of them in hand."""
    return passing.is_request and phase.requests(SYNC_GROUP) == 3


def _answers(_phase: Phase, passing: Passing) -> bool:
    """One member has its new assignment."""
    return not passing.is_request and passing.api_key == SYNC_GROUP


@pytest.mark.parametrize("condition", [_learns, _tells, _gathers, _writes, _answers])
def test_killed_in_a_phase_of_a_rebalance(
    new_broker: Callable[..., TestBroker], condition: Callable[[Phase, Passing], bool]
) -> None:
    proxy_port = free_port()
    bootstrap = f"127.0.0.1:{proxy_port}"
    options = {
        "advertised.listeners": f"PLAINTEXT://{bootstrap}",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 4,
    }
    broker = new_broker(options=options).start()
    armed: list[Phase] = []
    killed = threading.Event()

    def watch(passing: Passing) -> None:
        if armed and not killed.is_set() and armed[0].is_reached(passing):
            broker.kill()
            killed.set()

    def join() -> ConfluentMember:
        strategy = {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 300}
        return ConfluentMember(bootstrap, GROUP, TOPIC, **strategy)

    with WatchingProxy(broker.bootstrap, proxy_port, watch):
        create_topic(bootstrap, TOPIC, PARTITIONS)
        fill(bootstrap, TOPIC, PARTITIONS, EACH)
        with Crew(join(), KafkaPythonMember(bootstrap, GROUP, TOPIC)) as crew:
            crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share")
            crew.poll_until(lambda: len(crew.seen) >= PARTITIONS * EACH, "everything read")
            mine = crew.members[0].assigned()
            crew.members[0].commit(dict.fromkeys(mine, 4), "before the kill")
            armed.append(Phase(condition))
            crew.members.append(join())
            crew.poll_until(killed.is_set, "the phase")
            broker.start()
            crew.poll_until(lambda: crew.owns_all(PARTITIONS), "three share")
            fill(bootstrap, TOPIC, PARTITIONS, EACH, first=EACH)
            due = {f"{p}:{EACH + n}" for p in range(PARTITIONS) for n in range(EACH)}
            crew.poll_until(lambda: due <= set(crew.seen), "the new ones")
            for partition in mine:
                assert crew.members[2].committed(partition) == (4, "before the kill")
            crew.members[2].commit({crew.members[2].assigned()[0]: EACH}, "after")
        check_generations(bootstrap, {GROUP: 2}, offsets_partitions=4)
