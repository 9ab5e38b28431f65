"""Early promotions: they happen in the simulation, and a bug in their rules is found at once."""

from contextlib import AbstractContextManager

from tests.sim.expansion_faults import EXPAND
from tests.sim.faults import Action
from tests.sim.injected_faults import BUGS
from tests.sim.promotion_faults import PROMOTE
from tests.sim.run import Outcome, run
from tests.sim.settings import Settings

BEGIN_US, END_US, EACH_US = 2_000_000, 15_000_000, 100_000
SEEDS = range(3)


def promoted(seed: int, injected: AbstractContextManager[object] | None = None) -> Outcome:
    """Broker 4 begins at the leader's end; nothing else happens but what members read."""
    settings = Settings(
        brokers=(1, 2, 3, 4),
        partitions={0: (1, 2, 3)},
        moves=True,
        expands=True,
        promotes=True,
    )
    script = [Action(BEGIN_US, EXPAND, (0, 1, 2, 4))]
    moments = range(BEGIN_US + EACH_US, END_US, EACH_US)
    script += [Action(at_us, PROMOTE, (0,)) for at_us in moments]
    return run(seed, settings, script, injected=injected)


def test_replicas_are_promoted_once_nobody_needs_what_they_lack() -> None:
    outcomes = [promoted(seed) for seed in SEEDS]
    assert [one.violation for one in outcomes] == [None] * len(SEEDS)
    assert sum(one.promotions for one in outcomes) > 0


def test_a_stale_commit_alone_promotes_too_early() -> None:
    bug = BUGS["a promotion by a group's stale commit"]
    found = [promoted(seed, bug.control_plane()).violation for seed in SEEDS]
    assert any("was fetched" in (one or "") for one in found)
