"""One run of a seed: cluster, faults and invariants; and shrinking of failing scripts."""

from __future__ import annotations

import hashlib
import random
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from tests.sim.clients import Consumer, Producer
from tests.sim.cluster import Violation
from tests.sim.coordinator_faults import draw_coordinators
from tests.sim.expansion_faults import delete_records, draw_expansions
from tests.sim.faults import Action, draw, draw_cut, heal_everything, schedule
from tests.sim.move_faults import draw_moves
from tests.sim.option_faults import draw_minimums, draw_unclean
from tests.sim.promotion_faults import Member, draw_promotions
from tests.sim.settings import Settings, with_transactions, without_losses
from tests.sim.topic_faults import draw_topics
from tests.sim.transactions.load import TransactionalLoad
from tests.sim.volume_faults import draw_ends, draw_hangs
from tests.sim.world import World

MEMBERS_FROM = 100
"""Numbers of clients."""
CALM_US = 1_500_000
FAULTS_UNTIL_US = 15_000_000
WHOLE_AFTER_US = 60_000_000
LOOK_US = 500_000
MINIMUM_SHARE, UNCLEAN_SHARE, HANG_SHARE, CACHE_SHARE = 0.25, 0.2, 0.25, 0.25
"""Shares of seeds."""
EXPAND_SHARE = 0.4
"""Share of the seeds with moves."""
FILL_SHARE = 0.6
"""Of those, with back-fills."""
PROMOTE_SHARE = 0.5
"""The same, with early promotions."""
TRANSACTION_SHARE = 0.2
"""Share of the seeds in which nothing promised may be lost."""
TRANSACTION_FAULT_SHARE = 0.4
"""Share of a script's first faults in seeds with transactions, which need several brokers at once
for every step."""
SMALL_MINIMUM_SHARE = 0.7
"""Share of the seeds that allow unclean elections."""


class Outcome(NamedTuple):
    seed: int
    violation: str | None
    trace: Sequence[str]
    acknowledged: int
    events: int
    suspicions: int
    """Brokers that a controller suspected."""
    deposals: int
    """Controllers that were deposed."""
    silences: int
    """Suspicions and depositions by silence, included above."""
    committed: int
    """Transactions that clients know to be committed."""
    promotions: int

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


def script_of(seed: int, settings: Settings) -> list[Action]:
    """The faults of a seed."""
    with_power = settings.loses_power
    script = draw(seed, settings.brokers, CALM_US, FAULTS_UNTIL_US, with_power=with_power)
    if settings.transactions:
        dice = random.Random(f"{seed}/left out")
        script = [action for action in script if dice.random() < TRANSACTION_FAULT_SHARE]
    if settings.cuts_power:
        script += draw_cut(seed, settings.brokers, CALM_US, FAULTS_UNTIL_US)
    drawn = {
        draw_moves: settings.moves,
        draw_expansions: settings.expands,
        draw_promotions: settings.promotes,
        draw_topics: settings.makes_topics,
        draw_minimums: settings.changes_minimum,
        draw_unclean: settings.allows_unclean,
        draw_hangs: settings.hangs,
        draw_ends: settings.caches,
        draw_coordinators: settings.transactions,
    }
    for draw_more, is_wanted in drawn.items():
        if is_wanted:
            script += draw_more(seed, settings, CALM_US, FAULTS_UNTIL_US)
    return script


SHAPES = (
    Settings(),
    Settings(brokers=(1, 2, 3, 4), partitions={0: (1, 2, 3), 1: (3, 4, 1)}),
    Settings(),
    Settings(min_insync_replicas=1),
    Settings(partitions={0: (1, 2, 3), 1: (2, 3, 1)}),
    Settings(brokers=(1, 2, 3, 4, 5), partitions={0: (5, 1, 2, 3, 4)}),
    Settings(brokers=(1, 2, 3, 4), partitions={0: (2, 4)}, min_insync_replicas=1),
)


def settings_of(seed: int) -> Settings:
    settings = plain_settings_of(seed)
    # What moves is not lost.
    may_lose = settings._replace(moves=False) != without_losses(settings)
    dice = random.Random(f"{seed}/transactions")
    has_transactions = dice.random() < TRANSACTION_SHARE and not may_lose
    if not has_transactions:
        return settings
    return with_transactions(settings)._replace(moves=settings.moves)


