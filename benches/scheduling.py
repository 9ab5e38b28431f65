"""The kernel's scheduling during measurements."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")


@contextmanager
def without_autogroups() -> Iterator[str]:
    """Yields a description of the scheduling meanwhile.

    Autogroups (sched(7)) give each session its share of the cores. On kernel 6.18 a thread of one
    session waited 2 to 4 s while another session kept both cores busy, even in a server that only
    echoes; this would be measured instead of a broker. Changing it needs root.
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
