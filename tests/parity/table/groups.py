"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: states, generations, members, broken requests."""

from typing import Any

from tests.parity.definitions import Counted, Raw
from tests.parity.prepare import SUBSCRIPTION, coordinator, join_fields, member
from tests.parity.rows import Row, Saved, Scenario, in_versions

GHOST = "raw-00000000-aaaa-bbbb-cccc-000000000000"


def join(name: str, group: Any, version: int = 5, save: Any = None, **changes: Any) -> Row:
    fields = join_fields(group, **changes)
    if version == 0:
        del fields["rebalanceTimeoutMs"]
    return Row(name, "JoinGroup", version, fields, save=save or {})


def sync(name: str, group: Any, version: int = 3, **changes: Any) -> Row:
    fields: dict[str, Any] = {
        "groupId": group,
        "generationId": Saved("generation"),
        "memberId": Saved("member"),
        "assignments": [{"memberId": Saved("member"), "assignment": b"mine"}],
    }
    return Row(name, "SyncGroup", version, fields | changes)


def heartbeat(name: str, group: Any, version: int = 3, **changes: Any) -> Row:
    fields: dict[str, Any] = {
        "groupId": group,
        "generationId": Saved("generation"),
        "memberId": Saved("member"),
    }
    return Row(name, "Heartbeat", version, fields | changes)


def leave(name: str, group: Any, *members: Any, version: int = 3, **row: Any) -> Row:
    fields: dict[str, Any] = {"groupId": group}
    if version < 3:
        fields["memberId"] = members[0]
    else:
        fields["members"] = [one if isinstance(one, dict) else {"memberId": one} for one in members]
    return Row(name, "LeaveGroup", version, fields, **row)


def protocols(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "metadata": SUBSCRIPTION} for name in names]


