"""JoinGroup: who joins, who waits, what starts a rebalance."""

from __future__ import annotations

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Timer
from pyrklog.groups.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from pyrklog.groups.messages import LeavingMember
from pyrklog.groups.options import GroupSettings
from tests.unit.groups.harness import NONE, Play

STICKY_FIRST = (("sticky", b"s"), ("range", b"r"))
RANGE_FIRST = (("range", b"r"), ("sticky", b"s"))
STICKY = (("sticky", b"s"),)


def test_a_dynamic_member_is_asked_to_come_back_with_its_id() -> None:
    play = Play()
    asked = play.joined(play.join(v4=True, client="app"))
    assert (asked.error, asked.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "app-1")
    assert play.state_name == "Empty"
    token = play.join("app-1", v4=True)
    play.fire(Timer.INITIAL_DELAY)
    assert play.joined(token).leader == "app-1"


def test_unknown_member_id_is_refused() -> None:
    play = Play()
    play.stable()
    assert play.joined(play.join("app-77")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_no_answer_could_hold_is_refused() -> None:
    """The leader's answer and the group's record have all ids: neither could be encoded."""
    play = Play()
    [first] = play.stable()
    for v4 in (False, True):
        for refused in (
            play.joined(play.join(v4=v4, client="c" * 0x7FFF)),
            play.joined(play.join(v4=v4, instance="\u20ac" * 0x2AAA)),
        ):
            assert (refused.error, refused.member_id) == (ErrorCode.INVALID_REQUEST, "")
    assert (play.state_name, list(play.group.members)) == ("Stable", [first])
    assert not play.group.pending_ids
    # Its id is the client id and "-1".
    longest = play.join(client="c" * (0x7FFF - 2))
    assert longest not in play.replies
    assert play.state_name == "PreparingRebalance"


def test_a_generation_waits_for_ids_that_were_handed_out_but_not_for_ever() -> None:
    play = Play()
    [first] = play.stable()
    given = play.joined(play.join(v4=True)).member_id
    token = play.join(first)
    assert token not in play.replies
    play.fire(Timer.PENDING_MEMBER, given)
    assert play.joined(token).generation == 2
    assert play.joined(play.join(given, v4=True)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_may_leave() -> None:
    play = Play()
    [first] = play.stable()
    given = play.joined(play.join(v4=True)).member_id
    token = play.join(first)
    assert play.leave(given) == [NONE]
    assert play.joined(token).generation == 2


def test_the_initial_wait_is_prolonged_up_to_the_rebalance_time_out() -> None:
    play = Play(GroupSettings(initial_rebalance_delay_ms=3_000))
    play.join(rebalance_ms=8_000)
    ends = []
    while play.group.initial_delay is not None:
        play.join(rebalance_ms=8_000)
        play.fire(Timer.INITIAL_DELAY)
        ends.append(play.now_ms - 1_000)
    assert ends == [3_000, 6_000, 8_000]


def test_only_a_new_group_prolongs_its_wait() -> None:
    play = Play()
    [first] = play.stable()
    play.leave(first)
    assert play.state_name == "Empty"
    play.join()
    play.join()
    play.fire(Timer.INITIAL_DELAY)
    assert (play.state_name, play.generation) == ("CompletingRebalance", 3)


def test_without_delay_the_group_begins_at_once() -> None:
    play = Play(GroupSettings(initial_rebalance_delay_ms=0))
    play.join()
    assert play.timers[(Timer.INITIAL_DELAY, "")] == play.now_ms


def test_late_member_is_removed_and_another_leads() -> None:
    play = Play()
    [leader, second, third] = play.stable(3)
    play.join(second, protocols=STICKY_FIRST)
    token = play.join(third)
    assert token not in play.replies
    play.fire(Timer.REBALANCE)
    assert play.member_ids == [second, third]
    assert play.joined(token).leader == second
    assert play.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_vanished_member_never_hangs_the_rebalance() -> None:
    """Its session ends while the others wait, well before the rebalance timeout."""
    play = Play()
    [first, second] = play.stable(2)
    token = play.join(first)
    play.fire(Timer.SESSION, second)
    assert play.joined(token).generation == 2


def test_new_member_with_a_vanished_client_expires() -> None:
    play = Play()
    [first] = play.stable()
    token = play.join(client="gone")
    [ghost] = [m for m in play.member_ids if m != first]
    assert play.timers[(Timer.SESSION, ghost)] == play.now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS
    play.fire(Timer.SESSION, ghost)
    assert play.joined(token).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert play.joined(token).member_id == ""
    assert play.member_ids == [first]


def test_a_member_that_waits_does_not_lose_its_session() -> None:
    play = Play()
    [first, second] = play.stable(2)
    token = play.join(first)
    play.fire(Timer.SESSION, first)
    assert first in play.member_ids
    play.join(second)
    assert play.joined(token).error is NONE
    assert (Timer.SESSION, first) in play.timers


def test_a_follower_without_news_gets_the_current_generation() -> None:
    play = Play()
    [leader, follower] = play.stable(2)
    again = play.joined(play.join(follower))
    assert (again.generation, again.leader, again.members) == (1, leader, ())
    assert play.state_name == "Stable"


def test_the_leader_always_rebalances() -> None:
    play = Play()
    [leader, follower] = play.stable(2)
    play.join(leader, reason="a topic has grown")
    assert play.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert play.reasons[-1] == f"leader {leader} joins again; client reason: a topic has grown"


def test_a_follower_with_other_metadata_rebalances() -> None:
    play = Play()
    [_, follower] = play.stable(2)
    play.join(follower, protocols=(("range", b"other"),))
    assert play.state_name == "PreparingRebalance"


def test_a_lost_answer_is_given_again_until_the_assignment_is_there() -> None:
    play = Play()
    tokens = [play.join(), play.join()]
    while play.group.initial_delay is not None:
        play.fire(Timer.INITIAL_DELAY)
    leader = play.joined(tokens[0])
    again = play.joined(play.join(leader.member_id))
    assert again == leader
    assert len(again.members) == 2


def test_a_second_join_of_a_waiting_member_answers_the_first() -> None:
    play = Play()
    [first, _] = play.stable(2)
    early = play.join(first)
    late = play.join(first)
    assert play.joined(early).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert late not in play.replies


@pytest.mark.parametrize(
    ("joins", "elected"),
    [
        ([RANGE_FIRST], "range"),
        ([RANGE_FIRST, STICKY_FIRST, STICKY_FIRST], "sticky"),
        ([RANGE_FIRST, STICKY_FIRST], "range"),
        ([RANGE_FIRST, RANGE_FIRST, STICKY], "sticky"),
        ([(("x", b""), *STICKY), STICKY], "sticky"),
    ],
)
def test_members_vote_for_a_protocol_that_all_know(
    joins: list[tuple[tuple[str, bytes], ...]], elected: str
) -> None:
    play = Play()
    tokens = [play.join(protocols=protocols) for protocols in joins]
    while play.group.initial_delay is not None:
        play.fire(Timer.INITIAL_DELAY)
    assert {play.joined(token).protocol_name for token in tokens} == {elected}


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", RANGE_FIRST), ("consumer", STICKY), ("consumer", ()), ("", RANGE_FIRST)],
)
def test_member_without_a_common_protocol_is_refused(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    play = Play()
    play.stable()
    token = play.join(protocol_type=protocol_type, protocols=protocols)
    assert play.joined(token).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert play.state_name == "Stable"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE_FIRST), ("consumer", ())])
