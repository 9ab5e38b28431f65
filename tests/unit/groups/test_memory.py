"""The coordinator's memory for groups and members has one bound over all groups."""

from __future__ import annotations

from typing import Any

from pyrklog.coordinators.memory_pool import MemoryPool
from pyrklog.errors import ErrorCode
from pyrklog.groups.effects import Append, Reply, SetTimer, Timer
from pyrklog.groups.group import REASON_CHARACTERS_MAX
from pyrklog.groups.group_manager import GroupEffects, GroupManager
from pyrklog.groups.loading import LoadedGroup
from pyrklog.groups.memory import (
    GROUP_BYTES,
    MEMBER_BYTES,
    PENDING_BYTES,
    PROTOCOL_BYTES,
    RESERVE_BYTES,
    GroupMemory,
)
from pyrklog.groups.messages import (
    CommitRequest,
    CommitResult,
    JoinRequest,
    LeavingMember,
    Offset,
    SyncRequest,
)
from pyrklog.groups.offsets import GroupOffsets
from pyrklog.groups.options import GroupSettings
from pyrklog.groups.states import GroupState
from pyrklog.groups.subscription import TOPICS_MAX, all_subscribed_topics, subscribed_topics
from pyrklog.plane.internal_log import AppendResult
from pyrklog.protocol.group_records import GroupValue, MemberValue

MAX_BYTES = 200_000
METADATA_BYTES = 10_000
NO_ROOM = ErrorCode.COORDINATOR_NOT_AVAILABLE


def _manager() -> GroupManager:
    settings = GroupSettings(initial_rebalance_delay_ms=0, memory_max_bytes=MAX_BYTES)
    manager = GroupManager(settings, 1)
    manager.begin_load(0, 0)
    manager.finish_load(0, [], 0)
    return manager


def _request(group: str, fresh_id: str, **more: Any) -> JoinRequest:
    given: dict[str, Any] = {
        "client_host": "/h",
        "member_id": "",
        "instance_id": None,
        "protocols": [("range", bytes(METADATA_BYTES))],
        **more,
    }
    return JoinRequest(
        group_id=group,
        client_id="c",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        fresh_id=fresh_id,
        **given,
    )


def _error(outcome: GroupEffects, token: int) -> ErrorCode | None:
    for effect in outcome.effects:
        if isinstance(effect, Reply) and effect.token == token:
            error: ErrorCode = getattr(effect.result, "error", ErrorCode.NONE)
            return error
    return None


def _join(manager: GroupManager, request: JoinRequest) -> ErrorCode | None:
    """The answer's code after the initial rebalance delay."""
    machine, effects = manager.join(request, 1, 0)
    effects = list(effects)
    if machine is not None and any(isinstance(effect, SetTimer) for effect in effects):
        effects += machine.timer_fired(Timer.INITIAL_DELAY, "", 0)
    return _error(GroupEffects(machine, effects), 1)


def _fill(manager: GroupManager, host: str = "/h") -> list[str]:
    names: list[str] = []
    while True:
        name = f"g{len(names)}{host}"
        error = _join(manager, _request(name, "0", client_host=host))
        if error is not ErrorCode.NONE:
            assert error is NO_ROOM
            return names
        names.append(name)


def _fill_to_the_end(manager: GroupManager) -> None:
    """What one host leaves free another takes, until hardly anything is left."""
    for number in range(20):
        small = [("range", bytes(10))]
        for fresh in range(100):
            request = _request(f"{number}-{fresh}", "0", client_host=f"/{number}", protocols=small)
            if _join(manager, request) is NO_ROOM:
                break
    assert manager.memory_pool.used_bytes > MAX_BYTES - 2 * (GROUP_BYTES + MEMBER_BYTES + 2_000)


def _assign(
    manager: GroupManager, generation: int, leader: str, given: dict[str, bytes], group: str = "g"
) -> ErrorCode | None:
    request = SyncRequest(group, generation, leader, assignments=given)
    machine, effects = manager.sync(request, 7, 0)
    assert machine is not None
    effects = list(effects)
    for append in [effect for effect in effects if isinstance(effect, Append)]:
        effects += machine.append_finished(append.ticket, AppendResult(ErrorCode.NONE), 0)
    return _error(GroupEffects(machine, effects), 7)


def _generation(manager: GroupManager) -> int:
    return manager.groups["g"].group.generation


