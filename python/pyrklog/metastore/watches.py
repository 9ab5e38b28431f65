"""One-shot watches of one store."""

from __future__ import annotations

from collections.abc import Sequence

from pyrklog.metastore.interface import CHANGED, CHILDREN, CREATED, DELETED, Watch, WatchEvent

_Registered = tuple[int, Watch]


class Watches:
    """Data watches also wait for creation and deletion."""

    def __init__(self) -> None:
        self._data: dict[str, list[_Registered]] = {}
        self._children: dict[str, list[_Registered]] = {}

    def add_data(self, path: str, session: int, watch: Watch) -> None:
        """Called at the next change of the node's data or existence."""
        _add(self._data, path, (session, watch))

    def add_children(self, path: str, session: int, watch: Watch) -> None:
        """Called at the next change of the node's children, or at its deletion."""
        _add(self._children, path, (session, watch))

    def fire(self, events: Sequence[WatchEvent]) -> None:
        """Calls and drops the watches of these events, in order."""
        for event in events:
            for watch in self._take(event):
                watch(event)

    def fire_all(self) -> None:
        """Calls and drops every watch: each owner must read again."""
        for kind, table in ((CHANGED, self._data), (CHILDREN, self._children)):
            registered = list(table.items())
            table.clear()
            for path, items in registered:
                for _, watch in items:
                    watch(WatchEvent(kind, path))

    def _take(self, event: WatchEvent) -> list[Watch]:
        tables = {
            CREATED: (self._data,),
            CHANGED: (self._data,),
            DELETED: (self._data, self._children),
            CHILDREN: (self._children,),
        }[event.kind]
        taken: list[Watch] = []
        for table in tables:
            for _, watch in table.pop(event.path, ()):
                if watch not in taken:
                    taken.append(watch)
        return taken

    def drop_session(self, session: int) -> None:
        for table in (self._data, self._children):
            for path, registered in list(table.items()):
                table[path] = [item for item in registered if item[0] != session]
                if not table[path]:
                    del table[path]


def _add(table: dict[str, list[_Registered]], path: str, item: _Registered) -> None:
    registered = table.setdefault(path, [])
    if item not in registered:
        registered.append(item)
