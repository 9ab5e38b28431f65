"""The amount of memory, with the limits of memory cgroups."""

import os
import subprocess
import sys

from benches import memory_group
from pyrklog.plane.core_plane import memory_bytes

LIMIT_BYTES = 300 * 2**20
ASK = "from pyrklog.plane.core_plane import memory_bytes; print(memory_bytes())"


def test_memory_bytes_is_at_most_the_machines() -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 2**26 < memory_bytes() <= machine


def test_the_limit_of_a_memory_group_counts() -> None:
    group = memory_group.create(f"pyrklog-memory-{os.getpid()}", LIMIT_BYTES)
    join = group.join() if isinstance(group, memory_group.MemoryGroup) else None
    told = int(subprocess.check_output([sys.executable, "-c", ASK], preexec_fn=join))
    if isinstance(group, memory_group.MemoryGroup):
        group.remove()
        assert told == LIMIT_BYTES
    else:
        assert told == memory_bytes(), group.reason
