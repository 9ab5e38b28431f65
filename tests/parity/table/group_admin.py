"""DescribeGroups, ListGroups, DeleteGroups."""

from typing import Any

from tests.parity.definitions import Counted, Raw
from tests.parity.prepare import committed, coordinator, member, topic
from tests.parity.rows import Row, Scenario, in_versions


def describe(name: str, *groups: Any, version: int = 4, **row: Any) -> Row:
    return Row(name, "DescribeGroups", version, {"groups": list(groups)}, **row)


DESCRIBING = Scenario(
    "describing groups",
    [
        topic("described"),
        committed("described-empty", "described"),
        member("described", instance="one"),
        *in_versions((0, 1, 2, 3, 4, 5), lambda v: describe("stable", "described", version=v)),
        *in_versions((0, 4, 5), lambda v: describe("empty", "described-empty", version=v)),
        *in_versions((0, 4, 5), lambda v: describe("unknown group", "described-none", version=v)),
        *in_versions((0, 4, 5), lambda v: describe("empty group id", "", version=v)),
        describe("a group twice", "described-none", "described-none"),
        describe("no groups"),
        describe("null group id", None),
        describe("group id not UTF-8", Raw(b"\0\1\xff")),
        Row(
            "operations",
            "DescribeGroups",
            3,
            {"groups": ["described-empty"], "includeAuthorizedOperations": True},
        ),
        Row("null groups", "DescribeGroups", 4, {"groups": None}),
        Row("huge count", "DescribeGroups", 4, {"groups": Counted(2**31 - 2)}),
        Row("huge count", "DescribeGroups", 5, {"groups": Counted(2**31 - 2)}),
        Row("a byte missing", "DescribeGroups", 4, {"groups": ["x"]}, cut=1),
        Row("a byte too many", "DescribeGroups", 4, {"groups": []}, tail=b"x"),
        Row("unknown tagged field", "DescribeGroups", 5, {"groups": []}, tags={8: b"x"}),
    ],
)


def list_groups(name: str, version: int = 5, fields: Any = None, **row: Any) -> Row:
    return Row(name, "ListGroups", version, fields or {}, **row)


LISTING = Scenario(
    "listing groups",
    [
        coordinator("listing"),
        *in_versions((0, 1, 2, 3, 4, 5), lambda v: list_groups("all", v, only=("errorCode",))),
        list_groups("unknown state", 4, {"statesFilter": ["Nonsense"]}),
        list_groups("unknown state", 5, {"statesFilter": ["Nonsense"]}),
        list_groups("empty state", 4, {"statesFilter": [""]}),
        list_groups("dead", 4, {"statesFilter": ["Dead"]}),
        list_groups("rebalancing, in small letters", 4, {"statesFilter": ["preparingrebalance"]}),
        list_groups("unknown type", 5, {"typesFilter": ["Nonsense"]}),
        list_groups("type consumer", 5, {"typesFilter": ["consumer"]}),
        list_groups("type share", 5, {"typesFilter": ["share"]}),
        list_groups("type in capitals", 5, {"typesFilter": ["CLASSIC"]}, only=("errorCode",)),
        list_groups("null states", 4, {"statesFilter": None}),
        list_groups("null state", 4, {"statesFilter": [None]}),
        list_groups("huge count", 4, {"statesFilter": Counted(2**31 - 2)}),
        list_groups("a byte missing", 4, cut=1),
        list_groups("a byte too many", 0, tail=b"x", only=("errorCode",)),
        list_groups("unknown tagged field", 4, tags={8: b"x"}, only=("errorCode",)),
    ],
)


def delete(name: str, *groups: Any, version: int = 1, **row: Any) -> Row:
    return Row(name, "DeleteGroups", version, {"groupsNames": list(groups)}, **row)


DELETING = Scenario(
    "deleting groups",
    [
        topic("deleting"),
        committed("deleting-1", "deleting"),
        committed("deleting-2", "deleting"),
        member("deleting-live"),
        *in_versions((0, 1, 2), lambda v: delete("unknown group", "deleting-none", version=v)),
        *in_versions((0, 2), lambda v: delete("with a member", "deleting-live", version=v)),
        delete("empty group id", ""),
        delete("no groups"),
        delete("one good, one unknown", "deleting-1", "deleting-none"),
        delete("the same again", "deleting-1"),
        delete("a group twice", "deleting-2", "deleting-2"),
        delete("null group id", None),
        delete("group id not UTF-8", Raw(b"\0\1\xff")),
        Row("null groups", "DeleteGroups", 1, {"groupsNames": None}),
        Row("huge count", "DeleteGroups", 1, {"groupsNames": Counted(2**31 - 2)}),
        Row("huge count", "DeleteGroups", 2, {"groupsNames": Counted(2**31 - 2)}),
        Row("a byte missing", "DeleteGroups", 1, {"groupsNames": ["x"]}, cut=1),
        Row("a byte too many", "DeleteGroups", 1, {"groupsNames": []}, tail=b"x"),
        Row("unknown tagged field", "DeleteGroups", 2, {"groupsNames": []}, tags={8: b"x"}),
    ],
)
SCENARIOS = (DESCRIBING, LISTING, DELETING)
