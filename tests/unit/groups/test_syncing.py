"""SyncGroup, LeaveGroup, and assignments that cannot be written."""

from __future__ import annotations

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Timer
from tests.unit.groups.harness import NONE, Play


def completing(play: Play, count: int = 2) -> list[str]:
    """Members of a generation without an assignment yet, the leader first."""
    tokens = [play.join() for _ in range(count)]
    while play.group.initial_delay is not None:
        play.fire(Timer.INITIAL_DELAY)
    return [play.joined(token).member_id for token in tokens]


def test_followers_wait_for_the_leader() -> None:
    play = Play()
    leader, follower = completing(play)
    waiting = play.sync(follower)
    assert waiting not in play.replies
    own = play.sync(leader, {leader: b"1", follower: b"2"})
    assert play.synced(own).assignment == b"1"
    assert play.synced(waiting).assignment == b"2"
    assert play.synced(play.sync(follower)).assignment == b"2"


def test_the_answer_waits_until_the_assignment_is_safe() -> None:
    play = Play(auto_append=False)
    leader, _ = completing(play)
    token = play.sync(leader, {leader: b"1"})
    assert token not in play.replies
    play.finish_append()
    assert play.synced(token).error is NONE


def test_member_without_an_assignment_gets_an_empty_one() -> None:
    play = Play()
    leader, follower = completing(play)
    play.sync(leader, {leader: b"1", "stranger": b"9"})
    assert play.synced(play.sync(follower)).assignment == b""
    assert play.notices[-2].event == "group_members_without_assignment"


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_written_ends_the_generation(
    failure: ErrorCode, answer: ErrorCode
) -> None:
    play = Play(auto_append=False)
    leader, follower = completing(play)
    tokens = [play.sync(follower), play.sync(leader, {leader: b"1"})]
    play.finish_append(failure)
    assert [play.synced(token).error for token in tokens] == [answer, answer]
    assert play.state_name == "PreparingRebalance"
    assert answer.name in play.reasons[-1]


def test_a_rebalance_overtakes_the_assignment() -> None:
    play = Play(auto_append=False)
    leader, follower = completing(play)
    token = play.sync(leader, {leader: b"1"})
    play.leave(follower)
    assert play.synced(token).error is ErrorCode.REBALANCE_IN_PROGRESS
    play.finish_append()
    assert play.state_name == "PreparingRebalance"


def test_a_leader_that_assigns_twice_is_heard_once() -> None:
    """Otherwise the members' assignment would differ from the log's."""
    play = Play(auto_append=False)
    leader, follower = completing(play)
    first = play.sync(leader, {leader: b"1", follower: b"2"})
    again = play.sync(leader, {leader: b"2", follower: b"1"})
    assert play.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(play.appends) == 1
    play.finish_append()
    assert play.synced(again).assignment == b"1"
    other = play.reloaded()
    assert other.synced(other.sync(follower)).assignment == b"2"


@pytest.mark.parametrize(
    ("generation", "protocol_type", "protocol_name", "error"),
    [
        (0, None, None, ErrorCode.ILLEGAL_GENERATION),
        (2, None, None, ErrorCode.ILLEGAL_GENERATION),
        (1, "connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (1, "consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (1, "consumer", "range", NONE),
    ],
)
def test_sync_must_fit_the_generation(
    generation: int, protocol_type: str | None, protocol_name: str | None, error: ErrorCode
) -> None:
    play = Play()
    [member] = play.stable()
    token = play.sync(
        member, generation=generation, protocol_type=protocol_type, protocol_name=protocol_name
    )
    assert play.synced(token).error is error


def test_sync_during_a_rebalance() -> None:
    play = Play()
    first, _ = play.stable(2)
    play.leave(first)
    [second] = play.member_ids
    assert play.synced(play.sync(second)).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.synced(play.sync("ghost")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_never_sync_are_taken_out() -> None:
    play = Play()
    leader, silent = completing(play)
    play.sync(leader, {leader: b"1", silent: b"2"})
    assert play.state_name == "Stable"
    play.heartbeat(silent)
    play.fire(Timer.SYNC)
    assert play.member_ids == [leader]
    assert play.reasons[-1] == f"no SyncGroup in time from {silent}"


def test_a_leader_that_never_syncs_is_taken_out_too() -> None:
    play = Play()
    leader, follower = completing(play)
    waiting = play.sync(follower)
    play.fire(Timer.SYNC)
    assert play.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.joined(play.join(follower)).leader == follower


def test_heartbeats_between_join_and_sync_are_good() -> None:
    play = Play()
    leader, _ = completing(play)
    assert play.heartbeat(leader) is NONE


def test_a_member_leaves_while_it_waits() -> None:
    play = Play()
    leader, follower = completing(play)
    waiting = play.sync(follower)
    assert play.leave(follower) == [NONE]
    assert play.synced(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID
    joining = play.join(leader)
    assert play.joined(joining).generation == 2


def test_a_batch_of_leavers_makes_one_rebalance() -> None:
    play = Play()
    first, second, third = play.stable(3)
    assert play.leave(second, "ghost", third) == [NONE, ErrorCode.UNKNOWN_MEMBER_ID, NONE]
    assert len(play.reasons) == 2
    assert play.joined(play.join(first)).generation == 2


def test_the_last_one_leaves_an_empty_generation() -> None:
    play = Play()
    [member] = play.stable()
    play.leave(member)
    assert (play.state_name, play.generation) == ("Empty", 2)
    other = play.reloaded()
    assert (other.state_name, other.generation) == ("Empty", 2)
    assert other.machine.group.protocol_type == "consumer"


def test_group_description_shows_state_and_members() -> None:
    play = Play()
    leader, follower = completing(play)
    shown = play.machine.describe()
    assert (shown.state, shown.protocol_name) == ("CompletingRebalance", "")
    assert {member.metadata for member in shown.members} == {b""}
    play.settle([leader, follower])
    shown = play.machine.describe()
    assert (shown.state, shown.protocol_name) == ("Stable", "range")
    assert [m.assignment for m in shown.members] == [leader.encode(), follower.encode()]
    assert {member.metadata for member in shown.members} == {b"range-meta"}
