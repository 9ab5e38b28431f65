"""How the kernel shares the cores out while something is measured."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")


@contextmanager
def without_autogroups() -> Iterator[str]:
    """Yields how threads are scheduled meanwhile, for people to read.

    Autogroups (sched(7)) give each session its share of the cores. Kernel 6.18 was seen to keep a
    thread of one session waiting for 2 to 4 s while another session kept both cores busy, with a
    server that only echoes among the victims: not a broker would be measured, but that. Changing it
    needs root.
    """
    try:
        before = _AUTOGROUPS.read_text()
    except OSError:
        yield "every thread by itself"
        return
    if before.strip() == "0":
        yield "every thread by itself"
        return
    try:
        _AUTOGROUPS.write_text("0")
    except OSError:
        yield "by session (autogroups): without root they cannot be turned off, latencies suffer"
        return
    try:
        yield "every thread by itself (autogroups are turned off meanwhile)"
    finally:
        _AUTOGROUPS.write_text(before)
