"""Static members return without a rebalance, and fence their former selves (KIP-345)."""

from __future__ import annotations

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Timer
from pyrklog.groups.messages import LeavingMember
from pyrklog.groups.persistence import REASON_HEADER
from tests.unit.groups.harness import NONE, Play


def static_group(play: Play) -> tuple[str, str]:
    """A stable group of the static members "a", which leads, and "b"."""
    tokens = [play.join(instance=name) for name in ("a", "b")]
    while play.group.initial_delay is not None:
        play.fire(Timer.INITIAL_DELAY)
    ids = [play.joined(token).member_id for token in tokens]
    play.settle(ids)
    return ids[0], ids[1]


def test_a_static_member_needs_no_second_round() -> None:
    play = Play()
    token = play.join(instance="a", v4=True)
    assert token not in play.replies
    assert play.member_ids == ["a-1"]


def test_a_restart_is_no_rebalance() -> None:
    play = Play()
    leader, follower = static_group(play)
    back = play.joined(play.join(instance="b"))
    assert (back.error, back.generation, back.leader) == (NONE, 1, leader)
    assert back.member_id not in (leader, follower)
    assert play.state_name == "Stable"
    assert len(play.reasons) == 1
    assert play.synced(play.sync(back.member_id)).assignment == follower.encode()


def test_the_new_id_survives_a_fail_over() -> None:
    play = Play()
    _, follower = static_group(play)
    back = play.joined(play.join(instance="b")).member_id
    other = play.reloaded()
    assert other.heartbeat(back, instance="b") is NONE
    assert other.heartbeat(follower, instance="b") is ErrorCode.FENCED_INSTANCE_ID
    assert other.synced(other.sync(back)).assignment == follower.encode()


