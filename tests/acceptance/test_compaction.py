"""Rows 24 and 29: compacted topics."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.acceptance.sites import Site
from tests.support.compacting import EAGER_TOPIC, FILLER, Found, fill, put, read_all
from tests.support.java_client import JavaConsumer, JavaMachine
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

KEYS = 20
ROUNDS = [(b"k%d" % key, b"%d of %d" % (turn, key)) for turn in range(4) for key in range(KEYS)]


def create(site: Site, topic: str, **options: str) -> None:
    site.create(topic, 1, **{**EAGER_TOPIC, **options})


def compacted(site: Site, topic: str) -> list[Found]:
    """Waits until each key but the filler is there once at most; returns the records."""
    found: list[Found] = []

    def is_compacted() -> bool:
        found[:] = read_all(site.bootstrap, topic)
        counts = Counter(one.key for one in found if one.key != FILLER)
        return all(count == 1 for count in counts.values())

    wait_until(is_compacted, lambda: f"{len(found)} records are left: {found[:5]}")
    return found


def test_row_24_the_end_is_reached_after_compaction(
    site: Site, java: JavaMachine, topic: str
) -> None:
    """A reader's position comes to what seekToEnd says, though records are missing before it."""
    create(site, topic)
    put(site.bootstrap, topic, [(key, value) for key, value in ROUNDS])
    fill(site.bootstrap, topic)
    put(site.bootstrap, topic, [(b"k%d" % key, None) for key in range(KEYS)])
    fill(site.bootstrap, topic)
    left = compacted(site, topic)
    options = {"isolation_level": "read_committed"}
    with JavaConsumer(java, site.bootstrap, topic, group=None, **options) as consumer:
        end = consumer.seek_to("End")
        assert end > len(left)
        assert (end, -1) == java.list_offset(site.bootstrap, topic, "latest")
        for start in (0, 1, KEYS, end - 1):
            consumer.seek(start)
            seen: list[int] = []

            def is_there(seen: list[int] = seen) -> bool:
                records = consumer.records()
                seen += [one.offset for one in records if one.key != FILLER.decode()]
                return consumer.position() == end

            wait_until(is_there, lambda: f"the position stays at {consumer.position()} of {end}")
            rest = [one.offset for one in left if one.key != FILLER and one.offset >= start]
            assert seen == rest


def test_row_29_tombstones_are_kept_and_then_purged(site: Site, topic: str) -> None:
    """They are kept for delete.retention.ms, so that a slow reader sees them."""
    kept, purged = f"{topic}-kept", f"{topic}-purged"
    create(site, kept)  # a day
    create(site, purged, **{"delete.retention.ms": "500"})
    deleted = [(b"k%d" % key, None) for key in range(KEYS // 2)]
    for one in (kept, purged):
        put(site.bootstrap, one, [*ROUNDS, *deleted])
        fill(site.bootstrap, one)
        compacted(site, one)

    def tombstones(name: str) -> list[bytes]:
        return [one.key for one in read_all(site.bootstrap, name) if one.value is None]

    def are_purged() -> bool:
        fill(site.bootstrap, purged)
        fill(site.bootstrap, kept)
        return not tombstones(purged)

    wait_until(are_purged, lambda: f"{tombstones(purged)} stay")
    assert tombstones(kept) == [key for key, _ in deleted]
    for name in (kept, purged):
        left = {one.key: one.value for one in compacted(site, name) if one.value is not None}
        left.pop(FILLER)
        assert left == dict(ROUNDS[3 * KEYS + KEYS // 2 :])
