"""The memory of an idle broker."""

import re
from collections.abc import Callable
from pathlib import Path

from benches.process import usage
from pyrklog.testing import TestBroker
from tests.support import wire

IDLE_MAX_BYTES = 64_000_000
# Allocations before a data plane opens, while huge pages are still on.
HUGE_MAX_KB = 8192


def test_an_idle_broker_is_small(new_broker: Callable[..., TestBroker], topic: str) -> None:
    """Also after its first client, and with a cache, which is not counted."""
    broker = new_broker(options={"pyrklog.cache.dir": "/dev/shm"}).start()
    assert usage(broker.pid).own_rss_bytes < IDLE_MAX_BYTES
    with wire.Connection(broker.bootstrap) as connection:
        assert wire.create_topic(connection, topic) == 0
        batch = wire.record_batch([b"first"])
        assert wire.produce(connection, topic, batch).error == 0
        found = usage(broker.pid)
        huge_kb = _in_huge_pages_kb(broker.pid)
    assert found.shared_bytes > 0
    assert found.own_rss_bytes < IDLE_MAX_BYTES
    assert huge_kb <= HUGE_MAX_KB


def _in_huge_pages_kb(pid: int) -> int:
    """A process's memory in huge pages, where each small allocation can take 2 MB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    found = re.search(r"^AnonHugePages: +([0-9]+) kB$", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1])