def test_even_the_first_member_needs_a_protocol(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    play = Play()
    token = play.join(protocol_type=protocol_type, protocols=protocols)
    assert play.joined(token).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert play.state_name == "Empty"


def test_a_name_given_twice_counts_once() -> None:
    play = Play()
    play.join(protocols=(("range", b"1"), ("range", b"2")))
    play.fire(Timer.INITIAL_DELAY)
    [member_id] = play.member_ids
    [shown] = play.replies[1].members
    assert (shown.member_id, shown.metadata) == (member_id, b"1")


def test_full_group_refuses_new_members() -> None:
    play = Play(GroupSettings(members_max=2))
    first, second = play.stable(2)
    assert play.joined(play.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert play.state_name == "Stable"
    play.join(first)
    play.join(second)
    play.settle([first, second])


def test_a_group_that_has_become_too_large_sheds_its_last() -> None:
    play = Play(GroupSettings(members_max=3))
    play.stable(3)
    smaller = play.reloaded()
    smaller.machine.group.settings = GroupSettings(members_max=2)
    smaller.take(smaller.machine.loaded(smaller.now_ms))
    assert smaller.reasons == ["loaded with more members than group.max.size (2)"]
    tokens = [smaller.join(member_id) for member_id in play.member_ids]
    assert smaller.joined(tokens[2]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [smaller.joined(token).error for token in tokens[:2]] == [NONE, NONE]
    assert len(smaller.member_ids) == 2


def test_ten_thousand_members() -> None:
    play = Play(auto_append=False)
    play.check = lambda: None  # type: ignore[method-assign]
    tokens = [play.join(client=f"c{i}") for i in range(10_000)]
    while play.group.initial_delay is not None:
        play.fire(Timer.INITIAL_DELAY)
    assert len(play.replies) == 10_000
    leader = play.joined(tokens[0])
    assert len(leader.members) == 10_000
    play.sync(leader.member_id, {m.member_id: b"x" for m in leader.members})
    play.finish_append()
    assert play.state_name == "Stable"
    assert play.leave(*(LeavingMember(m.member_id) for m in leader.members)) == [NONE] * 10_000
    assert play.state_name == "Empty"
