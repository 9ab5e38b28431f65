"""A place for one broker: a folder, emptied at the end, and a memory cgroup."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benches import memory_group, spent
from benches.brokers import BROKERS, Broker

MEMORY_BYTES = 2_500_000_000


class Stage:
    """Makes and starts one broker. It joins the cgroup before exec, so that all its memory,
    including files in shared memory, is charged there, and it sees the cgroup's limit."""

    def __init__(self, name: str, folder: Path, group: memory_group.Group) -> None:
        self.name = name
        self.folder = folder
        self._group = group
        self._broker: Broker | None = None

    def prepare(self, log_dirs: Sequence[Path] = ()) -> Broker:
        """A broker, not started yet; ``log_dirs`` replace its default."""
        self._broker = BROKERS[self.name](self.folder / self.name, log_dirs)
        self._broker.prepare()
        return self._broker

    def start(self, broker: Broker, timeout_s: float = 60.0) -> float:
        """Starts it in the cgroup; seconds until its Metadata named a broker."""
        group = self._group
        enter = group.join() if isinstance(group, memory_group.MemoryGroup) else None
        return broker.start(enter, timeout_s)

    def clear(self) -> None:
        """Ends the broker and empties its folder, which ``spent.sweep`` removes."""
        if self._broker is not None:
            self._broker.remove()
        spent.empty(self.folder)
        if isinstance(self._group, memory_group.MemoryGroup):
            self._group.remove()


@contextmanager
def stage(name: str, folder: Path, *, all_memory: bool = False) -> Iterator[Stage]:
    """A stage for the broker called ``name``, in a new folder inside ``folder``; with
    ``all_memory`` in no memory cgroup."""
    group: memory_group.Group = memory_group.NoMemoryGroup("all memory is asked for")
    if not all_memory:
        group = memory_group.create(f"pyrklog-bench-{os.getpid()}", MEMORY_BYTES)
    place = Stage(name, Path(tempfile.mkdtemp(prefix="data-", dir=folder)), group)
    try:
        yield place
    finally:
        place.clear()
