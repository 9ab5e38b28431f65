"""A broker's processes according to /proc: CPU time, memory, threads, bytes from the disk."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Stat:
    """A process at one moment. Seconds are user and system time since its start; ``reaped_cpu_s``
    is that of reaped children."""

    cpu_s: float
    rss_bytes: int
    threads: int
    reaped_cpu_s: float = 0.0


def parse_stat(text: str, page_bytes: int) -> Stat:
    """Parses /proc/PID/stat. Raises ValueError for anything else.

    The second field, the command's name, may contain blanks and parentheses, so fields count from
    its last closing parenthesis (proc(5)).
    """
    _, closed, rest = text.rpartition(")")
    fields = rest.split()
    if not closed or len(fields) < 22:
        raise ValueError(f"not the content of a stat file: {text[:80]!r}")
    user, system, user_of_children, system_of_children, threads, rss_pages = (
        int(fields[number - 3]) for number in (14, 15, 16, 17, 20, 24)
    )
    return Stat(
        (user + system) / _TICKS_PER_SECOND,
        rss_pages * page_bytes,
        threads,
        (user_of_children + system_of_children) / _TICKS_PER_SECOND,
    )


def stat(pid: int) -> Stat:
    """The process ``pid`` now; FileNotFoundError or ProcessLookupError when it is gone."""
    return parse_stat((_PROC / str(pid) / "stat").read_text(), os.sysconf("SC_PAGE_SIZE"))


@dataclass(frozen=True)
class Usage:
    """A process and all its descendants together at one moment.

    ``own_rss_bytes`` excludes ``shared_bytes``, the pages of shared memory (RssShmem: a block
    cache). ``disk_read_bytes`` are their storage reads, with read-ahead and without page cache hits
    (read_bytes of /proc/PID/io); ``disk_written_bytes`` are what they gave it to write.
    """

    cpu_s: float
    own_rss_bytes: int
    shared_bytes: int
    threads: int
    disk_read_bytes: int
    disk_written_bytes: int = 0

    @property
    def rss_bytes(self) -> int:
        return self.own_rss_bytes + self.shared_bytes


def usage(pid: int) -> Usage:
    """Adds up the tree below ``pid``; FileNotFoundError or ProcessLookupError when
    ``pid`` is gone."""
    root = _usage_of(pid)
    children = [child for child in tree(pid) if child != pid]
    return _sum([root, *_those_alive(children)])


def usage_of(pids: list[int]) -> Usage:
    """Several trees together, as :func:`usage`."""
    return _sum([usage(pid) for pid in pids])


def _those_alive(pids: list[int]) -> Iterator[Usage]:
    for pid in pids:
        try:
            yield _usage_of(pid)
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just ended


def _usage_of(pid: int) -> Usage:
    found = stat(pid)
    memory = parse_fields((_PROC / str(pid) / "status").read_text())
    transfers = parse_fields((_PROC / str(pid) / "io").read_text())
    kilobytes = {name: 1024 * memory.get(name, 0) for name in ("RssAnon", "RssFile", "RssShmem")}
    return Usage(
        found.cpu_s + found.reaped_cpu_s,
        kilobytes["RssAnon"] + kilobytes["RssFile"],
        kilobytes["RssShmem"],
        found.threads,
        transfers.get("read_bytes", 0),
        transfers.get("write_bytes", 0),
    )


def _sum(parts: list[Usage]) -> Usage:
    return Usage(
        sum(part.cpu_s for part in parts),
        sum(part.own_rss_bytes for part in parts),
        sum(part.shared_bytes for part in parts),
        sum(part.threads for part in parts),
        sum(part.disk_read_bytes for part in parts),
        sum(part.disk_written_bytes for part in parts),
    )


def parse_fields(text: str) -> dict[str, int]:
    """The whole numbers of lines ``Name: 12`` or ``Name: 12 kB``; other lines are left out."""
    found = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        words = value.split()
        if colon and words and words[0].isdecimal():
            found[name.strip()] = int(words[0])
    return found


def tree(pid: int) -> list[int]:
    """``pid`` and the ids of all its descendants, parents before their children."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            parent = _parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _parent(entry: Path) -> int | None:
    try:
        text = (entry / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[1])


@dataclass(frozen=True)
class Cores:
    """Time of all cores together since the system's start."""

    busy_s: float
    total_s: float

    def busy_percent_since(self, before: "Cores") -> float:
        """Used share of the cores' time; 100 = all of them all the time."""
        total = self.total_s - before.total_s
        return 100 * (self.busy_s - before.busy_s) / total if total else 0.0


def parse_cores(text: str) -> Cores:
    """Parses /proc/stat; waiting for a disk is idleness."""
    numbers = [int(word) / _TICKS_PER_SECOND for word in text.split("\n", 1)[0].split()[1:9]]
    idle = numbers[3] + numbers[4]
    return Cores(sum(numbers) - idle, sum(numbers))


def cores() -> Cores:
    return parse_cores((_PROC / "stat").read_text())


def device_read_bytes(folder: Path) -> int:
    """All processes' reads from the device of ``folder`` since the system's start."""
    fields = _disk(folder)
    return 512 * int(fields[5]) if fields else 0


def device_busy_s(folder: Path) -> float:
    """How long the device of ``folder`` had something to do since the system's start."""
    fields = _disk(folder)
    return int(fields[12]) / 1e3 if fields else 0.0


def _disk(folder: Path) -> list[str]:
    """The device's line of /proc/diskstats; empty where it has none."""
    device = os.stat(folder).st_dev
    wanted = (os.major(device), os.minor(device))
    for line in (_PROC / "diskstats").read_text().splitlines():
        fields = line.split()
        if (int(fields[0]), int(fields[1])) == wanted:
            return fields
    return []
