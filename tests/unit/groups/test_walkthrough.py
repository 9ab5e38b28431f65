"""The consumer design replayed: four consumers and three partitions, and the two state machines.

The walk-through: one consumer reads all three partitions; with two, one reads two of them; with
three, each reads one; the fourth gets nothing. Then they go, one after the other, and those who
stay take over. N = size of the sorted partitions / size of the sorted consumers, rounded up.
"""

from __future__ import annotations

from math import ceil

from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Timer
from tests.unit.groups.harness import NONE, Play

PARTITIONS = (0, 1, 2)


def ranges(consumers: list[str]) -> dict[str, list[int]]:
    """What the leader computes: consumer i gets partitions i*N to (i+1)*N-1."""
    each = ceil(len(PARTITIONS) / len(consumers))
    names = sorted(consumers)
    return {name: list(PARTITIONS[i * each : (i + 1) * each]) for i, name in enumerate(names)}


class Cluster:
    """Consumers that do what clients do: join, sync, obey heartbeats."""

    def __init__(self) -> None:
        self.play = Play()
        self.ids: dict[str, str] = {}

    def start(self, name: str) -> None:
        token = self.play.join(client=name)
        self._rejoin()
        if self.play.group.initial_delay is not None:
            self.play.fire(Timer.INITIAL_DELAY)
        self.ids[name] = self.play.joined(token).member_id
        self._sync()

    def close(self, name: str) -> None:
        assert self.play.leave(self.ids.pop(name)) == [NONE]
        self._rejoin()
        if self.ids:
            self._sync()

    def crash(self, name: str) -> None:
        self.play.fire(Timer.SESSION, self.ids.pop(name))
        self._rejoin()
        if self.ids:
            self._sync()

    def _rejoin(self) -> None:
        for member_id in self.ids.values():
            assert self.play.heartbeat(member_id) is ErrorCode.REBALANCE_IN_PROGRESS
            self.play.join(member_id)

    def _sync(self) -> None:
        assigned = ranges(list(self.ids))
        leader = self.play.group.members.leader
        for member_id in self.ids.values():
            parts = {self.ids[n]: bytes(p) for n, p in assigned.items()}
            self.play.sync(member_id, parts if member_id == leader else {})
        for member_id in self.ids.values():
            assert self.play.heartbeat(member_id) is NONE

    @property
    def reads(self) -> dict[str, list[int]]:
        members = self.play.group.members
        return {name: list(members[m].assignment) for name, m in sorted(self.ids.items())}


def test_four_consumers_share_three_partitions() -> None:
    cluster = Cluster()
    cluster.start("consumer1")
    assert cluster.reads == {"consumer1": [0, 1, 2]}
    cluster.start("consumer2")
    assert cluster.reads == {"consumer1": [0, 1], "consumer2": [2]}
    cluster.start("consumer3")
    assert cluster.reads == {"consumer1": [0], "consumer2": [1], "consumer3": [2]}
    cluster.start("consumer4")
    assert cluster.reads == {
        "consumer1": [0],
        "consumer2": [1],
        "consumer3": [2],
        "consumer4": [],
    }
    cluster.close("consumer1")
    assert cluster.reads == {"consumer2": [0], "consumer3": [1], "consumer4": [2]}
    cluster.close("consumer2")
    assert cluster.reads == {"consumer3": [0, 1], "consumer4": [2]}
    cluster.crash("consumer3")
    assert cluster.reads == {"consumer4": [0, 1, 2]}
    cluster.close("consumer4")
    assert cluster.play.state_name == "Empty"
    assert cluster.play.generation == 8


def test_every_rebalance_says_why() -> None:
    cluster = Cluster()
    cluster.start("consumer1")
    cluster.start("consumer2")
    first, second = cluster.ids["consumer1"], cluster.ids["consumer2"]
    cluster.crash("consumer1")
    cluster.close("consumer2")
    assert cluster.play.reasons == [
        f"new member {first}; client reason: not provided",
        f"new member {second}; client reason: not provided",
        f"session of member {first} expired",
        f"member {second} left; client reason: not provided",
    ]
    began = [n.fields for n in cluster.play.notices if n.event == "group_generation"]
    assert [fields["generation"] for fields in began] == [1, 2, 3]
    assert [fields["members"] for fields in began] == [1, 2, 1]
    (emptied,) = [n.fields for n in cluster.play.notices if n.event == "group_empty"]
    assert emptied["generation"] == 4


def test_the_consumers_state_machine() -> None:
    """Down -> part of a group -> stopped consumption -> part of a group -> down."""
    play = Play()
    # Start up: the coordinator is found, the consumer joins and waits.
    token = play.join(client="a")
    assert token not in play.replies
    play.fire(Timer.INITIAL_DELAY)
    me = play.joined(token).member_id
    play.sync(me, {me: b"all"})
    # Part of a group: heartbeats are answered.
    assert play.heartbeat(me) is NONE
    # Somebody else comes: consumption stops, offsets are committed, and it joins again.
    other = play.join(client="b")
    assert play.heartbeat(me) is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.commit_error({("t", 0): 5}, me, generation=1) is NONE
    again = play.join(me)
    assert play.joined(again).generation == 2
    # Its old generation counts no more.
    assert play.heartbeat(me, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert play.commit_error({("t", 0): 6}, me, generation=1) is ErrorCode.ILLEGAL_GENERATION
    play.settle([me, play.joined(other).member_id])
    assert play.committed() == {("t", 0): 5}
    # Down.
    assert play.leave(me) == [NONE]
    assert play.heartbeat(me) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_coordinators_state_machine() -> None:
    """Ready -> prepare for rebalance -> rebalancing -> ready; then fail-over and catching up."""
    play = Play()
    [first, second] = play.stable(2)
    # A member fails: every heartbeat now says so.
    play.fire(Timer.SESSION, second)
    assert play.state_name == "PreparingRebalance"
    assert play.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    # All have joined: the generation counts up and ids are given; it ends with the assignment.
    play.join(first)
    assert play.state_name == "CompletingRebalance"
    play.sync(first, {first: b"everything"})
    assert play.state_name == "Stable"
    # Another broker takes over: it catches up from the log, and the group goes on undisturbed.
    other = play.reloaded()
    assert other.state_name == "Stable"
    assert other.generation == play.generation
    assert other.heartbeat(first) is NONE
    assert other.synced(other.sync(first)).assignment == b"everything"
    assert other.reasons == []


def test_fail_over_before_the_assignment_was_written() -> None:
    """The new coordinator knows the old generation only; whoever is ahead of it joins again."""
    play = Play()
    [first, second] = play.stable(2)
    play.auto_append = False
    play.fire(Timer.SESSION, second)
    play.join(first)
    play.sync(first, {first: b"lost"})
    assert play.state_name == "CompletingRebalance"
    other = play.reloaded()
    assert other.generation == 1
    assert other.heartbeat(first, generation=2) is ErrorCode.ILLEGAL_GENERATION
    rejoined = other.join(first)
    other.fire(Timer.REBALANCE)
    assert other.joined(rejoined).generation == 2
    assert other.member_ids == [first]
