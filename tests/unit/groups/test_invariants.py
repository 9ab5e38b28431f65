"""Each invariant of a group fails on a state that breaks it; the driver sets the group aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio.testing

from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Timer
from pyrklog.groups.group import Group, InitialDelay
from pyrklog.groups.invariants import InvariantError, check, check_whole
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.states import GroupState
from tests.unit.groups.harness import Play
from tests.unit.groups.rig import running


def stable_group() -> Group:
    """Two members, of which the second is static."""
    play = Play()
    tokens = [play.join(), play.join(instance="i1")]
    while play.group.initial_delay is not None:
        play.fire(Timer.INITIAL_DELAY)
    play.settle([play.joined(token).member_id for token in tokens])
    group: Group = play.group
    return group


def first(group: Group) -> Any:
    return next(iter(group.members.values()))


def last(group: Group) -> Any:
    return list(group.members.values())[-1]


def lose_leader(group: Group) -> None:
    group.members.leader_id = "nobody"


def lose_members(group: Group) -> None:
    group.members.clear()
    group.members.leader_id = None


def keep_leader(group: Group) -> None:
    group.members.clear()


def be_empty(group: Group) -> None:
    group.state = GroupState.EMPTY


def lower_generation(group: Group) -> None:
    group.generation -= 1


def miscount_joins(group: Group) -> None:
    group.members.awaiting_count = 1


def leave_joins_range(group: Group) -> None:
    group.members.awaiting_count = 3


def choose_another_protocol(group: Group) -> None:
    group.protocol_name = "sticky"


def miscount_protocols(group: Group) -> None:
    group.members.protocol_counts["sticky"] = 1


def file_wrongly(group: Group) -> None:
    first(group).member_id = "other"


def be_pending(group: Group) -> None:
    group.pending_ids[first(group).member_id] = "/h"


def lose_instance(group: Group) -> None:
    group.members.ids_by_instance["i1"] = first(group).member_id


def keep_instance(group: Group) -> None:
    group.members.ids_by_instance["i2"] = last(group).member_id


def await_sync_of_a_missing_member(group: Group) -> None:
    group.pending_syncs.add("nobody")


def await_sync_too_early(group: Group) -> None:
    group.state = GroupState.PREPARING
    group.pending_syncs.add(first(group).member_id)


def park_join_in_completing(group: Group) -> None:
    group.state = GroupState.COMPLETING
    group.members.park_join(first(group), 1)


def park_sync_in_stable(group: Group) -> None:
    group.members.park_sync(first(group), 1)


def delay_in_stable(group: Group) -> None:
    group.initial_delay = InitialDelay(1, 1)


def lose_reserve(group: Group) -> None:
    group.memory.reserved_bytes = -1


BROKEN: dict[Callable[[Group], None], str] = {
    lose_leader: "its leader is not a member",
    lose_members: "it has no members",
    keep_leader: "it has a leader, but no members",
    be_empty: "it has members",
    lower_generation: "the generation fell from 1",
    miscount_joins: "the number of parked JoinGroups is miscounted",
    leave_joins_range: "the number of parked JoinGroups is out of range",
    choose_another_protocol: "not all members support the chosen protocol",
    miscount_protocols: "the members of a protocol are miscounted",
    file_wrongly: "is filed as",
    be_pending: "is pending as well",
    lose_instance: "instance id i1 does not name member",
    keep_instance: "an instance id has no member",
    await_sync_of_a_missing_member: "it awaits a SyncGroup of a client that is not a member",
    await_sync_too_early: "it awaits SyncGroups",
    park_join_in_completing: "the JoinGroup of",
    park_sync_in_stable: "the SyncGroup of",
    delay_in_stable: "its initial delay runs",
    lose_reserve: "its reserved memory is out of range",
}


@pytest.mark.parametrize("break_it", BROKEN, ids=lambda one: one.__name__)
def test_a_state_that_breaks_an_invariant(break_it: Callable[[Group], None]) -> None:
    group = stable_group()
    check_whole(group)
    break_it(group)
    with pytest.raises(InvariantError, match=BROKEN[break_it]) as raised:
        check_whole(group)
    assert "group 'g'" in str(raised.value)


LOOKED_AT_WHEN_TOUCHED = (
    lose_leader,
    lower_generation,
    leave_joins_range,
    choose_another_protocol,
    file_wrongly,
    be_pending,
    park_sync_in_stable,
    delay_in_stable,
    lose_reserve,
)


@pytest.mark.parametrize("break_it", LOOKED_AT_WHEN_TOUCHED, ids=lambda one: one.__name__)
def test_a_transition_that_touches_a_member(break_it: Callable[[Group], None]) -> None:
    group = stable_group()
    member_id = first(group).member_id
    break_it(group)
    group.members.touched_ids.add(member_id)
    with pytest.raises(InvariantError):
        check(group)


def test_a_member_that_went_and_is_still_awaited() -> None:
    group = stable_group()
    group.pending_syncs.add("gone")
    group.members.touched_ids.add("gone")
    with pytest.raises(InvariantError, match="a SyncGroup of gone, which is not a member"):
        check(group)


def test_unchanged_group_is_not_checked() -> None:
    group = stable_group()
    lose_leader(group)
    check(group)


def test_a_change_of_state_has_everything_checked() -> None:
    group = stable_group()
    miscount_protocols(group)
    group.move_to(GroupState.PREPARING, 1)
    with pytest.raises(InvariantError, match="miscounted"):
        check(group)


def test_a_dead_group_is_not_checked() -> None:
    group = stable_group()
    miscount_protocols(group)
    group.move_to(GroupState.DEAD, 1)
    check(group)


async def test_the_driver_sets_the_group_aside(autojump_clock: trio.testing.MockClock) -> None:
    async with running(settings=GroupSettings(initial_rebalance_delay_ms=0)) as rig:
        me = await rig.enter()
        group = rig.coordinator.manager.groups["g"].group
        group.members.protocol_counts["sticky"] = 5
        with pytest.raises(Exception, match="set aside"):
            await rig.join(me.member_id)
        assert (
            rig.coordinator.manager.describe_group("g").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
