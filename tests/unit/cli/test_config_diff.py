from collections.abc import Mapping
from typing import Any

from pyrklog.cli.config_cluster import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Entry,
    Operation,
    altered_lines,
)
from pyrklog.cli.config_diff import difference
from pyrklog.cli.config_kinds import Kind


def entry(name: str, value: str | None, **more: Any) -> Entry:
    given: dict[str, Any] = {
        "source": "topic",
        "unset": "0",
        "default": "0",
        "type": "string",
        "is_hidden": False,
        "read_only": False,
        "documentation": None,
        "synonyms": [],
        **more,
    }
    return Entry(name=name, value=value, **given)


def items(
    kind: Kind, found: Mapping[str, list[Entry]], *, all_options: bool = False
) -> dict[str, dict[str, str | None]]:
    _, items = difference(kind, found, all_options=all_options)
    return {one["name"]: one["values"] for one in items}


def test_only_differences_are_shown() -> None:
    found = {
        "x": [entry("a", "1"), entry("b", "2"), entry("c", None)],
        "y": [entry("a", "1"), entry("b", "3"), entry("d", "4")],
    }
    assert items(Kind.TOPIC, found) == {"b": {"x": "2", "y": "3"}, "d": {"x": None, "y": "4"}}
    assert difference(Kind.TOPIC, found, all_options=False)[0] == ["x", "y"]


def test_one_is_compared_with_its_defaults() -> None:
    found = {
        "x": [
            entry("a", "1"),
            entry("b", "0"),
            entry("by.machine", "7", source="default", default="5"),
        ]
    }
    assert items(Kind.TOPIC, found) == {"a": {"x": "1", "default": "0"}}


def test_a_broker_is_compared_by_what_all_brokers_have() -> None:
    found = {
        "1": [entry("a", "1"), entry("b", "2"), entry("c", "3")],
        "default": [entry("a", "1"), entry("b", "5")],
    }
    assert items(Kind.BROKER, found) == {"b": {"1": "2", "default": "5"}}
    assert items(Kind.BROKER, {**found, "default": []}) == {}
    assert set(items(Kind.TOPIC, found)) == {"b", "c"}


def test_secrets_and_what_differs_by_nature_are_left_out() -> None:
    found = {
        number: [
            entry("broker.id", number),
            entry("pyrklog.data.dir", number),
            entry("pyrklog.meta.dir", number),
            entry("password", None, is_hidden=True),
        ]
        for number in ("1", "2")
    }
    assert items(Kind.BROKER, found) == {}
    values = {"1": "1", "2": "2"}
    shown = {"broker.id": values, "pyrklog.data.dir": values, "pyrklog.meta.dir": values}
    assert items(Kind.BROKER, found, all_options=True) == shown
    assert items(Kind.TOPIC, found) == shown


def test_changes_are_told() -> None:
    before = {
        "a": entry("a", "1"),
        "list": entry("list", "x,y"),
        "secret": entry("secret", None, is_hidden=True),
    }
    operations = [
        Operation("a", "2", SET),
        Operation("a", None, DELETE),
        Operation("list", "y,z", APPEND),
        Operation("list", "x,q", SUBTRACT),
        Operation("secret", "s", SET),
        Operation("new", "n", SET),
        Operation("new", "n", APPEND),
    ]
    remarks = {"a": "from the next start"}
    assert altered_lines(Kind.TOPIC, "t", before, operations, remarks) == [
        "topic t: a 1 -> 2 (from the next start)",
        "topic t: a 1 -> 0 (from the next start)",
        "topic t: list x,y -> x,y,z",
        "topic t: list x,y -> y",
        "topic t: secret (hidden) -> (hidden)",
        "topic t: new - -> n",
        "topic t: new - -> n",
    ]


def test_items_are_added_to_the_default_of_an_unset_list() -> None:
    """As brokers do it, whatever the value in force is."""
    policy = "log.cleanup.policy"
    operations = [Operation(policy, "compact", APPEND), Operation(policy, "delete", SUBTRACT)]
    assert altered_lines(Kind.BROKER, "default", {}, operations, {}) == [
        f"broker default: {policy} - -> delete,compact",
        f"broker default: {policy} - -> -",
    ]
    in_file = {policy: entry(policy, "compact", source="static-broker")}
    assert altered_lines(Kind.BROKER, "1", in_file, operations[:1], {}) == [
        f"broker 1: {policy} compact -> delete,compact"
    ]
    own = {policy: entry(policy, "compact", source="dynamic-broker")}
    assert altered_lines(Kind.BROKER, "1", own, operations[:1], {}) == [
        f"broker 1: {policy} compact -> compact"
    ]
    unset = {"cleanup.policy": entry("cleanup.policy", "compact", source="dynamic-default-broker")}
    added = [Operation("cleanup.policy", "compact", APPEND)]
    assert altered_lines(Kind.TOPIC, "t", unset, added, {}) == [
        "topic t: cleanup.policy compact -> delete,compact"
    ]
