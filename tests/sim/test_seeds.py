"""Seeds: no fault violates an invariant, and each injected bug is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyrklog import _core
from tests.sim.faults import Action
from tests.sim.injected_faults import BUGS
from tests.sim.run import Outcome, plain_settings_of, run, script_of, settings_of, shrink

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("SIM_SEEDS", "120"))
SEEDS_TO_FIND_MAX = 1_000

# First seeds of searches, close to a find. FIND_FROM_ZERO searches from 0.
BEGIN_AT = {
    "a back-fill takes records of a truncated epoch": 320,
    "a former coordinator's marker is written": 25,
    "a marker is written before its decision is replicated": 18,
    "a marker leaves the guard of a first batch": 70,
    "a time-out is taken for a refusal": 40,
    "a whole image is taken for a part": 75,
    "high watermark above the durable end": 115,
    "ISR expansion before the epoch start": 250,
    "ISR write without the version check": 138,
    "nobody outside the ISR is eligible": 345,
    "those who refuse each other depose each other": 190,
    "the switch for unclean elections is remembered": 350,
}


def tell(outcome: Outcome) -> str:
    """What a reader needs to look into it."""
    script = shrink(
        outcome.seed, settings_of(outcome.seed), script_of(outcome.seed, settings_of(outcome.seed))
    )
    lines = "\n".join(f"    {action}," for action in script)
    return f"seed {outcome.seed}: {outcome.violation}\n{lines}"


@pytest.mark.timeout(240 + 3 * SEEDS)
def test_no_seed_violates_an_invariant() -> None:
    acknowledged = suspicions = deposals = silences = committed = transactional = 0
    for seed in range(SEEDS):
        outcome = run(seed)
        assert outcome.violation is None, tell(outcome)
        acknowledged += outcome.acknowledged
        suspicions += outcome.suspicions
        deposals += outcome.deposals
        silences += outcome.silences
        committed += outcome.committed
        transactional += settings_of(seed).transactions
    assert acknowledged > 50 * SEEDS, "hardly anything was acknowledged: nothing was tried"
    assert suspicions > SEEDS // 5, "hardly anybody was suspected"
    assert deposals > SEEDS // 10, "hardly any controller was deposed"
    assert silences > SEEDS // 10, "hardly anybody was silent"
    assert committed >= transactional, "hardly any transaction was committed"


TRANSACTIONAL = next(seed for seed in range(1_000) if settings_of(seed).transactions)

REMEMBERED = {
    70008593: "a log is cut below the row of its high watermark",
    90003952: "a kill right after logs were opened that power loss had shortened",
    92004989: "a partition is stopped while the volume has its write in hand",
    93002698: "the same, with a block cache",
}


@pytest.mark.parametrize("seed", REMEMBERED, ids=REMEMBERED.values())
def test_seeds_that_once_failed(seed: int) -> None:
    outcome = run(seed)
    assert outcome.violation is None, tell(outcome)


def find(name: str) -> Outcome:
    """The first seed that finds the bug, and finds nothing without it."""
    injected = BUGS[name]
    first = 0 if os.environ.get("FIND_FROM_ZERO") else BEGIN_AT.get(name, 0)
    for seed in range(first, first + SEEDS_TO_FIND_MAX):
        healthy = injected.settings(plain_settings_of(seed))
        settings = healthy._replace(injected=injected.data_plane)
        outcome = run(seed, settings, injected=injected.control_plane())
        if outcome.violation is not None and run(seed, healthy).violation is None:
            return outcome
    raise AssertionError(f"{SEEDS_TO_FIND_MAX} seeds do not find it")


@pytest.mark.parametrize("name", BUGS)
def test_injected_bug_is_found(name: str) -> None:
    find(name)


def test_failing_seed_shrinks_to_a_failing_script() -> None:
    name = "truncation to the high watermark"
    seed = find(name).seed
    settings = BUGS[name].settings(plain_settings_of(seed))._replace(injected=BUGS[name].data_plane)
    whole = script_of(seed, settings)
    script = shrink(seed, settings, whole)
    assert len(script) < len(whole)
    told = "[" + ", ".join(map(str, script)) + "]"
    again = eval(told, {"Action": Action})  # as a reader would paste it
    assert again == script
    assert run(seed, settings, again).violation is not None
    assert run(seed, settings, script[1:]).violation is None


@pytest.mark.parametrize("seed", [3, 4, 5, TRANSACTIONAL])
def test_a_seed_s_trace_is_the_same_in_another_process(seed: int) -> None:
    asked = [sys.executable, "-m", "tests.sim", "--first", str(seed), "--seeds", "1", "--trace"]
    told = [
        subprocess.run(
            asked,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()[:-1]
        for hashes in ("1", "2")
    ]
    assert told[0] == told[1] == list(run(seed).trace)


def test_shipped_extension_has_no_simulation() -> None:
    assert not {"SimPlane", "MemDisk", "plant", "set_now_ms"} & set(dir(_core))
