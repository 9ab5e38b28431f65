"""Random faults under load: nothing is lost, repeated, reordered or skipped, and all recover.

One cluster lives through all rounds. ``CHECKER_ROUNDS`` sets their number, ``CHECKER_SEED`` their
content; ``CHECKER_FAULTS`` names kinds of faults, comma-separated, instead of the usual ones.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checker.plan import ALL, Fault, Plan, make_plan
from tests.checker.replicas import compare
from tests.checker.rounds import run_round
from tests.support.faults.wired_cluster import WiredCluster, wired_cluster
from tests.support.verifying import verify

pytestmark = pytest.mark.jvm

ROUNDS = int(os.environ.get("CHECKER_ROUNDS", "6"))
SEED = int(os.environ.get("CHECKER_SEED", "0")) or secrets.randbelow(1 << 31)
FAULTS = [name for name in os.environ.get("CHECKER_FAULTS", "").split(",") if name]

# Longer than a round, so that records are in memory alone.
WRITTEN_LATE = {"pyrklog.cache.flush.ms": 600_000, "pyrklog.cache.flush.bytes": 1 << 30}

_ROUND_LIMIT_S = 90


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[WiredCluster]:
    with wired_cluster(tmp_path, "checker") as cluster:
        yield cluster
    for number, broker in cluster.brokers.items():
        (tmp_path / f"broker{number}.log").write_text("\n".join(broker.log))


@pytest.mark.timeout(_ROUND_LIMIT_S * (ROUNDS + 2))
def test_random_faults(wired: WiredCluster, tmp_path: Path) -> None:
    print(f"CHECKER_SEED={SEED}")
    wired.start()
    for number in range(ROUNDS):
        done = run_round(wired, make_plan(SEED, number, FAULTS), SEED, number)
        print(f"round {number}: {'; '.join(done.happened)}", flush=True)
        if not done.is_good:
            pytest.fail(done.report(tmp_path / f"round-{number}.jsonl"), pytrace=False)
    # Ending groups still write to the offsets topic.
    unequal = [item for item in verify(wired.bootstrap) if item["status"] != "equal"]
    assert not unequal, f"{SEED=}: {unequal}"
    for broker in wired.brokers.values():
        assert broker.stop(timeout_s=30) == 0
    folders = {number: wired.log_dir(number) for number in wired.brokers}
    differing = compare(folders)
    if differing:
        # The volumes go with the cluster.
        for number, folder in folders.items():
            shutil.copytree(folder, tmp_path / "kept" / str(number))
    assert not differing, f"replicas differ after {SEED=}, see {tmp_path / 'kept'}"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_loss_is_found(wired: WiredCluster) -> None:
    """All machines crash at once under load: what was not in files is gone, and clients know."""
    for broker in wired.brokers.values():
        broker.options |= WRITTEN_LATE
    wired.start()
    crash = Fault("machine_crash", ALL, 0, 1.0, 0.0)
    # Clients may have come late.
    assert any(not run_round(wired, Plan((crash,), (), ()), 0, n).is_good for n in range(5))
