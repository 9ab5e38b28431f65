"""What groups and members make the coordinator remember has one bound over all groups."""

from __future__ import annotations

from typing import Any

from pyrklog.errors import ErrorCode
from pyrklog.groups.loading import LoadedGroup
from pyrklog.groups.memory import GROUP_BYTES, MEMBER_BYTES, PENDING_BYTES
from pyrklog.groups.registry import Outcome, Registry
from pyrklog.groups.values import (
    Append,
    GroupSettings,
    JoinRequest,
    LeavingMember,
    Reply,
    SetTimer,
    SyncRequest,
    Timer,
)
from pyrklog.internal_log import AppendResult
from pyrklog.protocol.group_records import GroupValue, MemberValue

MAX_BYTES = 200_000
METADATA_BYTES = 10_000
NO_ROOM = ErrorCode.COORDINATOR_NOT_AVAILABLE


def _registry() -> Registry:
    settings = GroupSettings(initial_rebalance_delay_ms=0, memory_max_bytes=MAX_BYTES)
    registry = Registry(settings, 1)
    registry.begin_load(0, 0)
    registry.finish_load(0, [], 0)
    return registry


def _request(group: str, fresh_id: str, **more: Any) -> JoinRequest:
    given: dict[str, Any] = {
        "member_id": "",
        "instance_id": None,
        "protocols": [("range", bytes(METADATA_BYTES))],
        **more,
    }
    return JoinRequest(
        group_id=group,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        fresh_id=fresh_id,
        **given,
    )


def _error(outcome: Outcome, token: int) -> ErrorCode | None:
    """Of the reply; None where there is none yet."""
    for effect in outcome.effects:
        if isinstance(effect, Reply) and effect.token == token:
            error: ErrorCode = getattr(effect.result, "error", ErrorCode.NONE)
            return error
    return None


def _join(registry: Registry, request: JoinRequest) -> ErrorCode | None:
    """The code of the answer, the wait for the first members over."""
    machine, effects = registry.join(request, 1, 0)
    effects = list(effects)
    if machine is not None and any(isinstance(effect, SetTimer) for effect in effects):
        effects += machine.timer_fired(Timer.INITIAL_DELAY, "", 0)
    return _error(Outcome(machine, effects), 1)


def _fill(registry: Registry) -> list[str]:
    """A group of one member each, until none is let in any more: their names."""
    names: list[str] = []
    while True:
        name = f"g{len(names)}"
        error = _join(registry, _request(name, "0"))
        if error is not ErrorCode.NONE:
            assert error is NO_ROOM
            return names
        names.append(name)


def test_members_of_all_groups_share_one_bound_and_make_room_when_they_leave() -> None:
    registry = _registry()
    names = _fill(registry)
    assert len(names) == MAX_BYTES // (GROUP_BYTES + MEMBER_BYTES + METADATA_BYTES)
    assert registry.memory.used_bytes <= MAX_BYTES
    assert f"g{len(names)}" not in registry.groups, "nothing is left of who was refused"
    # Who is in may say the same again, and less, but not more.
    for size, code in ((METADATA_BYTES, ErrorCode.NONE), (5, ErrorCode.NONE), (100_000, NO_ROOM)):
        said = [("range", bytes(size))]
        assert _join(registry, _request(names[0], "1", member_id="c-0", protocols=said)) is code
    registry.leave(names[1], [LeavingMember("c-0")], 3, 0)
    assert _join(registry, _request(names[1], "2")) is ErrorCode.NONE


def test_member_ids_that_were_handed_out_count() -> None:
    registry = _registry()
    handed_out = 0
    while handed_out < MAX_BYTES:
        request = _request("g", str(handed_out), member_id_required=True)
        error = _join(registry, request)
        if error is NO_ROOM:
            break
        assert error is ErrorCode.MEMBER_ID_REQUIRED
        handed_out += 1
    assert 50 < handed_out <= MAX_BYTES // PENDING_BYTES


def test_an_assignment_that_finds_no_room_is_not_taken() -> None:
    registry = _registry()
    assert _join(registry, _request("g", "0")) is ErrorCode.NONE
    request = SyncRequest("g", 1, "c-0", assignments={"c-0": bytes(MAX_BYTES)})
    assert _error(registry.sync(request, 2, 0), 2) is NO_ROOM
    assert registry.memory.used_bytes < MAX_BYTES / 4
    assert _join(registry, _request("g", "0", member_id="c-0")) is ErrorCode.NONE
    request = SyncRequest("g", 2, "c-0", assignments={"c-0": bytes(1000)})
    before_bytes = registry.memory.used_bytes
    machine, effects = registry.sync(request, 4, 0)
    assert machine is not None
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    done = machine.append_finished(append.ticket, AppendResult(ErrorCode.NONE), 0)
    assert _error(Outcome(machine, done), 4) is ErrorCode.NONE
    assert registry.memory.used_bytes == before_bytes + 1000


def test_what_the_log_says_is_taken_in_and_a_partition_takes_its_part_along() -> None:
    registry = _registry()
    member = MemberValue("m", None, "c", "/h", 10_000, 10_000, bytes(MAX_BYTES), b"")
    value = GroupValue("consumer", 3, "range", "m", 0, [member])
    registry.unload(0)
    registry.begin_load(0, 1)
    loaded = registry.finish_load(0, [LoadedGroup("large", value, {}, {})], 0)
    assert not loaded.failed
    assert registry.memory.used_bytes > MAX_BYTES
    assert _join(registry, _request("new", "0")) is NO_ROOM
    (machine,) = registry.unload(0)
    assert registry.memory.used_bytes == 0
    machine.unload(0)
    assert registry.memory.used_bytes == 0


def test_a_group_that_is_set_aside_counts_no_more() -> None:
    registry = _registry()
    registry.join(_request("g", "0"), 1, 0)
    assert registry.memory.used_bytes > METADATA_BYTES
    registry.set_aside("g")
    assert registry.memory.used_bytes == 0
