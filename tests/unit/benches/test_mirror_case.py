"""The mirror's case: figures of the same bytes, and what MirrorMaker is told."""

import pytest

from benches import mirror_case
from benches.effort import FULL, METRICS
from benches.goals import Figures, verdict
from benches.mirror_case import Copied


def test_figures_are_megabytes_for_each_second_of_cpu_time() -> None:
    ours = Copied(cpu_s=4.0, seconds=5.0, rss_bytes=200_000_000)
    theirs = Copied(cpu_s=20.0, seconds=10.0, rss_bytes=900_000_000)
    found = mirror_case.figures(ours, theirs, 2_000_000_000)
    assert (found["mb_per_cpu_s"], found["mirrormaker_mb_per_cpu_s"]) == (500, 100)
    assert (found["mb_per_s"], found["mirrormaker_mb_per_s"]) == (400, 200)
    assert found["of_mirrormaker"] == pytest.approx(5)
    assert (found["client_rss_mb"], found["mirrormaker_rss_mb"]) == (200, 900)
    assert set(mirror_case.SCENARIO.shown) <= set(found)
    assert set(found) <= set(METRICS)


def test_three_times_mirrormaker_is_the_goal() -> None:
    assert verdict("mirror", "of_mirrormaker", Figures(3.0, None)) == "reached (>= 3)"
    assert verdict("mirror", "of_mirrormaker", Figures(2.9, None)) == "missed (>= 3)"


def test_mirrormaker_copies_one_topic_one_way() -> None:
    lines = mirror_case.properties("h:1", "h:2").splitlines()
    assert "theirs.bootstrap.servers=h:1" in lines
    assert "west.bootstrap.servers=h:2" in lines
    assert "theirs->west.topics=mirror" in lines
    assert "west->theirs.enabled=false" in lines
    assert "replication.factor=1" in lines


def test_disk_is_asked_for_three_copies() -> None:
    assert mirror_case.SCENARIO.disk_bytes(FULL) == 9_000_000_000
