"""A memory cgroup for one broker, which fixes the size of broker and page cache together.

A virtual machine pays dearly for the first touch of each page. In a cgroup of fixed size, filled
before the measurement, both brokers work on touched memory.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryGroup:
    """An existing cgroup; ``limit_bytes`` bounds its processes and the page cache that
    they fill."""

    path: Path
    limit_bytes: int

    def join(self) -> Callable[[], None]:
        """A ``preexec_fn`` that puts the new process into the cgroup before it runs anything."""
        processes = str(self.path / "cgroup.procs")

        def enter() -> None:
            with open(processes, "w") as file:
                file.write(str(os.getpid()))

        return enter

    def remove(self) -> None:
        """Frees the cgroup's page cache and removes it; its processes must have ended."""
        empty = self.path / "memory.force_empty"
        for _ in range(100):
            try:
                if empty.exists():
                    empty.write_text("0")
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.05)  # a process that was just reaped still counts for a moment


@dataclass(frozen=True)
class NoMemoryGroup:
    """Why there is none, for the report."""

    reason: str


Group = MemoryGroup | NoMemoryGroup


def create(name: str, limit_bytes: int) -> Group:
    """Makes a cgroup by the v1 controller where it is mounted, else by v2."""
    try:
        if (V1 / "memory.limit_in_bytes").exists():
            return _create(V1 / name, "memory.limit_in_bytes", limit_bytes)
        if (V2 / "cgroup.controllers").exists():
            if "memory" not in (V2 / "cgroup.subtree_control").read_text().split():
                (V2 / "cgroup.subtree_control").write_text("+memory")
            return _create(V2 / name, "memory.max", limit_bytes)
    except PermissionError:
        return NoMemoryGroup("only root may make one")
    except OSError as error:
        return NoMemoryGroup(f"the kernel refuses: {error}")
    return NoMemoryGroup("no memory controller is mounted under /sys/fs/cgroup")


def _create(path: Path, limit_file: str, limit_bytes: int) -> MemoryGroup:
    path.mkdir(exist_ok=True)
    (path / limit_file).write_text(str(limit_bytes))
    return MemoryGroup(path, limit_bytes)