def test_the_old_id_is_fenced_everywhere() -> None:
    play = Play()
    _, old = static_group(play)
    play.join(instance="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert play.heartbeat(old, instance="b") is fenced
    assert play.synced(play.sync(old, instance="b")).error is fenced
    assert play.joined(play.join(old, instance="b")).error is fenced
    assert play.commit_error({("t", 0): 1}, old, generation=1, instance="b") is fenced
    assert play.leave(LeavingMember(old, "b")) == [fenced]
    assert play.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.heartbeat(old, instance="nobody") is ErrorCode.UNKNOWN_MEMBER_ID


def test_waiting_request_with_the_old_id_is_fenced_at_once() -> None:
    play = Play()
    leader, old = static_group(play)
    play.join(leader, instance="a")
    waiting = play.join(old, instance="b", protocols=(("range", b"x"),))
    assert play.joined(waiting).error is NONE
    stuck = play.sync(old, instance="b")
    play.join(instance="b")
    assert play.synced(stuck).error is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("syncs", [True, False])
def test_static_member_that_returns_before_its_sync_must_sync(syncs: bool) -> None:
    play = Play()
    leader, follower = static_group(play)
    play.join(leader, instance="a")
    play.join(follower, instance="b")
    play.sync(leader, {leader: b"1", follower: b"2"}, instance="a")
    back = play.joined(play.join(instance="b")).member_id
    if syncs:
        assert play.synced(play.sync(back, instance="b")).assignment == b"2"
        assert (Timer.SYNC, "") not in play.timers
    else:
        play.fire(Timer.SYNC)
        assert play.member_ids == [leader]


def test_older_clients_are_shown_the_leaders_old_id() -> None:
    """A returning leader must not assign: a stable group would not listen."""
    play = Play()
    leader, _ = static_group(play)
    back = play.joined(play.join(instance="a"))
    assert (back.leader, back.members, back.skip_assignment) == (leader, (), False)
    assert play.group.members.leader == back.member_id


def test_newer_clients_lead_without_assigning() -> None:
    play = Play()
    static_group(play)
    back = play.joined(play.join(instance="a", v9=True))
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert len(back.members) == 2
    follower = play.joined(play.join(instance="b", v9=True))
    assert (follower.leader, follower.skip_assignment) == (back.member_id, False)


def test_a_return_that_changes_the_protocol_rebalances() -> None:
    play = Play()
    both = (("range", b"r"), ("sticky", b"s"))
    tokens = [play.join(instance=name, protocols=both) for name in ("a", "b")]
    while play.group.initial_delay is not None:
        play.fire(Timer.INITIAL_DELAY)
    play.settle([play.joined(token).member_id for token in tokens])
    play.join(instance="b", protocols=(("sticky", b"s"),))
    assert play.state_name == "PreparingRebalance"
    assert "changes the protocol" in play.reasons[-1]


def test_a_return_while_the_leader_assigns_rebalances() -> None:
    play = Play()
    leader, follower = static_group(play)
    play.join(leader, instance="a")
    play.join(follower, instance="b")
    assert play.state_name == "CompletingRebalance"
    token = play.join(instance="b")
    assert play.state_name == "PreparingRebalance"
    play.join(leader, instance="a")
    assert play.joined(token).generation == 3


def test_a_new_id_that_cannot_be_written_is_taken_back() -> None:
    play = Play()
    _, old = static_group(play)
    play.auto_append = False
    token = play.join(instance="b", session_ms=30_000)
    play.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    answer = play.joined(token)
    assert (answer.error, answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert play.heartbeat(old, instance="b") is NONE
    assert play.group.members[old].session_timeout_ms == 10_000


def test_two_restarts_in_a_row() -> None:
    play = Play()
    static_group(play)
    play.auto_append = False
    first = play.join(instance="b")
    second = play.join(instance="b")
    assert play.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    play.finish_append()
    assert second not in play.replies
    play.finish_append()
    assert play.joined(second).error is NONE


@pytest.mark.parametrize("error", [NONE, ErrorCode.REQUEST_TIMED_OUT])
def test_a_rebalance_overtakes_the_return(error: ErrorCode) -> None:
    play = Play()
    leader, _ = static_group(play)
    play.auto_append = False
    token = play.join(instance="b")
    play.join(leader, instance="a")
    assert play.joined(token).generation == 2
    play.finish_append(error)
    assert play.state_name == "CompletingRebalance"


def test_a_static_member_that_is_late_stays_until_its_session_ends() -> None:
    play = Play()
    leader, follower = static_group(play)
    token = play.join(leader, instance="a")
    play.fire(Timer.REBALANCE)
    assert play.joined(token).generation == 2
    assert play.member_ids == [leader, follower]
    play.fire(Timer.SESSION, follower)
    assert play.member_ids == [leader]


def test_when_no_static_member_joins_the_wait_goes_on() -> None:
    play = Play()
    leader, follower = static_group(play)
    play.join(instance="c", session_ms=6_000)
    [third] = [m for m in play.member_ids if m not in (leader, follower)]
    play.leave(third)
    assert play.state_name == "PreparingRebalance"
    play.fire(Timer.REBALANCE)
    assert play.state_name == "PreparingRebalance"
    token = play.join(leader, instance="a")
    play.fire(Timer.SESSION, follower)
    assert play.joined(token).generation == 2


def test_an_administrator_removes_a_static_member_by_its_name() -> None:
    play = Play()
    leader, _ = static_group(play)
    assert play.leave(LeavingMember("", "b"), LeavingMember("", "z")) == [
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert play.member_ids == [leader]
    assert play.state_name == "PreparingRebalance"


def test_why_a_generation_began_stands_beside_its_first_record_only() -> None:
    play = Play()
    [me] = play.stable(instance="i1", reason="deployed")
    play.join(instance="i1")
    play.leave(LeavingMember("", "i1"))
    reasons = [headers.get(REASON_HEADER) for headers in play.headers]
    assert len(reasons) == 3
    first, back, emptied = reasons
    assert first is not None
    assert first.endswith(b"deployed")
    assert back is None, "the static member's new id is no rebalance"
    assert emptied is not None
    assert me.encode() not in emptied
    assert b"left" in emptied
