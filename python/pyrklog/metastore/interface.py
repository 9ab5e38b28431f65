"""The metadata store's interface: a session with ZooKeeper's semantics.

- A *node* has a path (``/a/b``, no trailing slash), bytes, a *version* that starts at 0 and rises
  with each ``set``, and a *czxid*: the number of the transaction that created it, which rises over
  the life of the store and never repeats.
- An *ephemeral* node ends with its session and has no children.
- A *sequence* node gets a ten-digit number after its path, rising under its parent.
- A *watch* is called once: at the next change of a node's data or existence (``get``, ``exists``)
  or of its set of children (``children``), before a read shows that change to this session.
- A transaction (``multi``) is atomic; a read never shows half of one.
- A write that has returned is durable: it survives kill -9 and power loss.
- A transaction larger than ZooKeeper takes (``sizes``) is refused without being sent.

Every method may raise :class:`SessionExpiredError` and :class:`StoreFailedError`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

ANY_VERSION = -1


class MetastoreError(Exception):
    """A refused operation; ``index`` is its place in its transaction."""

    def __init__(self, path: str, index: int = 0) -> None:
        super().__init__(f"{type(self).__name__.removesuffix('Error')}: {path}")
        self.path = path
        self.index = index


class NoNodeError(MetastoreError):
    """The node, or the new node's parent, does not exist."""


class NodeExistsError(MetastoreError):
    """The node to be created exists."""


class BadVersionError(MetastoreError):
    """The node has another version."""


class NotEmptyError(MetastoreError):
    """The node to be deleted has children."""


class NoChildrenForEphemeralsError(MetastoreError):
    """The new node's parent is ephemeral."""


class BadPathError(MetastoreError):
    """The path is not absolute, or has an empty part."""


class TooLargeError(MetastoreError):
    """The transaction is too large for the store; nothing was sent."""

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
    version: int
    czxid: int
    mzxid: int
    """The transaction that set it last."""
    ephemeral_owner: int
    """The owning session; 0 = persistent."""
    ctime_ms: int
    mtime_ms: int


class Node(NamedTuple):
    data: bytes
    stat: Stat


class Check(NamedTuple):
    """The node must exist, at ``version`` (:data:`ANY_VERSION` = any)."""

    path: str
    version: int = ANY_VERSION


class Create(NamedTuple):
    """The result is the path, with the number of a sequence node."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Set(NamedTuple):
    """The result is the new :class:`Stat`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """The node must have no children."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete
OperationResult = str | Stat | None
"""Of a Create, a Set, and of a Check or Delete."""
Outcome = list[OperationResult] | MetastoreError
"""Of one of several transactions."""

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


class Metastore(ABC):
    """One session."""

    session_id: int

    @property
    @abstractmethod
    def is_reachable(self) -> bool:
        """False while calls wait for a connection or a session."""

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """Raises :class:`NoNodeError` (and then leaves no watch)."""
        (node,) = await self.get_many([path], watch)
        if node is None:
            raise NoNodeError(path)
        return node

    @abstractmethod
    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """None for missing nodes (which get no watch)."""

    @abstractmethod
    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The watch also waits for a missing node."""

    @abstractmethod
    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Sorted names; raises :class:`NoNodeError`."""

    @abstractmethod
    async def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Names of several nodes' children, None for missing nodes."""

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> str:
        """Returns the new node's path."""
        (result,) = await self.multi([Create(path, data, ephemeral, sequence)])
        assert isinstance(result, str)
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Sets a node's data."""
        (result,) = await self.multi([Set(path, data, version)])
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes one node."""
        await self.multi([Delete(path, version)])

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """One transaction; raises the error of its first refused operation."""
        (outcome,) = await self.multis([operations])
        if isinstance(outcome, MetastoreError):
            raise outcome
        return outcome

    @abstractmethod
    async def multis(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        """Independent transactions in order, sent together."""

    @abstractmethod
    async def wait_expired(self) -> None:
        """Returns when the session has ended without ``close``."""

    @abstractmethod
    async def close(self) -> None:
        """Ends the session and its ephemeral nodes."""


async def ensure_path(store: Metastore, path: str) -> None:
    """Creates the persistent node and its missing parents."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        part = "/" + "/".join(parts[:depth])
        if await store.exists(part) is None:
            try:
                await store.create(part)
            except NodeExistsError:
                pass  # another session was faster


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
