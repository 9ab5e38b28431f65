"""What /proc says about a process: CPU time, memory, threads."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Stat:
    """A process at one moment. Times are seconds since its start, user and system together."""

    cpu_s: float
    rss_bytes: int
    threads: int


def parse_stat(text: str, page_bytes: int) -> Stat:
    """Reads the content of /proc/PID/stat; ValueError when it is no such content.

    The second field, the command's name, may hold blanks and parentheses: fields are counted from
    its last closing parenthesis (proc(5)).
    """
    _, closed, rest = text.rpartition(")")
    fields = rest.split()
    if not closed or len(fields) < 22:
        raise ValueError(f"not the content of a stat file: {text[:80]!r}")
    user, system, threads, rss_pages = (int(fields[number - 3]) for number in (14, 15, 20, 24))
    return Stat((user + system) / _TICKS_PER_SECOND, rss_pages * page_bytes, threads)


def stat(pid: int) -> Stat:
    """The process `pid` now; FileNotFoundError or ProcessLookupError when it is gone."""
    return parse_stat(Path(f"/proc/{pid}/stat").read_text(), os.sysconf("SC_PAGE_SIZE"))
