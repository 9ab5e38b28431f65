"""Whether transactions with lost answers took effect."""

import pytest

from pyrklog.metastore.interface import Check, Create, Delete, Node, Operation, Set, Stat
from pyrklog.metastore.unsettled import results_if_done, touched

SESSION = 77


def node(data: bytes, version: int = 0, owner: int = 0) -> Node:
    return Node(data, Stat(version, 1, 2, owner, 0, 0))


def test_lost_transaction_is_settled_by_looking_at_the_nodes_it_created_or_deleted() -> None:
    operations: list[Operation] = [
        Check("/c", 1),
        Create("/a", b""),
        Set("/a", b"x", 0),
        Delete("/b"),
    ]
    assert touched(operations) == ["/a", "/b"]
    assert touched([Check("/c")]) == []
    assert touched([Create("/n_", sequence=True)]) is None, "its name is not known"
    assert touched([Check("/c", 1), Set("/a", b"x")]) is None, "it may be there by somebody else"
    assert touched([Set("/a", b"x"), Create("/b")]) == ["/a", "/b"], "the second tells"


REGISTRATION: list[Operation] = [Create("/ids/1", b"", True), Set("/ids/1", b"{}", 0)]


@pytest.mark.parametrize(
    ("operations", "found", "is_done"),
    [
        ([Set("/a", b"new", 4)], {"/a": node(b"new", 5)}, True),
        ([Set("/a", b"new", 4)], {"/a": node(b"old", 4)}, False),
        ([Set("/a", b"new", 4)], {"/a": node(b"new", 6)}, False),  # another write came after ours
        ([Set("/a", b"new", 4)], {"/a": node(b"other", 5)}, False),  # another write came first
        ([Set("/a", b"new", 4)], {"/a": None}, False),
        ([Set("/a", b"new")], {"/a": node(b"new", 9)}, True),
        ([Create("/a", b"x")], {"/a": node(b"x")}, True),
        ([Create("/a", b"x")], {"/a": None}, False),
        ([Create("/a", b"x")], {"/a": node(b"y")}, False),
        ([Create("/a", b"x", True)], {"/a": node(b"x", 0, SESSION)}, True),
        ([Create("/a", b"x", True)], {"/a": node(b"x", 0, SESSION + 1)}, False),
        ([Delete("/a", 3)], {"/a": None}, True),
        ([Delete("/a", 3)], {"/a": node(b"", 3)}, False),
        (REGISTRATION, {"/ids/1": node(b"{}", 1, SESSION)}, True),
        (REGISTRATION, {"/ids/1": node(b"{}", 1, SESSION - 1)}, False),
        ([Check("/e", 3), Create("/a"), Delete("/b")], {"/a": node(b""), "/b": None}, True),
        ([Check("/e", 3), Create("/a"), Delete("/b")], {"/a": node(b""), "/b": node(b"")}, False),
        ([Create("/a"), Delete("/a")], {"/a": None}, True),
    ],
)
def test_lost_transaction_is_done_when_its_nodes_show_it(
    operations: list[Operation], found: dict[str, Node | None], is_done: bool
) -> None:
    results = results_if_done(operations, found, SESSION)
    assert (results is not None) == is_done


def test_settled_transaction_has_the_results_of_its_nodes() -> None:
    registered = node(b"{}", 1, SESSION)
    operations = [Check("/epoch", 5), *REGISTRATION]
    results = results_if_done(operations, {"/ids/1": registered}, SESSION)
    assert results == [None, "/ids/1", registered.stat]
