"""Whether a transaction happened whose answer was lost with the connection. Pure.

ZooKeeper keeps the session over a lost connection, but not the answers. The transaction's expected
result is compared with the nodes. Where all matches, it happened (or another client did the same);
otherwise sending it again does it, or meets the refusal that is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyrklog.metastore.interface import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    OperationResult,
    Set,
    Stat,
)


class _Left(NamedTuple):
    """What a transaction leaves of one node."""

    data: bytes | None
    """None = no node."""
    version: int | None
    """None = any."""
    owner: int | None
    """The owning session; None = any."""

    def is_there(self, node: Node | None) -> bool:
        if self.data is None or node is None:
            return node is None and self.data is None
        return (
            node.data == self.data
            and self.version in (None, node.stat.version)
            and self.owner in (None, node.stat.ephemeral_owner)
        )


def touched(operations: Sequence[Operation]) -> list[str] | None:
    """The nodes to compare; None where that proves nothing: a sequence node's name is unknown, and
    what is set at any version may be older or another client's.
    """
    changes = [operation for operation in operations if not isinstance(operation, Check)]
    if any(isinstance(operation, Create) and operation.sequence for operation in changes):
        return None
    if changes and all(isinstance(o, Set) and o.version == ANY_VERSION for o in changes):
        return None
    return list(dict.fromkeys(operation.path for operation in changes))


def results_if_done(
    operations: Sequence[Operation], found: Mapping[str, Node | None], session_id: int
) -> list[OperationResult] | None:
    left = _left(operations, session_id)
    if not all(expected.is_there(found[path]) for path, expected in left.items()):
        return None
    return [_result(operation, found) for operation in operations]


def _left(operations: Sequence[Operation], session_id: int) -> dict[str, _Left]:
    left: dict[str, _Left] = {}
    for operation in operations:
        match operation:
            case Create():
                creator = session_id if operation.ephemeral else 0
                left[operation.path] = _Left(operation.data, 0, creator)
            case Set():
                left[operation.path] = _set(operation, left.get(operation.path))
            case Delete():
                left[operation.path] = _Left(None, None, None)
            case Check():
                pass  # leaves nothing
    return left


def _set(operation: Set, before: _Left | None) -> _Left:
    version = None if operation.version == ANY_VERSION else operation.version + 1
    if before is None:
        return _Left(operation.data, version, None)
    if before.version is not None:
        version = before.version + 1
    return _Left(operation.data, version, before.owner)


def _result(operation: Operation, found: Mapping[str, Node | None]) -> OperationResult:
    match operation:
        case Create():
            return operation.path
        case Set():
            node = found[operation.path]
            return node.stat if node is not None else _DELETED_SINCE
        case Check() | Delete():
            return None


_DELETED_SINCE = Stat(0, 0, 0, 0, 0, 0)
"""For a node that the same transaction sets and then deletes."""