JOINING = Scenario(
    "joining",
    [
        coordinator("join"),
        *in_versions((0, 1, 2, 5, 6, 7, 9), lambda v: join("empty group id", "", v)),
        *[
            join(f"session time-out {ms}", "join", sessionTimeoutMs=ms)
            for ms in (-(2**31), -1, 0, 5_999, 1_800_001, 2**31 - 1)
        ],
        join("no protocols", "join", protocols=[]),
        join("no protocols", "join", 9, protocols=[]),
        join("no protocol type", "join", protocolType=""),
        join("no protocol type, no protocols", "join", protocolType="", protocols=[]),
        join("a protocol without a name", "join-unnamed", 3, protocols=protocols("")),
        *in_versions((0, 3, 5, 9), lambda v: join("unknown member", "join", v, memberId=GHOST)),
        join("unknown member of a group that is not there", "join-none", memberId=GHOST),
        *in_versions(
            (4, 5, 6, 7, 8, 9), lambda v: join("member id is given first", f"join-{v}", v)
        ),
        join("empty instance id", "join-static", groupInstanceId=""),
        join(
            "unknown member with an instance id", "join-static", memberId=GHOST, groupInstanceId="a"
        ),
        join("instance id of 250 characters", "join-long", groupInstanceId="x" * 250),
        join("instance id with a slash", "join-slash", groupInstanceId="a/b"),
        join("instance id of a dot", "join-dot", groupInstanceId="."),
        join("null group id", None),
        join("null member id", "join", memberId=None),
        join("null protocol type", "join", protocolType=None),
        join("null protocols", "join", protocols=None),
        join("huge count of protocols", "join", protocols=Counted(2**31 - 2)),
        join("huge count of protocols", "join", 9, protocols=Counted(2**31 - 2)),
        join("count of protocols too high", "join", protocols=Counted(3, protocols("range"))),
        join("null metadata", "join", protocols=[{"name": "range", "metadata": None}]),
        join(
            "metadata longer than the frame",
            "join",
            protocols=[{"name": "range", "metadata": Raw(b"\x7f\xff\xff\xffabc")}],
        ),
        join(
            "negative length of metadata",
            "join",
            protocols=[{"name": "range", "metadata": Raw(b"\xff\xff\xff\xfeabc")}],
        ),
        join("group id not UTF-8", Raw(b"\0\1\xff"), 3, sessionTimeoutMs=1),
        Row("a byte missing", "JoinGroup", 5, join_fields("join"), cut=1),
        Row("a byte too many", "JoinGroup", 5, join_fields("", sessionTimeoutMs=0), tail=b"x"),
        Row(
            "unknown tagged field",
            "JoinGroup",
            9,
            join_fields("", sessionTimeoutMs=0),
            tags={5: b"x"},
        ),
        Row("empty body", "JoinGroup", 5, body=b""),
    ],
)
STABLE = Scenario(
    "a stable group",
    [
        member("stable"),
        join("no common protocol", "stable", 3, protocols=protocols("other")),
        join("no common protocol", "stable", 9, protocols=protocols("other")),
        join("another protocol type", "stable", 3, protocolType="connect"),
        join(
            "another protocol type and protocol",
            "stable",
            protocolType="x",
            protocols=protocols("y"),
        ),
        join("unknown member", "stable", memberId=GHOST),
        join("unknown instance with a member id", "stable", memberId=GHOST, groupInstanceId="i"),
        join(
            "known member, unknown instance",
            "stable",
            memberId=Saved("member"),
            groupInstanceId="i",
        ),
        *in_versions((0, 1, 2, 3, 4), lambda v: heartbeat("of the member", "stable", v)),
        *in_versions(
            (0, 3, 4),
            lambda v: heartbeat(
                "old generation", "stable", v, generationId=Saved("generation", -1)
            ),
        ),
        heartbeat("next generation", "stable", generationId=Saved("generation", 1)),
        heartbeat("generation -1", "stable", generationId=-1),
        heartbeat("largest generation", "stable", generationId=2**31 - 1),
        heartbeat("unknown member", "stable", memberId=GHOST),
        heartbeat("unknown member, old generation", "stable", memberId=GHOST, generationId=-5),
        heartbeat("empty member id", "stable", memberId=""),
        heartbeat("instance id of another", "stable", groupInstanceId="other"),
        heartbeat("empty instance id", "stable", groupInstanceId=""),
        heartbeat("empty group id", ""),
        heartbeat("group that is not there", "stable-none"),
        heartbeat("long member id", "stable", memberId="x" * 30_000),
        heartbeat("null group id", None),
        heartbeat("null member id", "stable", memberId=None),
        *in_versions((0, 1, 2, 3, 4), lambda v: sync("again", "stable", v)),
        sync(
            "again with type and name", "stable", 5, protocolType="consumer", protocolName="range"
        ),
        sync("another protocol type", "stable", 5, protocolType="connect", protocolName="range"),
        sync("another protocol", "stable", 5, protocolType="consumer", protocolName="sticky"),
        sync("without type and name", "stable", 5),
        sync("empty type and name", "stable", 5, protocolType="", protocolName=""),
        sync("type without name", "stable", 5, protocolType="consumer"),
        sync("old generation", "stable", generationId=Saved("generation", -1)),
        sync("old generation", "stable", 0, generationId=Saved("generation", -1)),
        sync("generation -1", "stable", generationId=-1),
        sync("unknown member", "stable", memberId=GHOST),
        sync("empty member id", "stable", memberId=""),
        sync("instance id of another", "stable", groupInstanceId="other"),
        sync("empty group id", ""),
        sync("group that is not there", "stable-none"),
        sync("no assignments", "stable", assignments=[]),
        sync(
            "assignment of a stranger",
            "stable",
            assignments=[{"memberId": GHOST, "assignment": b"x"}],
        ),
        sync("null assignments", "stable", assignments=None),
        sync("null assignment", "stable", assignments=[{"memberId": "x", "assignment": None}]),
        sync("huge count of assignments", "stable", assignments=Counted(2**31 - 2)),
        sync("huge count of assignments", "stable", 5, assignments=Counted(2**31 - 2)),
        Row("a byte missing", "SyncGroup", 3, {"groupId": "stable"}, cut=1),
        Row("a byte too many", "SyncGroup", 3, {"groupId": "stable"}, tail=b"x"),
        Row("unknown tagged field", "SyncGroup", 4, {"groupId": "stable"}, tags={5: b"x"}),
        Row("a byte missing", "Heartbeat", 3, {"groupId": "stable"}, cut=1),
        Row("a byte too many", "Heartbeat", 0, {"groupId": "stable"}, tail=b"x"),
        Row("unknown tagged field", "Heartbeat", 4, {"groupId": "stable"}, tags={5: b"x"}),
        heartbeat("of the member, after all this", "stable"),
    ],
)
STATIC = Scenario(
    "a static member",
    [
        member("static", instance="one"),
        heartbeat("of the member", "static", groupInstanceId="one"),
        heartbeat("without its instance id", "static"),
        heartbeat("another member id", "static", memberId=GHOST, groupInstanceId="one"),
        heartbeat("unknown instance", "static", groupInstanceId="two"),
        heartbeat(
            "unknown instance, unknown member", "static", memberId=GHOST, groupInstanceId="two"
        ),
        heartbeat(
            "old generation", "static", groupInstanceId="one", generationId=Saved("generation", -1)
        ),
        sync("another member id", "static", memberId=GHOST, groupInstanceId="one"),
        sync("unknown instance", "static", groupInstanceId="two"),
        join("another member id", "static", memberId=GHOST, groupInstanceId="one"),
        join("no common protocol", "static", groupInstanceId="one", protocols=protocols("other")),
        leave("another member id", "static", {"memberId": GHOST, "groupInstanceId": "one"}),
        leave("unknown instance", "static", {"memberId": "", "groupInstanceId": "two"}),
        leave("instance in version 2", "static", Saved("member"), version=2),
        leave("by instance", "static", {"memberId": "", "groupInstanceId": "one"}),
        leave("by instance again", "static", {"memberId": "", "groupInstanceId": "one"}),
    ],
)
RESTARTED = Scenario(
    "a static member comes back",
    [
        member("restart", "first", instance="one"),
        join(
            "with no member id",
            "restart",
            7,
            groupInstanceId="one",
            save={"member": "memberId", "generation": "generationId"},
        ),
        heartbeat(
            "of the old member id", "restart", memberId=Saved("first"), groupInstanceId="one"
        ),
        sync("of the old member id", "restart", memberId=Saved("first"), groupInstanceId="one"),
        join("of the old member id", "restart", memberId=Saved("first"), groupInstanceId="one"),
        leave(
            "of the old member id",
            "restart",
            {"memberId": Saved("first"), "groupInstanceId": "one"},
        ),
        heartbeat("of the new member id", "restart", groupInstanceId="one"),
        heartbeat("of the old member id alone", "restart", memberId=Saved("first")),
    ],
)
JOINED = Scenario(
    "between joining and syncing",
    [
        coordinator("between"),
        join(
            "the only member",
            "between",
            3,
            save={"member": "memberId", "generation": "generationId"},
        ),
        heartbeat("before it has synced", "between"),
        join("the same again", "between", 3, memberId=Saved("member")),
        sync("old generation", "between", generationId=0),
        sync("another protocol", "between", 5, protocolType="consumer", protocolName="other"),
        sync(
            "assigns to a stranger",
            "between",
            assignments=[{"memberId": GHOST, "assignment": b"x"}],
        ),
        heartbeat("once it has synced", "between"),
        join(
            "with the same protocols, as leader",
            "between",
            3,
            memberId=Saved("member"),
            save={"generation": "generationId"},
        ),
        leave("before it has synced", "between", Saved("member")),
        heartbeat("after leaving", "between"),
        sync("after leaving", "between"),
    ],
)
PENDING = Scenario(
    "a member id that is given",
    [
        coordinator("pending"),
        join("asks for one", "pending", save={"member": "memberId"}),
        heartbeat("before joining", "pending", generationId=1),
        sync("before joining", "pending", generationId=1),
        join("with an instance id", "pending", memberId=Saved("member"), groupInstanceId="i"),
        leave("before joining", "pending", Saved("member")),
        join("after leaving", "pending", memberId=Saved("member")),
    ],
)
LEAVING = Scenario(
    "leaving",
    [
        member("leave"),
        *in_versions((0, 1, 2), lambda v: leave("unknown member", "leave", GHOST, version=v)),
        *in_versions((3, 4), lambda v: leave("unknown member", "leave", GHOST, version=v)),
        leave(
            "unknown member, with a reason",
            "leave",
            {"memberId": GHOST, "reason": "x" * 300},
            version=5,
        ),
        leave("empty member id", "leave", ""),
        leave("empty member id", "leave", "", version=1),
        leave("no members", "leave"),
        leave("a stranger twice", "leave", GHOST, GHOST),
        leave("empty group id", "", GHOST),
        leave("empty group id", "", GHOST, version=0),
        leave("group that is not there", "leave-none", GHOST),
        leave("group that is not there", "leave-none", GHOST, version=2),
        Row("null members", "LeaveGroup", 3, {"groupId": "leave", "members": None}),
        Row("huge count", "LeaveGroup", 3, {"groupId": "leave", "members": Counted(2**31 - 2)}),
        Row("huge count", "LeaveGroup", 5, {"groupId": "leave", "members": Counted(2**31 - 2)}),
        Row(
            "null member id", "LeaveGroup", 3, {"groupId": "leave", "members": [{"memberId": None}]}
        ),
        Row("a byte missing", "LeaveGroup", 3, {"groupId": "leave"}, cut=1),
        Row("a byte too many", "LeaveGroup", 1, {"groupId": "", "memberId": ""}, tail=b"x"),
        Row("unknown tagged field", "LeaveGroup", 5, {"groupId": ""}, tags={1: b"x"}),
        heartbeat("of the member, after all this", "leave"),
        leave("the member twice, and a stranger", "leave", Saved("member"), Saved("member"), GHOST),
        heartbeat("after leaving", "leave"),
        leave("after leaving", "leave", Saved("member")),
        leave("after leaving", "leave", Saved("member"), version=1),
    ],
)
SCENARIOS = (JOINING, STABLE, STATIC, RESTARTED, JOINED, PENDING, LEAVING)
