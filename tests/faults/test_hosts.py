"""The faults of a cluster once more, with every broker, ZooKeeper and the clients on hosts of their
own: network namespaces behind a router that loses packets.

They run in a pytest of their own, where such hosts may be made. `HOSTS_ROUNDS` says how many rounds
of random faults there are, `CHECKER_SEED` what they bring.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.faults import hosts

ROUNDS = int(os.environ.get("HOSTS_ROUNDS", "10"))
NETWORK_FAULTS = "unplug,isolate,deaf,mute,session_cut,session_reset,link_reset"
REFUSAL = hosts.refusal()
_FOLDER = Path(__file__).parents[1] / "cluster"

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.timeout(300 + 90 * ROUNDS),
    pytest.mark.skipif(
        REFUSAL != "", reason=f"the kernel allows no hosts: {REFUSAL}; tests/cluster cuts pipes"
    ),
]


def check(tests: str, tmp_path: Path) -> None:
    """Runs a file of tests/cluster on hosts."""
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(
        hosts.lab([*command, f"--basetemp={tmp_path / 'inner'}", str(_FOLDER / tests)]),
        env={
            **os.environ,
            "CHECKER_NETWORK": "hosts",
            "CHECKER_ROUNDS": str(ROUNDS),
            "CHECKER_FAULTS": NETWORK_FAULTS,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0


def test_hosts_hear_each_other_or_do_not(tmp_path: Path) -> None:
    check("../faults/hosts_themselves.py", tmp_path)


def test_one_fault_after_another(tmp_path: Path) -> None:
    check("test_faults.py", tmp_path)


def test_random_cuts(tmp_path: Path) -> None:
    check("test_checker.py::test_random_faults", tmp_path)
