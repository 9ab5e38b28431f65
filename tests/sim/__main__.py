"""``python -m tests.sim``: runs seeds, prints those that fail and their shrunk scripts."""

from __future__ import annotations

import argparse
import sys
import time

from tests.sim.run import Outcome, run, script_of, settings_of, shrink
from tests.sim.settings import with_transactions

ONLY = (
    "changes_minimum",
    "allows_unclean",
    "hangs",
    "caches",
    "transactions",
    "expands",
    "fills",
    "promotes",
)
"""Switches of :class:`Settings` that seeds can be chosen by."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--trace", action="store_true", help="print the traces")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--no-power", action="store_true", help="no machine loses power")
    parser.add_argument("--moves", action="store_true", help="only seeds with reassignments")
    parser.add_argument("--topics", action="store_true", help="only seeds with topics made")
    parser.add_argument("--cuts", action="store_true", help="only seeds with power cuts")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=ONLY,
        help="only seeds with that",
    )
    parser.add_argument(
        "--transactions", action="store_true", help="transactional clients in every seed"
    )
    parser.add_argument("--plant", action="append", default=[], help="bugs of the data plane")
    parser.add_argument("--keep-going", action="store_true")
    asked = parser.parse_args()
    began = time.monotonic()
    failed = 0
    acknowledged = events = suspicions = deposals = silences = committed = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        settings = settings_of(seed)._replace(
            injected=tuple(asked.plant), loses_power=not asked.no_power
        )
        if asked.transactions:
            settings = with_transactions(settings)
        if (asked.moves > settings.moves) or (asked.topics > settings.makes_topics):
            continue
        if asked.cuts > settings.cuts_power:
            continue
        if not all(getattr(settings, name) for name in asked.only):
            continue
        script = script_of(seed, settings)
        outcome = run(seed, settings, script)
        acknowledged += outcome.acknowledged
        events += outcome.events
        suspicions += outcome.suspicions
        deposals += outcome.deposals
        silences += outcome.silences
        committed += outcome.committed
        if asked.trace:
            print("\n".join(outcome.trace))
        if outcome.violation is not None:
            failed += 1
            _tell(outcome)
            if asked.shrink:
                for action in shrink(seed, settings, script):
                    print(f"    {action},")
            if not asked.keep_going:
                break
    seconds = time.monotonic() - began
    print(
        f"{seed + 1 - asked.first} seeds, {failed} failed, {acknowledged} acknowledged, "
        f"{committed} committed, "
        f"{suspicions} suspicions, {deposals} deposals ({silences} by silence), "
        f"{events} events, {seconds:.1f} s"
    )
    return min(failed, 1)


def _tell(outcome: Outcome) -> None:
    print(f"seed {outcome.seed}: {outcome.violation}")


sys.exit(main())
