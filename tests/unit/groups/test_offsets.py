"""Commits: who may, when they count, what survives, and what expires."""

from __future__ import annotations

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Timer
from pyrklog.groups.messages import Offset
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.transaction_offsets import PENDING_OFFSET_BYTES
from pyrklog.plane.internal_log import (
    Producer,
)
from pyrklog.protocol.group_records import OffsetKey, decode_key
from tests.unit.groups.harness import NONE, Play

DAY_MS = 24 * 3_600_000
END = 2**62
"""The offset of a marker behind everything."""
WEEK_MS = 7 * DAY_MS
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
SUBSCRIBED = b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff"
READS_T = (("range", SUBSCRIBED),)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def at_state(play: Play, state: str) -> str:
    if state == "Empty":
        return "ghost"
    first, second = play.stable(2)
    if state != "Stable":
        play.leave(second)
    if state == "CompletingRebalance":
        play.join(first)
    assert play.state_name == state
    return first


@pytest.mark.parametrize(
    ("state", "member", "old_generation", "administrator"),
    [
        ("Empty", ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, NONE),
        ("PreparingRebalance", NONE, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID),
        (
            "CompletingRebalance",
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
        ("Stable", NONE, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commit_rights_depend_on_the_group_state(
    state: str, member: ErrorCode, old_generation: ErrorCode, administrator: ErrorCode
) -> None:
    play = Play()
    me = at_state(play, state)
    now = play.generation
    assert play.commit_error({T0: 1}, me, generation=now) is member
    assert play.commit_error({T0: 2}, me, generation=now + 1) is old_generation
    assert play.commit_error({T0: 3}, "", generation=-1) is administrator
    assert play.commit_error({T0: 4}, "ghost", generation=now) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_renews_the_session() -> None:
    play = Play()
    [me] = play.stable()
    before = play.timers[(Timer.SESSION, me)]
    play.now_ms += 5_000
    play.commit({T0: 1}, me, generation=1)
    assert play.timers[(Timer.SESSION, me)] == before + 5_000


def test_committed_offsets_survive_a_reload() -> None:
    play = Play()
    value = Offset(5, leader_epoch=3, metadata="note", commit_ms=play.now_ms)
    play.commit({T0: value, T1: 7})
    play.commit({T1: 8})
    found = play.reloaded().machine.fetch_offsets([T0, T1, U0], require_stable=True)
    assert (found[T0].offset, found[T0].leader_epoch, found[T0].metadata) == (5, 3, "note")
    assert (found[T1].offset, found[U0].offset) == (8, -1)


def test_an_offset_counts_when_it_is_safe() -> None:
    play = Play(auto_append=False)
    play.commit({T0: 1})
    play.commit({T0: 2})
    assert play.committed() == {}
    play.finish_append()
    assert play.committed() == {T0: 1}
    assert play.machine.fetch_offsets([T0], require_stable=True)[T0].error is UNSTABLE
    play.finish_append()
    assert play.machine.fetch_offsets([T0], require_stable=True)[T0].offset == 2


def test_later_commit_wins_in_any_order_of_answers() -> None:
    play = Play(auto_append=False)
    play.commit({T0: 1})
    play.commit({T0: 2})
    early, late = play.appends
    play.appends = [early]
    play.finish_append(ErrorCode.REQUEST_TIMED_OUT)
    play.appends = [late]
    play.finish_append()
    assert play.committed() == {T0: 2}
    assert not play.group.offsets.is_pending(T0)


def test_a_failed_commit_changes_nothing() -> None:
    play = Play()
    play.commit({T0: 1})
    play.auto_append = False
    token = play.commit({T0: 2, T1: 9})
    play.finish_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert set(play.replies[token].errors.values()) == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert play.machine.fetch_offsets([T0], require_stable=True)[T0].offset == 1


def test_only_the_partition_with_the_long_note_is_refused() -> None:
    play = Play(GroupSettings(metadata_units_max=3))
    token = play.commit({T0: Offset(1, metadata="abcd"), T1: Offset(2, metadata="abc")})
    assert play.replies[token].errors == {T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: NONE}
    assert play.committed() == {T1: 2}


# --- transactions --------------------------------------------------------------------------------


def test_offsets_of_a_transaction_count_with_its_marker() -> None:
    play = Play()
    producer = Producer(7, 0)
    assert play.commit_error({T0: 5}, producer=producer) is NONE
    assert play.committed() == {}
    assert play.machine.fetch_offsets([T0], require_stable=True)[T0].error is UNSTABLE
    play.machine.transaction_completed(7, marker_offset=END, commit=True)
    assert play.committed() == {T0: 5}


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    play = Play()
    play.commit({T0: 1})
    play.commit({T0: 5}, producer=Producer(7, 0))
    play.machine.transaction_completed(7, marker_offset=END, commit=False)
    assert play.machine.fetch_offsets([T0], require_stable=True)[T0].offset == 1


def test_a_plain_commit_behind_that_of_a_transaction_wins() -> None:
    play = Play()
    play.commit({T0: 5}, producer=Producer(7, 0))
    play.commit({T0: 6})
    play.machine.transaction_completed(7, marker_offset=END, commit=True)
    assert play.committed() == {T0: 6}


def test_a_transaction_needs_no_member_but_a_named_one_must_be_right() -> None:
    play = Play()
    [me] = play.stable()
    producer = Producer(7, 0)
    assert play.commit_error({T0: 5}, producer=producer) is NONE
    assert play.commit_error({T0: 5}, me, generation=1, producer=producer) is NONE
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert play.commit_error({T0: 5}, me, generation=0, producer=producer) is illegal
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert play.commit_error({T0: 5}, "ghost", generation=1, producer=producer) is unknown


def test_a_transactional_commit_that_fails_is_not_pending() -> None:
    play = Play(auto_append=False)
    play.commit({T0: 5}, producer=Producer(7, 0))
    play.finish_append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not play.group.offsets.is_pending(T0)
    assert play.group.offsets.is_empty


def test_a_deleted_offset_of_an_open_transaction_stays_deleted() -> None:
    play = Play()
    play.commit({T0: 5, T1: 6}, producer=Producer(7, 0))
    play.auto_append = False
    play.commit({U0: 7}, producer=Producer(7, 0))
    play.take(play.machine.delete_offsets([T0, U0], play.token(), play.now_ms))
    play.auto_append = True
    play.finish_append()
    deleted = [decode_key(key) for _, key, value in play.log if value is None]
    assert deleted == [OffsetKey("g", *T0), OffsetKey("g", *U0)]
    play.machine.transaction_completed(7, marker_offset=END, commit=True)
    assert play.committed() == {T1: 6}


def test_what_is_committed_after_a_deletion_is_no_offset_of_before_it() -> None:
    play = Play()
    play.commit({T1: 1})
    play.auto_append = False
    producer = Producer(7, 0)
    play.commit({T0: 10}, producer=producer)
    play.take(play.machine.delete_offsets([T0], play.token(), play.now_ms))
    play.commit({T0: 20}, producer=producer)
    for _ in range(3):
        play.finish_append()
    assert play.group.offsets.is_pending(T0)
    play.machine.transaction_completed(7, marker_offset=END, commit=True)
    assert play.committed() == {T0: 20, T1: 1}
    assert not play.group.offsets.is_pending(T0)


def test_offsets_of_open_transactions_count_as_memory() -> None:
    play = Play()
    memory = play.group.memory
    empty = memory.used_bytes
    play.commit({T0: Offset(5, metadata="x" * 1000)}, producer=Producer(7, 0))
    play.commit({T0: 5, T1: 6}, producer=Producer(8, 0))
    assert memory.used_bytes == empty + 3 * PENDING_OFFSET_BYTES + 1000
    play.commit({T0: 6}, producer=Producer(7, 0))
    assert memory.used_bytes == empty + 3 * PENDING_OFFSET_BYTES, "it replaces the former"
    play.machine.transaction_completed(7, marker_offset=END, commit=True)
    play.machine.transaction_completed(8, marker_offset=END, commit=False)
    assert memory.used_bytes == empty
    assert not play.group.offsets.is_pending(T0)


def test_offsets_of_transactions_are_refused_without_memory() -> None:
    play = Play()
    refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    play.memory.max_bytes = 50_000
    large = Offset(5, metadata="x" * 4000)
    codes = {play.commit_error({T0: large}, producer=Producer(number, 0)) for number in range(20)}
    assert codes == {NONE, refused}
    assert play.commit_error({T0: 1}) is NONE, "plain ones are in the log only"


# --- forgetting ----------------------------------------------------------------------------------


def expire(play: Play, now_ms: int) -> None:
    play.now_ms = now_ms
    play.take(play.machine.expire(now_ms))


def test_a_lone_consumers_offset_expires_after_its_commit() -> None:
    play = Play()
    play.commit({T0: 1})
    committed_ms = play.now_ms
    play.now_ms += DAY_MS
    play.commit({T1: 1})
    expire(play, committed_ms + WEEK_MS - 1)
    assert play.committed() == {T0: 1, T1: 1}
    expire(play, committed_ms + WEEK_MS)
    assert play.committed() == {T1: 1}
    assert play.reloaded().committed() == {T1: 1}


def test_an_empty_groups_offsets_expire_since_it_became_empty() -> None:
    play = Play()
    [me] = play.stable()
    play.commit({T0: 1}, me, generation=1)
    play.now_ms += WEEK_MS
    play.leave(me)
    emptied_ms = play.now_ms
    expire(play, emptied_ms + WEEK_MS - 1)
    assert play.committed() == {T0: 1}
    expire(play, emptied_ms + WEEK_MS)
    assert play.state_name == "Dead"
    assert [value for _, _, value in play.log[-2:]] == [None, None]
    assert play.reloaded().committed() == {}


def test_expiry_counts_from_emptying_after_a_fail_over() -> None:
    play = Play()
    [me] = play.stable()
    play.commit({T0: 1}, me, generation=1)
    play.leave(me)
    emptied_ms = play.now_ms
    other = play.reloaded()
    expire(other, emptied_ms + WEEK_MS - 1)
    assert other.committed() == {T0: 1}
    expire(other, emptied_ms + WEEK_MS)
    assert other.state_name == "Dead"


def test_a_stable_group_keeps_what_it_reads() -> None:
    play = Play()
    [me] = play.stable(protocols=READS_T)
    play.commit({T0: 1, U0: 1}, me, generation=1)
    expire(play, play.now_ms + WEEK_MS)
    assert play.committed() == {T0: 1}


def test_a_group_that_cannot_be_read_keeps_everything() -> None:
    play = Play()
    [me] = play.stable()
    play.commit({T0: 1, U0: 1}, me, generation=1)
    expire(play, play.now_ms + WEEK_MS)
    assert play.committed() == {T0: 1, U0: 1}


def test_nothing_expires_during_a_rebalance() -> None:
    play = Play()
    me, other = play.stable(2, protocols=READS_T)
    play.commit({U0: 1}, me, generation=1)
    play.leave(other)
    expire(play, play.now_ms + WEEK_MS)
    assert play.committed() == {U0: 1}


def test_pending_commit_does_not_expire() -> None:
    play = Play()
    play.commit({T0: 1})
    play.auto_append = False
    play.commit({T0: 2})
    expire(play, play.now_ms + WEEK_MS)
    assert play.committed() == {T0: 1}
    play.finish_append()
    play.commit({T1: 2}, producer=Producer(7, 0))
    play.finish_append()
    expire(play, play.now_ms)
    assert play.state_name == "Empty"


def test_a_clients_own_time_to_live_has_precedence() -> None:
    play = Play()
    soon = Offset(1, commit_ms=play.now_ms, expire_ms=play.now_ms + 10)
    late = Offset(1, commit_ms=play.now_ms, expire_ms=play.now_ms + 2 * WEEK_MS)
    play.commit({T0: soon, T1: late})
    play = play.reloaded()
    expire(play, play.now_ms + 10)
    assert play.committed() == {T1: 1}
    expire(play, play.now_ms + WEEK_MS + DAY_MS)
    assert play.committed() == {T1: 1}


def test_a_group_without_generation_needs_no_tombstone_of_its_own() -> None:
    play = Play()
    play.commit({T0: 1})
    expire(play, play.now_ms + WEEK_MS)
    assert play.state_name == "Dead"
    assert [key[:2] for _, key, value in play.log if value is None] == [b"\0\1"]


def test_tombstones_that_are_lost_are_no_harm() -> None:
    play = Play()
    play.commit({T0: 1})
    play.auto_append = False
    expire(play, play.now_ms + WEEK_MS)
    play.finish_append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert play.notices[-1].event == "group_tombstones_not_written"
    again = play.reloaded()
    expire(again, again.now_ms + WEEK_MS)
    assert again.state_name == "Dead"


def test_pending_member_keeps_the_group() -> None:
    play = Play()
    given = play.joined(play.join(v4=True)).member_id
    expire(play, play.now_ms)
    play.join(given, v4=True)
    assert play.state_name == "PreparingRebalance"


# --- deleting ------------------------------------------------------------------------------------


def delete_offsets(play: Play, *partitions: tuple[str, int]) -> object:
    token = play.token()
    play.take(play.machine.delete_offsets(partitions, token, play.now_ms))
    return play.replies[token]


def test_offsets_of_topics_that_nobody_reads_can_be_deleted() -> None:
    play = Play()
    [me] = play.stable(protocols=READS_T)
    play.commit({T0: 1, U0: 2}, me, generation=1)
    errors = {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, U0: NONE, ("u", 9): NONE}
    assert delete_offsets(play, T0, U0, ("u", 9)) == (NONE, errors)
    assert play.committed() == {T0: 1}
    assert play.reloaded().committed() == {T0: 1}


def test_in_an_empty_group_every_offset_can_be_deleted() -> None:
    play = Play()
    [me] = play.stable(protocols=READS_T)
    play.commit({T0: 1}, me, generation=1)
    play.leave(me)
    assert delete_offsets(play, T0) == (NONE, {T0: NONE})
    assert play.committed() == {}


def test_a_group_of_another_kind_must_be_empty() -> None:
    play = Play()
    play.stable(protocol_type="connect")
    assert delete_offsets(play, T0) == (ErrorCode.NON_EMPTY_GROUP, {})


def test_a_deleted_offset_does_not_come_back_with_a_commit_that_was_under_way() -> None:
    play = Play()
    play.commit({T0: 1})
    play.auto_append = False
    play.commit({T0: 2})
    token = play.token()
    play.take(play.machine.delete_offsets([T0], token, play.now_ms))
    play.finish_append()
    play.finish_append()
    assert play.committed() == {}
    assert play.reloaded().committed() == {}


def test_a_deleted_group_takes_its_offsets_with_it() -> None:
    play = Play()
    [me] = play.stable()
    play.commit({T0: 1}, me, generation=1)
    token = play.token()
    play.take(play.machine.delete(token, play.now_ms))
    assert play.replies[token] is ErrorCode.NON_EMPTY_GROUP
    play.leave(me)
    play.auto_append = False
    token = play.token()
    play.take(play.machine.delete(token, play.now_ms))
    assert token not in play.replies
    play.finish_append()
    assert play.replies[token] is NONE
    assert play.state_name == "Dead"
    assert (play.reloaded().state_name, play.reloaded().generation) == ("Empty", 0)


def test_deleted_topics_take_their_offsets_with_them() -> None:
    play = Play()
    play.commit({T0: 1, U0: 2})
    play.take(play.machine.partitions_deleted({"t": {0, 1}}, play.now_ms))
    assert play.committed() == play.reloaded().committed() == {U0: 2}
    play.take(play.machine.partitions_deleted({"u": {0}}, play.now_ms))
    assert play.state_name == "Dead"
