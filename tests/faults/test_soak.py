"""Mixed load for a long time: memory stays within its bound, and nothing grows that should not.

The block cache has a limit of its own, and what is outside it must come to rest: after the first
half of the time everything that a broker keeps for its clients has been there for a while, and the
second half must not add to it. `SOAK_SECONDS` says for how long (default 100; `make test-soak` an
hour); `SOAK_CSV` names a file for the samples.
"""

import csv
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pytest

from benches.process import usage
from pyrklog.testing import TestBroker
from tests.support.faults.machine import arena_files
from tests.support.soaking import Load, create_topics

SECONDS = float(os.environ.get("SOAK_SECONDS", "100"))
CSV = os.environ.get("SOAK_CSV", os.devnull)
SAMPLES = 400
MIB = 1 << 20

CACHE_MAX_BYTES = 128 * MIB
# An arena's header, its slots, and no part of a page more.
BESIDE_CHUNKS_BYTES = 2 * MIB
OWN_MAX_BYTES = 160 * MIB
FDS_MAX = 400
THREADS_MAX = 60

# What the medians of the third and the last quarter may differ by: a producer's ids are forgotten
# every ten minutes only, a consumer's long reply may be under way.
OWN_GROWTH_BYTES = 8 * MIB
FDS_GROWTH = 20
THREADS_GROWTH = 4


@dataclass(frozen=True)
class Sample:
    """The broker at one moment; `own_bytes` without the arenas, whose blocks are `arena_bytes`."""

    at_s: float
    own_bytes: int
    shared_bytes: int
    arena_bytes: int
    arenas: int
    fds: int
    threads: int
    cpu_s: float
    written_bytes: int


def arenas(broker: TestBroker) -> list[Path]:
    return list(arena_files(broker.data))


def sample(broker: TestBroker, started: float, written_bytes: int) -> Sample:
    """Looks."""
    found, files = usage(broker.pid), arenas(broker)
    return Sample(
        round(time.monotonic() - started, 1),
        found.own_rss_bytes,
        found.shared_bytes,
        sum(512 * path.stat().st_blocks for path in files),
        len(files),
        len(os.listdir(f"/proc/{broker.pid}/fd")),
        found.threads,
        found.cpu_s,
        written_bytes,
    )


def check_bounds(one: Sample) -> None:
    """What must hold at every moment."""
    arena_max_bytes = CACHE_MAX_BYTES + one.arenas * BESIDE_CHUNKS_BYTES
    assert one.arena_bytes <= arena_max_bytes, one
    assert one.shared_bytes <= arena_max_bytes, one
    assert one.own_bytes <= OWN_MAX_BYTES, one
    assert one.fds <= FDS_MAX, one
    assert one.threads <= THREADS_MAX, one


def growth(samples: list[Sample], name: str) -> float:
    """By how much the last quarter's median exceeds that of the quarter before: peaks do not count,
    and what rises steadily does."""
    quarter = len(samples) // 4
    before = [getattr(one, name) for one in samples[2 * quarter : 3 * quarter]]
    after = [getattr(one, name) for one in samples[3 * quarter :]]
    return float(statistics.median(after) - statistics.median(before))


def report(samples: list[Sample]) -> str:
    """What was seen, for a reader."""
    last, quarter = samples[-1], len(samples) // 4
    most = {field.name: max(getattr(one, field.name) for one in samples) for field in fields(last)}
    third, fourth = (
        statistics.median(one.own_bytes for one in part) / 1e6
        for part in (samples[2 * quarter : 3 * quarter], samples[3 * quarter :])
    )
    return (
        f"{last.at_s:.0f} s, {last.written_bytes / 1e9:.2f} GB produced, "
        f"{last.cpu_s / last.at_s:.0%} of a core; "
        f"arenas at most {most['arena_bytes'] / MIB:.1f} MiB of {CACHE_MAX_BYTES // MIB}; "
        f"outside them at most {most['own_bytes'] / 1e6:.1f} MB, "
        f"medians of the last two quarters {third:.1f} and {fourth:.1f} MB; "
        f"at most {most['fds']} descriptors and {most['threads']} threads"
    )


def run(broker: TestBroker) -> list[Sample]:
    """Load for the whole time, looked at again and again."""
    pause_s = max(SECONDS / SAMPLES, 0.25)
    samples: list[Sample] = []
    started = time.monotonic()
    with open(CSV, "w", newline="") as target, Load(broker.bootstrap) as load:
        rows = csv.DictWriter(target, [field.name for field in fields(Sample)])
        rows.writeheader()
        while time.monotonic() - started < SECONDS:
            # A sample is taken at these times.
            time.sleep(pause_s)
            load.check()
            samples.append(sample(broker, started, load.writers.bytes))
            rows.writerow(asdict(samples[-1]))
            target.flush()
            check_bounds(samples[-1])
    load.check()
    return samples


@pytest.mark.timeout(SECONDS + 300)
def test_memory_stays_within_its_bound(
    new_broker: Callable[..., TestBroker], tmp_path: Path
) -> None:
    broker = new_broker(
        tmp_path,
        options={
            "pyrklog.cache.dir": "/dev/shm",
            "pyrklog.cache.max.bytes": CACHE_MAX_BYTES,
            "log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}",
            "log.retention.check.interval.ms": 5_000,
            "producer.id.expiration.ms": 30_000,
            "offsets.topic.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
        },
    ).start()
    create_topics(
        broker.bootstrap,
        {"segment.bytes": "8000000", "retention.bytes": "40000000", "file.delete.delay.ms": "1000"},
    )
    samples = run(broker)
    print(f"\nsoak: {report(samples)}")
    assert len(arenas(broker)) == 2, "both directories have a cache"
    assert samples[-1].written_bytes > 0
    if SECONDS >= 100:
        assert max(one.arena_bytes for one in samples) > CACHE_MAX_BYTES // 2, "the cache was used"
    assert growth(samples, "own_bytes") <= OWN_GROWTH_BYTES, report(samples)
    assert growth(samples, "fds") <= FDS_GROWTH, report(samples)
    assert growth(samples, "threads") <= THREADS_GROWTH, report(samples)
    files = arenas(broker)
    assert broker.stop() == 0
    assert not [path for path in files if path.exists()], "an orderly end leaves no arena"
