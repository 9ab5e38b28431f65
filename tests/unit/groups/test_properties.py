"""Any order of events: the invariants hold after each one, and nobody waits for ever."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from pyrklog.errors import ErrorCode
from pyrklog.groups.messages import LeavingMember
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.states import GroupState
from pyrklog.plane.internal_log import (
    Producer,
)
from tests.unit.groups.harness import NONE, Play

PROTOCOLS = (
    (("range", b"1"),),
    (("range", b"2"), ("sticky", b"2")),
    (("sticky", b"3"), ("range", b"3")),
    (("sticky", b"4"),),
)
FAILURES = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
)
INSTANCES = ("i1", "i2")
TOPICS = st.dictionaries(
    st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 1)), st.integers(0, 9), min_size=1
)


class AnyOrder(RuleBasedStateMachine):
    """Clients that make every mistake, timers that end at any time, appends that fail."""

    def __init__(self) -> None:
        super().__init__()
        self.play = _new_play()

    @initialize(members=st.integers(0, 3), instances=st.booleans())
    def begin(self, members: int, instances: bool) -> None:
        if members:
            self.play.auto_append = True
            self.play.stable(members)
            if instances:
                self.play.join(instance="i1", protocols=PROTOCOLS[1])
            self.play.auto_append = False

    def _known(self, data: st.DataObject) -> str:
        candidates = [*self.play.member_ids, *sorted(self.play.group.pending_ids), "ghost"]
        member_id: str = data.draw(st.sampled_from(candidates))
        return member_id

    def _bury(self) -> None:
        """A dead group owes nothing; the next one begins."""
        if self.play.state is GroupState.DEAD:
            _check_settled(self.play)
            self.play = _new_play()
            self.begin(2, True)

    @rule(
        protocols=st.sampled_from(PROTOCOLS),
        instance=st.none() | st.sampled_from(INSTANCES),
        v4=st.booleans(),
        v9=st.booleans(),
    )
    def join_new(
        self, protocols: tuple[tuple[str, bytes], ...], instance: str | None, v4: bool, v9: bool
    ) -> None:
        self.play.join(protocols=protocols, instance=instance, v4=v4, v9=v9)

    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def join_known(self, data: st.DataObject, protocols: tuple[tuple[str, bytes], ...]) -> None:
        member_id = self._known(data)
        member = self.play.group.members.get(member_id)
        instance = member.instance_id if member is not None else None
        self.play.join(member_id, protocols=protocols, instance=instance)

    @rule(data=st.data(), behind=st.sampled_from([0, 0, 0, 1]))
    def sync(self, data: st.DataObject, behind: int) -> None:
        member_id = self._known(data)
        ids = self.play.member_ids
        given = {m: f"{m}/{self.play.generation}".encode() for m in ids}
        if self.play.group.members.is_leader(member_id) and data.draw(st.booleans()):
            given.pop(ids[-1])
        self.play.sync(member_id, given, generation=self.play.generation - behind)

    @precondition(lambda self: self.play.state is GroupState.COMPLETING)
    @rule()
    def everybody_syncs(self) -> None:
        for member_id in self.play.member_ids:
            given = {m: f"{m}/{self.play.generation}".encode() for m in self.play.member_ids}
            self.play.sync(member_id, given)

    @precondition(lambda self: self.play.state is GroupState.COMPLETING)
    @rule()
    def the_generation_settles(self) -> None:
        while self.play.appends:
            self.play.finish_append()
        self.everybody_syncs()
        while self.play.appends:
            self.play.finish_append()

    @precondition(lambda self: self.play.state is GroupState.PREPARING)
    @rule()
    def everybody_joins(self) -> None:
        members = list(self.play.group.members.values())
        for member in members:
            if self.play.group.members.get(member.member_id) is member:
                self.play.join(
                    member.member_id, protocols=member.protocols, instance=member.instance_id
                )

    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        self.play.heartbeat(self._known(data))

    @rule(data=st.data(), by_instance=st.sampled_from(INSTANCES), admin=st.booleans())
    def leave(self, data: st.DataObject, by_instance: str, admin: bool) -> None:
        leaving = LeavingMember("", by_instance) if admin else LeavingMember(self._known(data))
        self.play.leave(leaving)

    @rule(data=st.data(), offsets=TOPICS, admin=st.booleans(), producer=st.none() | st.just(7))
    def commit(
        self,
        data: st.DataObject,
        offsets: dict[tuple[str, int], int],
        admin: bool,
        producer: int | None,
    ) -> None:
        generation = -1 if admin else self.play.generation
        self.play.commit(
            offsets,
            "" if admin else self._known(data),
            generation=generation,
            producer=None if producer is None else Producer(producer, 0),
        )

    @precondition(lambda self: self.play.group.offsets.transactions.producers)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        self.play.machine.transaction_completed(7, marker_offset=2**62, commit=commit)

    @precondition(lambda self: self.play.timers)
    @rule(data=st.data())
    def timer(self, data: st.DataObject) -> None:
        keys = sorted(self.play.timers, key=lambda key: (key[0].value, key[1]))
        self.play.fire(*data.draw(st.sampled_from(keys)))

    @precondition(lambda self: self.play.appends)
    @rule(data=st.data(), error=st.sampled_from([NONE, NONE, NONE, *FAILURES]))
    def append_ends(self, data: st.DataObject, error: ErrorCode) -> None:
        index = data.draw(st.integers(0, len(self.play.appends) - 1))
        self.play.finish_append(error, index)

    @rule(later_ms=st.sampled_from([0, 20_000, 60_000]))
    def expire(self, later_ms: int) -> None:
        self.play.now_ms += later_ms
        self.play.take(self.play.machine.expire(self.play.now_ms))
        self._bury()

    @precondition(lambda self: bool(len(self.play.group.offsets)))
    @rule(topic=st.sampled_from(["t", "u"]))
    def delete_offsets(self, topic: str) -> None:
        partitions = [(topic, 0), (topic, 1)]
        effects = self.play.machine.delete_offsets(partitions, self.play.token(), self.play.now_ms)
        self.play.take(effects)
        self._bury()

    @precondition(lambda self: self.play.generation > 1)
    @rule()
    def delete(self) -> None:
        self.play.take(self.play.machine.delete(self.play.token(), self.play.now_ms))
        self._bury()

    def teardown(self) -> None:
        self.play.take(self.play.machine.unload(self.play.now_ms))
        _check_settled(self.play)


def _new_play() -> Play:
    return Play(GroupSettings(members_max=4, retention_ms=30_000), auto_append=False)


def _check_settled(play: Play) -> None:
    while play.appends:
        play.finish_append()
    assert play.asked == play.replies.keys()
    assert not play.timers
    assert not play.machine.appends


AnyOrder.TestCase.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
TestAnyOrder = AnyOrder.TestCase