def test_members_of_all_groups_share_one_bound_and_make_room_when_they_leave() -> None:
    manager = _manager()
    names = _fill(manager)
    one_bytes = GROUP_BYTES + MEMBER_BYTES + METADATA_BYTES + PROTOCOL_BYTES + RESERVE_BYTES
    assert MAX_BYTES // 2 // (one_bytes + 400) <= len(names) <= MAX_BYTES // 2 // one_bytes
    assert manager.memory_pool.used_bytes <= MAX_BYTES // 2
    assert f"g{len(names)}/h" not in manager.groups, "nothing is left of who was refused"
    # A present member may repeat its metadata or shorten it, but not extend it.
    for size, code in ((METADATA_BYTES, ErrorCode.NONE), (5, ErrorCode.NONE), (100_000, NO_ROOM)):
        said = [("range", bytes(size))]
        assert _join(manager, _request(names[0], "1", member_id="c-0", protocols=said)) is code
    manager.leave(names[1], [LeavingMember("c-0")], 3, 0)
    assert _join(manager, _request(names[1], "2")) is ErrorCode.NONE


def test_member_ids_that_were_handed_out_count() -> None:
    manager = _manager()
    handed_out = 0
    while handed_out < MAX_BYTES:
        request = _request("g", str(handed_out), member_id_required=True)
        error = _join(manager, request)
        if error is NO_ROOM:
            break
        assert error is ErrorCode.MEMBER_ID_REQUIRED
        handed_out += 1
    assert 50 < handed_out <= MAX_BYTES // PENDING_BYTES


def test_an_assignment_that_finds_no_room_is_not_taken() -> None:
    manager = _manager()
    assert _join(manager, _request("g", "0")) is ErrorCode.NONE
    request = SyncRequest("g", 1, "c-0", assignments={"c-0": bytes(MAX_BYTES)})
    assert _error(manager.sync(request, 2, 0), 2) is NO_ROOM
    assert manager.memory_pool.used_bytes < MAX_BYTES / 4
    assert _join(manager, _request("g", "0", member_id="c-0")) is ErrorCode.NONE
    request = SyncRequest("g", 2, "c-0", assignments={"c-0": bytes(1000)})
    before_bytes = manager.memory_pool.used_bytes
    machine, effects = manager.sync(request, 4, 0)
    assert machine is not None
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    done = machine.append_finished(append.ticket, AppendResult(ErrorCode.NONE), 0)
    assert _error(GroupEffects(machine, done), 4) is ErrorCode.NONE
    # Counted twice: a member may later name its assignment in its metadata.
    assert manager.memory_pool.used_bytes == before_bytes + 2 * 1000 - RESERVE_BYTES


def test_loaded_groups_count_until_their_partition_unloads() -> None:
    manager = _manager()
    member = MemberValue("m", None, "c", "/h", 10_000, 10_000, bytes(MAX_BYTES), b"")
    value = GroupValue("consumer", 3, "range", "m", 0, [member])
    manager.unload(0)
    manager.begin_load(0, 1)
    loaded = manager.finish_load(0, [LoadedGroup("large", value, GroupOffsets())], 0)
    assert not loaded.failed
    assert manager.memory_pool.used_bytes > MAX_BYTES
    assert _join(manager, _request("new", "0")) is NO_ROOM
    other = _request("new", "0", client_host="/other")
    assert _join(manager, other) is ErrorCode.NONE, "one host's log keeps another one out"
    manager.set_aside("new")
    (machine,) = manager.unload(0)
    assert manager.memory_pool.used_bytes == 0
    machine.unload(0)
    assert manager.memory_pool.used_bytes == 0


def test_group_set_aside_releases_its_memory() -> None:
    manager = _manager()
    manager.join(_request("g", "0"), 1, 0)
    assert manager.memory_pool.used_bytes > METADATA_BYTES
    manager.set_aside("g")
    assert manager.memory_pool.used_bytes == 0


