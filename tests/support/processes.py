from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """A process's running children."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            state, parent = _state(int(folder.name))
            if parent == pid and state not in "ZX":
                found.append(int(folder.name))
    return sorted(found)


def is_running(pid: int) -> bool:
    return _state(pid)[0] not in "ZX"


def is_connected(pid: int, port: int) -> bool:
    """Whether a process has a connection to that port of 127.0.0.1, even an unaccepted one."""
    remote, established = f"0100007F:{port:04X}", "01"
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    sockets = {f"socket:[{row[9]}]" for row in rows if row[2:4] == [remote, established]}
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            held.add(os.readlink(entry))
    return not sockets.isdisjoint(held)


def _state(pid: int) -> tuple[str, int]:
    """State and parent; X if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0
    # The name before it may contain anything.
    state, parent = stat.rpartition(")")[2].split()[:2]
    return state, int(parent)
