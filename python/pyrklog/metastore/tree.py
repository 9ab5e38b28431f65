"""The tree of nodes in memory, and drafts of changes. No I/O, no clock.

A transaction is tried on a :class:`Draft` over the tree, or over the draft of the transactions
before it. A refused draft is dropped; a durable one is applied. Reads never see a draft, so they
never show what a crash could undo.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyrklog.metastore.interface import (
    ANY_VERSION,
    CHANGED,
    CHILDREN,
    CREATED,
    DELETED,
    BadPathError,
    BadVersionError,
    Check,
    Create,
    Delete,
    MetastoreError,
    NoChildrenForEphemeralsError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    Set,
    Stat,
    WatchEvent,
)

ROOT = "/"


class Entry(NamedTuple):
    """A node and the number of its next sequence child."""

    node: Node
    next_sequence: int = 0


def parent_of(path: str) -> str:
    return path[: path.rfind("/")] or ROOT


def name_of(path: str) -> str:
    return path[path.rfind("/") + 1 :]


def check_path(path: str) -> None:
    """Raises :class:`BadPathError` for a path that is not absolute or has an empty part."""
    if path == ROOT:
        return
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise BadPathError(path)


class Tree:
    """All nodes that are durable (or ephemeral and acknowledged)."""

    def __init__(self) -> None:
        root = Node(b"", Stat(0, 0, 0, 0, 0, 0))
        self.entries: dict[str, Entry] = {ROOT: Entry(root)}
        self._children: dict[str, set[str]] = {}

    def load(self, path: str, entry: Entry) -> None:
        """Adds a node from disk; its parent may come later."""
        self.entries[path] = entry
        if path != ROOT:
            self._children.setdefault(parent_of(path), set()).add(name_of(path))

    def get(self, path: str) -> Entry | None:
        return self.entries.get(path)

    def children(self, path: str) -> list[str]:
        """Sorted names."""
        return sorted(self._children.get(path, ()))

    def child_count(self, path: str) -> int:
        return len(self._children.get(path, ()))

    def orphans(self) -> Iterator[str]:
        """Missing parents; a sound tree has none."""
        return (path for path in self._children if path not in self.entries)

    def apply(self, draft: Draft) -> None:
        for path, entry in draft.changes.items():
            names = self._children.setdefault(parent_of(path), set()) if path != ROOT else None
            if entry is None:
                self.entries.pop(path, None)
                self._children.pop(path, None)
            else:
                self.entries[path] = entry
            if names is not None:
                if entry is None:
                    names.discard(name_of(path))
                else:
                    names.add(name_of(path))

    def owned_by(self, session: int) -> list[str]:
        return [
            path
            for path, entry in self.entries.items()
            if entry.node.stat.ephemeral_owner == session
        ]


class Draft:
    """Changes that are not in the tree yet, and their events."""

    def __init__(self, below: Tree | Draft) -> None:
        self._below = below
        self.changes: dict[str, Entry | None] = {}
        self.events: list[WatchEvent] = []
        self._child_delta: dict[str, int] = {}

    def get(self, path: str) -> Entry | None:
        return self.changes[path] if path in self.changes else self._below.get(path)

    def child_count(self, path: str) -> int:
        return self._below.child_count(path) + self._child_delta.get(path, 0)

    def absorb(self, above: Draft) -> None:
        self.changes.update(above.changes)
        self.events += above.events
        for path, delta in above._child_delta.items():
            self._child_delta[path] = self._child_delta.get(path, 0) + delta

    def run(self, operation: Operation, index: int, context: Context) -> OperationResult:
        """Tries one operation; raises a :class:`MetastoreError` with its ``index``."""
        try:
            check_path(operation.path)
            match operation:
                case Check():
                    self._expect(operation.path, operation.version)
                    return None
                case Create():
                    return self._create(operation, context)
                case Set():
                    return self._set(operation, context)
                case Delete():
                    self._delete(operation)
                    return None
        except MetastoreError as error:
            error.index = index
            raise

    def _expect(self, path: str, version: int) -> Entry:
        entry = self.get(path)
        if entry is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, entry.node.stat.version):
            raise BadVersionError(path)
        return entry

    def _create(self, operation: Create, context: Context) -> str:
        parent_path = parent_of(operation.path)
        parent = self.get(parent_path)
        if parent is None:
            raise NoNodeError(operation.path)
        if parent.node.stat.ephemeral_owner:
            raise NoChildrenForEphemeralsError(operation.path)
        path = operation.path
        if operation.sequence:
            path += f"{parent.next_sequence:010d}"
        if self.get(path) is not None:
            raise NodeExistsError(path)
        owner = context.session if operation.ephemeral else 0
        stat = Stat(0, context.zxid, context.zxid, owner, context.now_ms, context.now_ms)
        self.changes[path] = Entry(Node(operation.data, stat))
        # The number rises with every child, as in ZooKeeper.
        self.changes[parent_path] = Entry(parent.node, parent.next_sequence + 1)
        self._count(parent_path, 1)
        self.events.append(WatchEvent(CREATED, path))
        self.events.append(WatchEvent(CHILDREN, parent_path))
        return path

    def _set(self, operation: Set, context: Context) -> Stat:
        entry = self._expect(operation.path, operation.version)
        before = entry.node.stat
        stat = before._replace(
            version=before.version + 1, mzxid=context.zxid, mtime_ms=context.now_ms
        )
        self.changes[operation.path] = Entry(Node(operation.data, stat), entry.next_sequence)
        self.events.append(WatchEvent(CHANGED, operation.path))
        return stat

    def _delete(self, operation: Delete) -> None:
        self._expect(operation.path, operation.version)
        if operation.path == ROOT:
            raise BadPathError(operation.path)
        if self.child_count(operation.path):
            raise NotEmptyError(operation.path)
        self.changes[operation.path] = None
        parent_path = parent_of(operation.path)
        self._count(parent_path, -1)
        self.events.append(WatchEvent(DELETED, operation.path))
        self.events.append(WatchEvent(CHILDREN, parent_path))

    def _count(self, path: str, delta: int) -> None:
        self._child_delta[path] = self._child_delta.get(path, 0) + delta


class Context(NamedTuple):
    session: int
    zxid: int
    now_ms: int