def test_one_host_cannot_take_all_group_memory() -> None:
    manager = _manager()
    counts = [len(_fill(manager, f"/{number}")) for number in range(3)]
    assert counts[0] > counts[1] > counts[2] > 0
    assert counts[1] in (counts[0] // 2, counts[0] // 2 + 1)
    assert manager.memory_pool.of_host("/0") <= MAX_BYTES // 2
    for name in list(manager.groups):
        manager.set_aside(name)
    assert manager.memory_pool.used_bytes == manager.memory_pool.of_host("/0") == 0


def test_running_group_keeps_its_reserve_in_full_memory() -> None:
    manager = _manager()
    _join(manager, _request("g", "0"))
    given = {"c-0": bytes(30_000)}
    assert _assign(manager, 1, "c-0", given) is ErrorCode.NONE
    # The leader joins again, and then two generations in a row get no assignment.
    for generation in (2, 3):
        assert _join(manager, _request("g", "0", member_id="c-0")) is ErrorCode.NONE
        assert _generation(manager) == generation
        if generation == 2:
            too_much = {"c-0": bytes(MAX_BYTES)}
            assert _assign(manager, generation, "c-0", too_much) is NO_ROOM
            _fill_to_the_end(manager)
    assert _assign(manager, 3, "c-0", given) is ErrorCode.NONE
    assert manager.memory_pool.used_bytes <= MAX_BYTES


def test_memory_of_a_leaving_member_is_free_for_others() -> None:
    manager = _manager()
    _join(manager, _request("g", "0"))
    manager.join(_request("g", "1", client_host="/1"), 2, 0)
    assert _join(manager, _request("g", "0", member_id="c-0")) is ErrorCode.NONE
    given = {"c-0": bytes(10_000), "c-1": bytes(10_000)}
    assert _assign(manager, 2, "c-0", given) is ErrorCode.NONE
    manager.sync(SyncRequest("g", 2, "c-1"), 8, 0)
    manager.leave("g", [LeavingMember("c-1")], 3, 0)
    _fill_to_the_end(manager)
    assert _join(manager, _request("g", "0", member_id="c-0")) is ErrorCode.NONE
    assert _assign(manager, 3, "c-0", {"c-0": bytes(20_000)}) is ErrorCode.NONE
    assert manager.memory_pool.used_bytes <= MAX_BYTES


def test_member_metadata_may_grow_by_its_assignment_in_full_memory() -> None:
    manager = _manager()
    _join(manager, _request("g", "0"))
    given = {"c-0": bytes(10_000)}
    assert _assign(manager, 1, "c-0", given) is ErrorCode.NONE
    _fill_to_the_end(manager)
    for generation, more in ((2, 10_000), (3, 0), (4, 10_000)):
        said = [("range", bytes(METADATA_BYTES + more))]
        request = _request("g", "0", member_id="c-0", protocols=said)
        assert _join(manager, request) is ErrorCode.NONE
        assert _assign(manager, generation, "c-0", given) is ErrorCode.NONE
    said = [("range", bytes(METADATA_BYTES + 40_000))]
    assert _join(manager, _request("g", "0", member_id="c-0", protocols=said)) is NO_ROOM
    assert manager.memory_pool.used_bytes <= MAX_BYTES


def test_an_accepted_assignment_has_its_memory_before_it_is_written() -> None:
    manager = _manager()
    large = bytes(MAX_BYTES // 4)
    codes = []
    for name in ("a", "b", "c"):
        _join(manager, _request(name, "0", client_host=f"/{name}"))
    for name in ("a", "b", "c"):
        request = SyncRequest(name, 1, "c-0", assignments={"c-0": large})
        codes.append(_error(manager.sync(request, 2, 0), 2))
    assert codes == [None, NO_ROOM, NO_ROOM]


def test_strings_and_protocols_count_for_what_they_take() -> None:
    manager = _manager()
    many = [(str(number), b"") for number in range(1000)]
    assert _join(manager, _request("g", "0", protocols=many)) is NO_ROOM
    assert _join(manager, _request("\N{GRINNING FACE}" * (MAX_BYTES // 6), "0")) is NO_ROOM
    assert _join(manager, _request("g" * (MAX_BYTES // 6), "0")) is ErrorCode.NONE


def test_topics_that_members_subscribe_to_count() -> None:
    manager = _manager()
    names = [f"{number:03}".encode() for number in range(400)]
    strings = b"".join(len(name).to_bytes(2, "big") + name for name in names)
    metadata = bytes(2) + len(names).to_bytes(4, "big") + strings
    _join(manager, _request("g", "0", protocols=[("range", metadata)]))
    assert manager.memory_pool.used_bytes > 50_000
    assert manager.groups["g"].group.is_subscribed_to("000")
    assert not manager.groups["g"].group.is_subscribed_to("none")
    _join(manager, _request("h", "0", protocols=[("range", metadata)]))
    assert manager.groups["h"].group.is_subscribed_to("none"), "too many: it may read any"


def test_groups_that_commits_found_count_for_the_hosts_that_commit() -> None:
    manager = _manager()
    codes: list[ErrorCode] = []
    for number in range(MAX_BYTES // GROUP_BYTES):
        name = f"simple-{number}"
        request = CommitRequest(name, -1, "", None, {("t", 0): Offset(1)}, client_host="/h")
        machine, effects = manager.commit(request, number, 0)
        if machine is None:
            [reply] = effects
            assert isinstance(reply, Reply)
            assert isinstance(reply.result, CommitResult)
            codes += reply.result.errors.values()
    assert set(codes) == {NO_ROOM}
    assert manager.memory_pool.of_host("/h") <= MAX_BYTES // 2
    assert _join(manager, _request("g", "0", client_host="/other")) is ErrorCode.NONE
    # The founder of a group may always commit to it.
    request = CommitRequest("simple-0", -1, "", None, {("t", 0): Offset(2)}, client_host="/h")
    assert manager.commit(request, 9, 0).group is not None


def test_group_with_a_refused_first_commit_leaves_no_memory() -> None:
    manager = _manager()
    offset = Offset(1, metadata="x" * 10_000)
    manager.commit(CommitRequest("g", -1, "", None, {("t", 0): offset}), 1, 0)
    assert not manager.groups
    assert manager.memory_pool.used_bytes == 0


def test_loaded_groups_without_members_leave_room_for_members() -> None:
    manager = _manager()
    manager.unload(0)
    manager.begin_load(0, 1)
    loaded = (LoadedGroup(f"simple-{number}", None, GroupOffsets()) for number in range(100))
    manager.finish_load(0, loaded, 0)
    assert manager.memory_pool.used_bytes > 2 * MAX_BYTES
    assert _join(manager, _request("g", "0")) is ErrorCode.NONE


def _with_groups_of_the_log() -> GroupManager:
    """Loaded groups without members that take all the memory."""
    manager = _manager()
    manager.unload(0)
    manager.begin_load(0, 1)
    count = MAX_BYTES // GROUP_BYTES
    loaded = (LoadedGroup(f"simple-{number}", None, GroupOffsets()) for number in range(count))
    manager.finish_load(0, loaded, 0)
    return manager


def test_loaded_groups_without_members_take_no_room_of_hosts() -> None:
    manager = _with_groups_of_the_log()
    alone = _manager()
    assert [len(_fill(manager, host)) for host in ("/1", "/2")] == [
        len(_fill(alone, host)) for host in ("/1", "/2")
    ]


def test_loaded_group_counts_for_the_host_of_its_first_member() -> None:
    manager = _with_groups_of_the_log()
    said = [("range", _subscription(range(3)))]
    request = _request("simple-0", "0", client_host="/1", protocols=said)
    assert _join(manager, request) is ErrorCode.NONE
    assert manager.memory_pool.of_host("/1") > GROUP_BYTES + MEMBER_BYTES
    group = manager.groups["simple-0"].group
    assert group.is_subscribed_to("000000")
    assert not group.is_subscribed_to("none"), "its offsets would never expire"
    manager.join(request._replace(client_host="/2", fresh_id="1"), 2, 0)
    assert len(group.members) == 2
    assert group.memory.host == "/1"
    manager.set_aside("simple-0")
    assert manager.memory_pool.of_host("/1") == manager.memory_pool.of_host("/2") == 0


def test_first_member_of_a_loaded_group_needs_room_for_the_group() -> None:
    manager = _with_groups_of_the_log()
    rest = MEMBER_BYTES + PROTOCOL_BYTES + RESERVE_BYTES + len("range" + "c" * 2 + "consumer")
    request = _request("simple-0", "0", client_host="/1")
    size = MAX_BYTES // 2 - rest
    assert _join(manager, request._replace(protocols=[("range", bytes(size))])) is NO_ROOM
    size -= GROUP_BYTES + len("simple-0")
    assert _join(manager, request._replace(protocols=[("range", bytes(size))])) is ErrorCode.NONE


def test_a_loaded_group_without_a_leader_counts_for_its_first_member() -> None:
    manager = _manager()
    manager.unload(0)
    manager.begin_load(0, 1)
    member = MemberValue("m", None, "c", "/h", 10_000, 10_000, bytes(10), b"")
    value = GroupValue("consumer", 3, "range", None, 0, [member])
    manager.finish_load(0, [LoadedGroup("g", value, GroupOffsets())], 0)
    assert manager.memory_pool.of_host("/h") == manager.memory_pool.used_bytes


def test_the_reserve_does_not_multiply_while_most_members_leave_and_come() -> None:
    manager = _manager()
    small = [("range", bytes(10))]
    count = 10
    given = {f"c-{number}": bytes(1_500) for number in range(count)}
    assert _join(manager, _request("g", "0", protocols=small)) is ErrorCode.NONE
    share = manager.groups["g"].group.memory
    for number in range(1, count):
        manager.join(_request("g", str(number), protocols=small), number, 0)
    assert _join(manager, _request("g", "0", member_id="c-0", protocols=small)) is ErrorCode.NONE
    assert _assign(manager, 2, "c-0", given) is ErrorCode.NONE
    settled_bytes = 2 * sum(map(len, given.values()))
    assert share.reserved_bytes == settled_bytes

    leaving = [LeavingMember(f"c-{number}") for number in range(1, count)]
    manager.leave("g", leaving, 50, 0)
    for number in range(count, 2 * count - 1):
        manager.join(_request("g", str(number), protocols=small), number, 0)
    assert len(manager.groups["g"].group.members) == count
    assert share.reserved_bytes == settled_bytes
    manager.join(_request("g", "30", protocols=small), 30, 0)
    assert share.reserved_bytes == settled_bytes + 2 * 1_500


def test_hosts_that_have_left_are_not_remembered() -> None:
    memory = MemoryPool(MAX_BYTES)
    share = GroupMemory(memory, "/founder", "g")
    for number in range(10):
        share.change(100, f"/{number}")
        share.reserve(100, f"/{number}")
        share.reserve(-100, f"/{number}")
        share.change(-100, f"/{number}")
    assert share.hosts == {"/founder"}
    share.close()
    assert memory.used_bytes == 0


def test_new_member_reserves_as_much_as_the_others_hold() -> None:
    manager = _manager()
    _join(manager, _request("g", "0"))
    given = {"c-0": bytes(30_000)}
    assert _assign(manager, 1, "c-0", given) is ErrorCode.NONE
    said = [("range", bytes(10))]
    assert _join(manager, _request("other", "1", protocols=said)) is ErrorCode.NONE
    newcomer = _request("g", "1", protocols=said)
    assert _join(manager, newcomer) is NO_ROOM
    assert manager.groups["g"].group.state is GroupState.STABLE, "nobody in it has to join again"
    assert manager.join(newcomer._replace(client_host="/1"), 2, 0).effects


def test_loaded_group_has_its_reserve_in_full_memory() -> None:
    manager = _manager()
    members = [
        MemberValue(name, None, "c", "/h", 10_000, 10_000, bytes(10), bytes(taken))
        for name, taken in (("a", 10_000), ("b", MAX_BYTES))
    ]
    manager.unload(0)
    manager.begin_load(0, 1)
    loaded = [
        LoadedGroup(
            one.member_id,
            GroupValue("consumer", 3, "range", one.member_id, 0, [one]),
            GroupOffsets(),
        )
        for one in reversed(members)
    ]
    manager.finish_load(0, loaded, 0)
    said = [("range", bytes(10_000))]
    assert _join(manager, _request("a", "0", member_id="a", protocols=said)) is ErrorCode.NONE


def test_unknown_member_is_refused_as_unknown_in_full_memory() -> None:
    manager = _manager()
    _fill_to_the_end(manager)
    ghost = _request("0-0", "0", member_id="ghost", protocols=[("range", bytes(METADATA_BYTES))])
    assert _join(manager, ghost) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_founds_no_group_whose_name_finds_no_room() -> None:
    manager = _manager()
    name = "g" * MAX_BYTES
    assert manager.commit(CommitRequest(name, -1, "", None, {("t", 0): Offset(1)}), 1, 0)
    assert not manager.groups


def test_the_reason_of_a_rebalance_keeps_to_the_bound() -> None:
    manager = _manager()
    _join(manager, _request("g", "0"))
    _fill_to_the_end(manager)
    for generation in range(1, 100):
        assert _assign(manager, generation, "c-0", {}) is ErrorCode.NONE
        said = _request("g", "0", member_id="c-0", reason="\N{GRINNING FACE}" * 500)
        assert _join(manager, said) is ErrorCode.NONE
    reason = manager.groups["g"].group.rebalance_reason
    assert "client reason" in reason
    assert len(reason) == REASON_CHARACTERS_MAX
    assert manager.memory_pool.used_bytes <= MAX_BYTES


def _subscription(topics: range) -> bytes:
    strings = b"".join(b"\0\6" + b"%06d" % number for number in topics)
    return bytes(2) + len(topics).to_bytes(4, "big") + strings


def test_subscription_to_too_many_topics_counts_as_all_topics() -> None:
    assert subscribed_topics(_subscription(range(TOPICS_MAX))) is not None
    assert subscribed_topics(_subscription(range(TOPICS_MAX + 1))) is None
    parts = [_subscription(range(TOPICS_MAX)), _subscription(range(TOPICS_MAX, TOPICS_MAX + 1))]
    assert all_subscribed_topics(parts[:1]) is not None
    assert all_subscribed_topics(parts) is None
