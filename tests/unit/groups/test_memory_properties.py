"""With little memory and members of several hosts: the bound holds, and members stay.

A running group can always repeat its last assignment, and a member its metadata of the last
generation, whatever others have taken meanwhile. Replacing a running group's members takes no more
memory, so that others can join as before.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Append, Reply, Timer
from pyrklog.groups.group_manager import GroupEffects, GroupManager
from pyrklog.groups.machine import GroupMachine
from pyrklog.groups.memory import RESERVE_BYTES
from pyrklog.groups.messages import JoinRequest, LeavingMember, SyncRequest
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.states import GroupState
from pyrklog.plane.internal_log import AppendResult

MAX_BYTES = 60_000
NO_ROOM = ErrorCode.COORDINATOR_NOT_AVAILABLE
GROUPS = st.sampled_from(["a", "b"])
HOSTS = st.sampled_from(["/1", "/2", "/3"])
SIZES = st.sampled_from([0, 100, 2_000, 10_000])
ROOM_BYTES = 10_000


class LittleMemory(RuleBasedStateMachine):
    """Two groups, members of three hosts; writes succeed at once."""

    def __init__(self) -> None:
        super().__init__()
        given = GroupSettings(initial_rebalance_delay_ms=0, memory_max_bytes=MAX_BYTES)
        self.manager = GroupManager(given, 1)
        self.manager.begin_load(0, 0)
        self.manager.finish_load(0, [], 0)
        self.fresh = 0
        self.others: list[tuple[str, int]] = []
        """Hosts whose groups are not played, and their memory."""
        self.answers: dict[int, Any] = {}
        self.running: dict[str, dict[str, int]] = {}
        """group -> member -> size of its last assignment."""
        self.said: dict[tuple[str, str], int] = {}
        """(group, member) -> metadata size in the last generation with an assignment."""

    def _take(self, outcome: GroupEffects) -> None:
        machine, effects = outcome
        for effect in effects:
            if isinstance(effect, Reply):
                self.answers[effect.token] = effect.result
            elif isinstance(effect, Append):
                assert machine is not None
                done = AppendResult(ErrorCode.NONE)
                self._take(GroupEffects(machine, machine.append_finished(effect.ticket, done, 0)))
        memory = self.manager.memory_pool
        shares = [one.group.memory for one in self.manager.groups.values()]
        others = sum(size for _, size in self.others)
        assert memory.used_bytes == others + sum(share.used_bytes for share in shares)
        assert memory.used_bytes <= MAX_BYTES + 1_000 * len(shares)  # one rebalance each
        for name in self.running.keys() - self.manager.groups.keys():
            del self.running[name]

    def _join(self, group: str, host: str, size: int, member_id: str = "") -> Any:
        self.fresh += 1
        request = JoinRequest(
            group,
            member_id,
            None,
            "c",
            host,
            10_000,
            10_000,
            "consumer",
            [("range", bytes(size))],
            fresh_id=str(self.fresh),
        )
        token = self.fresh
        self._take(self.manager.join(request, token, 0))
        machine = self.manager.groups.get(group)
        if machine is not None and machine.group.initial_delay is not None:
            self._take(GroupEffects(machine, machine.timer_fired(Timer.INITIAL_DELAY, "", 0)))
        return self.answers.get(token)

    def _machine(self, group: str) -> GroupMachine | None:
        return self.manager.groups.get(group)

    @rule(group=GROUPS, host=HOSTS, size=SIZES)
    def somebody_joins(self, group: str, host: str, size: int) -> None:
        self._join(group, host, size)

    @rule(group=GROUPS, sizes=st.none() | SIZES)
    def all_join_again(self, group: str, sizes: int | None, promised: bool = False) -> None:
        """None: each repeats its metadata of the last generation."""
        machine = self._machine(group)
        if machine is None:
            return
        for member in list(machine.group.members.values()):
            known = self.said.get((group, member.member_id))
            size = known if sizes is None else sizes
            if size is None or machine.group.members.get(member.member_id) is not member:
                continue
            answer = self._join(group, member.client_host, size, member.member_id)
            if promised and answer is not None:
                assert answer.error is not NO_ROOM

    @rule(group=GROUPS, data=st.data())
    def one_leaves(self, group: str, data: st.DataObject) -> None:
        machine = self._machine(group)
        if machine is None or not len(machine.group.members):
            return
        member_id = data.draw(st.sampled_from(list(machine.group.members)))
        self.fresh += 1
        self._take(self.manager.leave(group, [LeavingMember(member_id)], self.fresh, 0))
        if not len(machine.group.members):
            self.running.pop(group, None)

    @rule()
    def others_take_free_memory(self) -> None:
        free = self.manager.memory_pool.max_bytes - self.manager.memory_pool.used_bytes
        for number in range(4):
            if free >= 4:
                self.others.append((f"/other{number}", free // 4))
                self.manager.memory_pool.change(*self.others[-1])

    @precondition(lambda self: self.others)
    @rule()
    def others_leave(self) -> None:
        for host, size in self.others:
            self.manager.memory_pool.change(host, -size)
        self.others.clear()

    @rule(group=GROUPS, said=SIZES, size=SIZES)
    def a_whole_rebalance(self, group: str, said: int, size: int) -> None:
        self.all_join_again(group, said)
        self.the_rebalance_is_over(group)
        self._assign(group, {}, size)

    @precondition(lambda self: self.running)
    @rule(group=GROUPS, data=st.data(), twice=st.booleans(), leaves=st.booleans())
    def a_rebalance_while_others_fill_the_memory(
        self, group: str, data: st.DataObject, twice: bool, leaves: bool
    ) -> None:
        machine = self._machine(group)
        if machine is None or machine.group.state is not GroupState.STABLE:
            return
        if twice:  # the next rebalance begins before there is an assignment
            self.all_join_again(group, None, promised=True)
            self.all_join_again(group, 0, promised=True)
        if leaves:
            self.one_leaves(group, data)
        self.others_take_free_memory()
        self.all_join_again(group, None, promised=True)
        self.the_rebalance_is_over(group)
        self.the_leader_repeats_the_assignment(group, data)

    @rule(group=GROUPS, hosts=st.lists(HOSTS, max_size=3), size=SIZES)
    def all_but_one_are_replaced(self, group: str, hosts: list[str], size: int) -> None:
        """Each present member, old or new, takes over another one's metadata from the same host."""
        for host in hosts:
            self._join(group, host, 0)
        self.a_whole_rebalance(group, 0, size)
        machine = self._machine(group)
        if machine is None or machine.group.state is not GroupState.STABLE:
            return
        share = machine.group.memory
        members = list(machine.group.members.values())
        reserved_bytes = max(share.reserved_bytes, RESERVE_BYTES * len(members))
        had_room = self.manager.memory_pool.has_room("/new", ROOM_BYTES)
        leaving = [(one.client_host, len(one.protocols[0][1])) for one in members[1:]]
        gone = [LeavingMember(one.member_id) for one in members[1:]]
        self.fresh += 1
        self._take(self.manager.leave(group, gone, self.fresh, 0))
        for host, said in leaving:
            self._join(group, host, said)
        assert share.reserved_bytes <= reserved_bytes
        assert not had_room or self.manager.memory_pool.has_room("/new", ROOM_BYTES // 2)
        self.the_rebalance_is_over(group)
        self._assign(group, {}, size)

    @rule(group=GROUPS)
    def the_rebalance_is_over(self, group: str) -> None:
        machine = self._machine(group)
        if machine is not None and machine.group.state is GroupState.PREPARING:
            self._take(GroupEffects(machine, machine.timer_fired(Timer.REBALANCE, "", 0)))
            if not len(machine.group.members):
                self.running.pop(group, None)

    @rule(group=GROUPS, size=SIZES)
    def the_leader_assigns(self, group: str, size: int) -> None:
        self._assign(group, {}, size)

    @precondition(lambda self: self.running)
    @rule(group=GROUPS, data=st.data())
    def the_leader_repeats_the_assignment(self, group: str, data: st.DataObject) -> None:
        """To the present members, in one lump: they inherit what others left."""
        total = sum(self.running.get(group, {}).values())
        machine = self._machine(group)
        if machine is None or group not in self.running or not len(machine.group.members):
            return
        lucky = data.draw(st.sampled_from(list(machine.group.members)))
        error = self._assign(group, {lucky: total}, 0)
        assert error in (None, ErrorCode.NONE)

    def _assign(self, group: str, given: dict[str, int], size: int) -> ErrorCode | None:
        """The code of the leader's answer; None if nobody waits for an assignment."""
        machine = self._machine(group)
        if machine is None or machine.group.state is not GroupState.COMPLETING:
            return None
        members = machine.group.members
        sizes = {name: given.get(name, size) for name in members}
        self.fresh += 1
        request = SyncRequest(
            group,
            machine.group.generation,
            machine.group.members.leader,
            assignments={name: bytes(one) for name, one in sizes.items()},
        )
        self._take(self.manager.sync(request, self.fresh, 0))
        error: ErrorCode = self.answers[self.fresh].error
        if error is ErrorCode.NONE:
            self.running[group] = sizes
            for name, member in members.items():
                self.said[group, name] = len(member.protocols[0][1])
        return error

    def teardown(self) -> None:
        self.others_leave()
        for machine in self.manager.unload(0):
            machine.unload(0)
        memory = self.manager.memory_pool
        assert memory.used_bytes == 0
        assert not any(memory.of_host(host) for host in ("/1", "/2", "/3"))


TestLittleMemory = LittleMemory.TestCase
TestLittleMemory.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
