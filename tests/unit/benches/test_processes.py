import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benches import process

# A parent and a child that takes 30 MB; both end with their input.
_FAMILY = """
import subprocess, sys
if len(sys.argv) == 1:
    child = subprocess.Popen([sys.executable, __file__, "child"], stdin=sys.stdin)
    child.wait()
else:
    held = bytearray(b"x" * 30_000_000)
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[int]:
    program = tmp_path / "family.py"
    program.write_text(_FAMILY)
    with subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        yield parent.pid
        parent.communicate()


def test_a_child_counts_as_its_parent(family: int) -> None:
    parent, child = process.tree(family)
    assert parent == family
    alone = process.stat(family)
    both = process.usage(family)
    assert both.threads == alone.threads + process.stat(child).threads
    assert both.own_rss_bytes > alone.rss_bytes + 30_000_000
    assert both.rss_bytes == both.own_rss_bytes + both.shared_bytes


def test_cpu_time_of_an_ended_child_counts_after_the_wait() -> None:
    before = process.usage(os.getpid()).cpu_s
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    # The kernel rounds each of four numbers down to a hundredth of a second.
    assert process.usage(os.getpid()).cpu_s - before >= 0.15


def test_usage_of_a_missing_process_raises_file_not_found(family: int) -> None:
    _, child = process.tree(family)
    assert process.tree(child) == [child]
    with pytest.raises(FileNotFoundError):
        process.usage(2**22 + 1)


def test_proc_fields_are_whole_numbers_after_a_name() -> None:
    text = "Name:\tpython\nRssAnon:\t  12 kB\nread_bytes: 4096\nempty:\nno colon 5\n"
    assert process.parse_fields(text) == {"RssAnon": 12, "read_bytes": 4096}


def test_disk_wait_counts_as_idle_time() -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    before = process.parse_cores(f"cpu  {100 * hertz} 0 0 0 0 0 0 0 0 0\ncpu0 1 2\n")
    after = process.parse_cores(
        f"cpu  {130 * hertz} 0 {20 * hertz} {40 * hertz} {10 * hertz} 0 0 0\n"
    )
    assert after.busy_percent_since(before) == pytest.approx(50.0)
    assert before.busy_percent_since(before) == 0.0


def test_bytes_read_from_a_device_never_decrease(tmp_path: Path) -> None:
    first = process.device_read_bytes(tmp_path)
    assert process.device_read_bytes(tmp_path) >= first >= 0
