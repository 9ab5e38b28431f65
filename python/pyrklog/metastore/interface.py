"""The metadata store as the broker uses it: a session with ZooKeeper's semantics.

- A *node* has a path (``/a/b``, no trailing slash), bytes, a *version* that starts at 0 and rises
  with each ``set``, and a *czxid*: the number of the transaction that created it, which rises over
  the life of the store and never repeats.
- An *ephemeral* node vanishes with its session and has no children.
- A *sequence* node gets a ten-digit number, rising under its parent, after its path.
- A *watch* is called once: at the next change of a node's data or existence (``get``, ``exists``)
  or of its set of children (``children``), before a read shows that change to this session.
- A transaction (``multi``) happens as a whole or not at all; a read never shows half of one.
- When a write returns it is durable: it survives kill -9 and the loss of power.
- ZooKeeper takes transactions up to a size (``sizes``); a larger one is refused without being sent.

Every method may raise :class:`SessionExpiredError` and :class:`StoreFailedError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class MetastoreError(Exception):
    """A refused operation; ``index`` is its place in its transaction."""

    def __init__(self, path: str, index: int = 0) -> None:
        super().__init__(f"{type(self).__name__.removesuffix('Error')}: {path}")
        self.path = path
        self.index = index


class NoNodeError(MetastoreError):
    """The node (or the parent of one to be created) is not there."""


class NodeExistsError(MetastoreError):
    """The node to be created is there already."""


class BadVersionError(MetastoreError):
    """The node has another version than the one expected."""


class NotEmptyError(MetastoreError):
    """The node to be deleted has children."""


class NoChildrenForEphemeralsError(MetastoreError):
    """The parent of the node to be created is ephemeral."""


class BadPathError(MetastoreError):
    """The path is not absolute, or has an empty part."""


class TooLargeError(MetastoreError):
    """The transaction has more bytes than the store takes; nothing was sent."""

    def __init__(self, path: str, size_bytes: int, max_bytes: int) -> None:
        super().__init__(path)
        self.reason = f"{size_bytes} bytes are too many: the metadata store takes {max_bytes}"
        self.args = (f"{self.reason} ({path})",)


class SessionExpiredError(MetastoreError):
    """The session has ended; its ephemeral nodes are gone."""


class StoreFailedError(MetastoreError):
    """The store cannot write any more (a full or failing disk); the message says why."""

    def __init__(self, reason: str) -> None:
        super().__init__("/")
        self.args = (reason,)
        self.reason = reason


class Stat(NamedTuple):
    """What is known of a node besides its data."""

    version: int
    czxid: int
    mzxid: int
    """The transaction that set it last."""
    ephemeral_owner: int
    """The session it belongs to; 0 = persistent."""
    ctime_ms: int
    mtime_ms: int


class Node(NamedTuple):
    """A node's data and stat."""

    data: bytes
    stat: Stat


class Check(NamedTuple):
    """The node must be there, at ``version`` (:data:`ANY_VERSION` = at any)."""

    path: str
    version: int = ANY_VERSION


class Create(NamedTuple):
    """A new node; its result is the path, with the number of a sequence node."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """New data; its result is the :class:`Stat` after it."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Removes a node without children."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete
OperationResult = str | Stat | None
"""Of a Create, a Set, and of a Check or Delete."""

CREATED = "created"
DELETED = "deleted"
CHANGED = "changed"
CHILDREN = "children"


class WatchEvent(NamedTuple):
    """``kind`` is CREATED, DELETED, CHANGED (data) or CHILDREN."""

    kind: str
    path: str


Watch = Callable[[WatchEvent], None]
"""Called on the session's Trio thread; must not block or raise."""


class Metastore(Protocol):
    """One session."""

    session_id: int

    @property
    def is_reachable(self) -> bool:
        """Whether calls are sent at once; False while they wait for a connection or a session."""

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """The node; raises :class:`NoNodeError` (and then leaves no watch)."""

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Several nodes, None for those that are not there (which get no watch)."""

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The node's stat; the watch also waits for a node that is not there."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of the children, sorted; raises :class:`NoNodeError`."""

    async def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Names of the children of several nodes, None for nodes that are not there."""

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Creates one node; returns its path."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Sets a node's data."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes one node."""

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """One transaction; raises the error of its first operation that is refused."""

    async def multis(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | MetastoreError]:
        """Several independent transactions in order, sent together: results or errors."""

    async def wait_expired(self) -> None:
        """Returns when the session has ended without ``close``."""

    async def close(self) -> None:
        """Ends the session; its ephemeral nodes go."""


async def ensure_path(store: Metastore, path: str) -> None:
    """Creates the persistent node and its parents where they are missing."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        part = "/" + "/".join(parts[:depth])
        if await store.exists(part) is None:
            try:
                await store.create(part)
            except NodeExistsError:
                pass  # another session was faster


async def descendants(store: Metastore, path: str) -> list[str]:
    """All nodes below ``path``, children before their parents; the order to delete them in."""
    return await descendants_of(store, [path])


async def descendants_of(store: Metastore, paths: Sequence[str]) -> list[str]:
    """All nodes below any of ``paths``, in the order to delete them in; one round trip a level."""
    levels: list[list[str]] = []
    above = list(paths)
    while above:
        below = [
            f"{path.rstrip('/')}/{name}"
            for path, names in zip(above, await store.children_of(above), strict=True)
            for name in names or ()
        ]
        levels.append(below)
        above = below
    return [path for level in reversed(levels) for path in level]
