"""Brokers come to a cluster of hundreds: ``python -m benches.simulated_expansion``.

The real planner, the real `reassign apply --batch`, and the real controller's decisions, against
brokers that are nothing but numbers, in a time of its own. A few of them die under way.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from benches.expansion_world import NO_CONNECTION, SEED, Scale, World, WorldAdmin
from pyrklog.balance.model import Cluster, Goal, Wish, skews
from pyrklog.balance.planner import make_plan
from pyrklog.balance.prediction import Limit
from pyrklog.balance.record import Record
from pyrklog.cli import reassign_progress, reassign_record
from pyrklog.cli.failures import Exit
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_measure import Measured
from pyrklog.cli.reassign_plan import amount, duration
from pyrklog.cli.reassign_planning import new_record
from pyrklog.cli.reassign_run import Run

OFF_MAX = 0.2
APPLIED_MAX = 10
"""Times that `apply` is given."""
_GOALS = (Goal.BYTES, Goal.LEADERS, Goal.REPLICAS)


class Simulation:
    def __init__(self, scale: Scale, batch_bytes: float, dead: int) -> None:
        self.scale = scale
        self.world = World(scale)
        self.admin = WorldAdmin(self.world)
        self._limit = Limit(bytes=int(batch_bytes))
        self._dead = dead
        self.failures: list[str] = []

    def run(self) -> None:
        cluster = self.world.cluster()
        begun = time.process_time()
        wish = Wish(sorted(cluster.brokers), _GOALS, targets=self.world.fresh)
        changed = make_plan(cluster, wish).changed
        planned_s = time.process_time() - begun
        measured = Measured(cluster, None, {})
        record = new_record(measured, changed, self._limit, None)
        sure = new_record(measured, changed, self._limit, f"{self.scale.rate_bytes}")
        print(
            f"{self.scale.brokers} + {self.scale.added} brokers, {len(cluster.partitions):,} "
            f"partitions · plan of {len(changed):,} moves and {amount(record.total_bytes)} in "
            f"{len(record.batches())} batches, {planned_s:.1f} s of CPU"
        )
        self._let_die(sure)
        done = self._carry_out(record)
        self._tell(cluster, done, sure)

    def _let_die(self, sure: Record) -> None:
        """Of the old brokers and of the new ones, spread over the plan's time."""
        assert sure.predicted_s is not None
        dice = random.Random(SEED)
        old = dice.sample(range(2, self.scale.brokers + 1), self._dead - self._dead // 3)
        victims = [*old, *dice.sample(self.world.fresh, self._dead // 3)]
        lasts_s = sure.predicted_s
        self.world.deaths = {one: lasts_s * dice.uniform(0.1, 0.8) for one in victims}
        print(f"brokers that die for {duration(self.scale.dead_s)}: {sorted(victims)}")

    def _carry_out(self, record: Record) -> Record:
        """As users do: `apply` again where a broker was away as its batch began."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan.progress.json"
            options = Settings("simulated:1", quiet=True)
            for _ in range(APPLIED_MAX):
                run = Run(NO_CONNECTION, self.admin, options, record, path)
                codes, record = run.carry_out(None, watch=True), run.record
                if all(code is Exit.OK for code in codes):
                    return record
                print(f"after {duration(self.world.now_s)} a broker was away: `apply` again")
                self.world.pass_(self.scale.dead_s)
        raise SystemExit(f"it is not done after {APPLIED_MAX} times")

    def _tell(self, before: Cluster, done: Record, sure: Record) -> None:
        after = self.world.cluster()
        brokers = after.brokers.keys()
        was = skews(before, before.placement, brokers)
        now = skews(after, after.placement, brokers)
        for goal in _GOALS:
            print(f"skew by {goal.value}: {was[goal]:.2f} -> {now[goal]:.2f}")
            if now[goal] > was[goal]:
                self.failures.append(f"the skew by {goal.value} has grown")
        print(f"copied {amount(self.world.moved_bytes)}, planned {amount(done.total_bytes)}")
        assert done.real_s is not None
        assert sure.predicted_s is not None
        self._compare(f"predicted at {amount(self.scale.rate_bytes)}/s", sure.predicted_s, done)
        if done.predicted_s is not None:
            off = done.predicted_s / done.real_s - 1
            print(f"assumed before the start: {duration(done.predicted_s)} ({off:+.0%})")
        if done.corrected is not None:
            after_s, rate, seconds = done.corrected
            told = f"measured for {duration(after_s)}: {amount(rate)}/s"
            self._compare(told, seconds, done)
        spent = self.world.store.spent
        print(
            f"controller: {spent.cpu_s:.1f} s of CPU in {duration(done.real_s)}, "
            f"{spent.events:,} events, {spent.requests:,} requests to brokers, the longest event "
            f"{spent.longest_s * 1000:.0f} ms"
        )

    def _compare(self, what: str, predicted_s: float, done: Record) -> None:
        assert done.real_s is not None
        off = predicted_s / done.real_s - 1
        took = f"took {duration(done.real_s)} ({off:+.0%})"
        print(f"{what}: {duration(predicted_s)}, {took}")
        if abs(off) > OFF_MAX:
            self.failures.append(f"{what}: off by {off:+.0%}")


@contextmanager
def in_its_time(simulation: Simulation) -> Iterator[None]:
    """Whatever waits moves the simulated clock."""
    world = simulation.world

    def now_ms() -> int:
        return int(world.now_s * 1000)

    with (
        patch.object(time, "sleep", world.pass_),
        patch.object(reassign_record, "now_ms", now_ms),
        patch.object(reassign_progress, "now_ms", now_ms),
        # What is learned here is of no real cluster.
        patch.dict(os.environ, {"XDG_CACHE_HOME": f"{os.devnull}/cache"}),
    ):
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=200)
    parser.add_argument("--added", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--mean-gb", type=float, default=0.4)
    parser.add_argument("--batch-gb", type=float, default=250.0)
    parser.add_argument("--mb-per-s", type=float, default=80.0, help="what each broker copies")
    parser.add_argument("--dead", type=int, default=6, help="brokers that die under way")
    parser.add_argument("--dead-s", type=float, default=30.0, help="for how long each is away")
    found = parser.parse_args(arguments)
    scale = Scale(
        found.brokers,
        found.added,
        found.partitions,
        found.mean_gb * 1e9,
        int(found.mb_per_s * 1e6),
        dead_s=found.dead_s,
    )
    begun = time.monotonic()
    simulation = Simulation(scale, found.batch_gb * 1e9, found.dead)
    with in_its_time(simulation):
        simulation.run()
    print(f"{time.monotonic() - begun:.0f} s of real time")
    for one in simulation.failures:
        print(f"error: {one}", file=sys.stderr)
    return 1 if simulation.failures else 0


if __name__ == "__main__":
    sys.exit(main())