def plain_settings_of(seed: int) -> Settings:
    """A seed's settings without transactions."""
    round_, shape = divmod(seed, len(SHAPES))
    settings = SHAPES[shape]
    moves = len(settings.brokers) > 3 and round_ % 3 > 0
    cuts_power = round_ % 3 == 1 and not moves
    dice = random.Random(f"{seed}/settings")
    allows_unclean = dice.random() < UNCLEAN_SHARE and not cuts_power
    if allows_unclean and dice.random() < SMALL_MINIMUM_SHARE:
        # no replica outside the ISR is eligible
        settings = settings._replace(min_insync_replicas=1)
    expands = moves and random.Random(f"{seed}/expands").random() < EXPAND_SHARE
    return settings._replace(
        moves=moves,
        expands=expands,
        fills=random.Random(f"{seed}/fills").random() < FILL_SHARE,
        promotes=expands and random.Random(f"{seed}/promotes").random() < PROMOTE_SHARE,
        makes_topics=round_ % 4 == 3,
        cuts_power=cuts_power,
        changes_minimum=dice.random() < MINIMUM_SHARE,
        allows_unclean=allows_unclean,
        hangs=dice.random() < HANG_SHARE,
        caches=dice.random() < CACHE_SHARE,
    )


def run(
    seed: int,
    settings: Settings | None = None,
    script: Sequence[Action] | None = None,
    *,
    injected: AbstractContextManager[object] | None = None,
) -> Outcome:
    """Runs once. Reports what it finds in the outcome, never by raising."""
    settings = settings or settings_of(seed)
    if script is None:
        script = script_of(seed, settings)
    world = World(seed, settings)
    violation = None
    committed = 0
    with injected or nullcontext(), world.running():
        try:
            committed = _play(world, settings, script)
        except Violation as found:
            violation = str(found)
            if found.__cause__ is not None:
                violation += "\n" + "".join(traceback.format_exception(found.__cause__))
    heap, checker = world.heap, world.checker
    return Outcome(
        seed,
        violation,
        heap.trace,
        checker.acknowledged,
        heap.happened,
        checker.suspicions,
        checker.deposals,
        checker.silent_suspicions + checker.silent_deposals,
        committed,
        checker.promotions,
    )


def _play(world: World, settings: Settings, script: Sequence[Action]) -> int:
    """Returns the number of committed transactions."""
    for number in settings.brokers:
        world.start(number)
    end_us = max([FAULTS_UNTIL_US, *(action.at_us for action in script)])
    for index in settings.partitions:
        Producer(world, 2 * index, index, end_us)
        if not settings.transactions:
            Producer(world, 2 * index + 1, index, end_us)
        Consumer(world, index, index, end_us)
        if settings.promotes:
            Member(world, MEMBERS_FROM + index, index, end_us)
    load = TransactionalLoad(world, end_us) if settings.transactions else None
    schedule(world, script)
    world.network.is_stormy = bool(script)
    world.run_until(end_us)
    world.network.is_stormy = False
    heal_everything(world)
    deadline_us = end_us + WHOLE_AFTER_US
    while (unsettled := _unsettled(world, load)) is not None:
        if world.heap.now_us >= deadline_us:
            world.violated(f"it does not heal: {unsettled}")
        if settings.expands and (not settings.fills or "different logs" in unsettled):
            # As retention does: partial replicas become whole, and moves end. A follower that knew
            # of deletions which its leader has forgotten in a crash begins later than it.
            for index in settings.partitions:
                delete_records(world, index)
        world.run_until(world.heap.now_us + LOOK_US)
        # Starts processes that exited or were killed late.
        heal_everything(world)
    if load is None:
        return 0
    load.conclude()
    return load.ledger.committed


def _unsettled(world: World, load: TransactionalLoad | None) -> str | None:
    return world.checker.unsettled() or (load.unsettled() if load is not None else None)


def shrink(
    seed: int,
    settings: Settings,
    script: Sequence[Action],
    injected: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Action]:
    """A script that still fails, and needs each of its actions."""
    left = list(script)
    size = max(1, len(left) // 2)
    while True:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if run(seed, settings, fewer, injected=injected()).violation is not None:
                left = fewer
            else:
                at += size
        if size == 1:
            return left
        size = max(1, size // 2)
