"""What goes wrong: a script of actions, drawn from a seed or written by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from tests.sim.network import STORE
from tests.sim.world import World


class Action(NamedTuple):
    """Something that is done at a time."""

    at_us: int
    kind: str
    brokers: tuple[int, ...]
    lasts_us: int = 0

    def __str__(self) -> str:
        return f"Action({self.at_us}, {self.kind!r}, {self.brokers}, {self.lasts_us})"


KINDS = (
    # kind, brokers, weight, longest
    ("kill", 1, 6, 6_000_000),
    ("pause", 1, 4, 6_000_000),
    ("cut", 2, 4, 5_000_000),
    ("cut_one_way", 2, 2, 5_000_000),
    ("cut_from_store", 1, 3, 6_000_000),
    ("isolate", 1, 3, 6_000_000),
    ("break_connections", 2, 6, 0),
    ("filter", 2, 3, 5_000_000),
    ("slow_disk", 1, 3, 5_000_000),
    ("leave", 1, 2, 3_000_000),
    ("expire", 1, 2, 0),
)
RESET_SHARE = 0.5
STORE_AWAY_SHARE = 0.3
"""Of the scripts: once the whole store is away."""
STORE_AWAY_US = (100_000, 8_000_000)
CUT_POWER = "cut_power"
"""Several machines lose power together, whatever is borne, and come back one after another."""
CUT_LASTS_US = 8_000_000
POWER = ("lose_power", 1, 4, 6_000_000)


def draw(
    seed: int, brokers: Sequence[int], from_us: int, until_us: int, *, with_power: bool
) -> list[Action]:
    """A script: bursts of faults with calm between them."""
    dice = random.Random(f"{seed}/faults")
    kinds = [*KINDS, POWER] if with_power else list(KINDS)
    weights = [weight for _, _, weight, _ in kinds]
    actions = []
    at_us = from_us
    while at_us < until_us:
        at_us += dice.randint(50_000, 5_000_000)
        for _ in range(dice.choice((1, 1, 2, 3, 4))):
            kind, count, _, longest = dice.choices(kinds, weights)[0]
            chosen = tuple(dice.sample(list(brokers), count))
            lasts_us = int(longest * dice.random() ** 2)
            actions.append(Action(at_us, kind, chosen, lasts_us))
            at_us += int(2_000_000 * dice.random() ** 3)
    store = random.Random(f"{seed}/store")
    if store.random() < STORE_AWAY_SHARE:
        begins_us, lasts_us = store.randint(from_us, until_us), store.randint(*STORE_AWAY_US)
        actions.append(Action(begins_us, "store_away", (), lasts_us))
    return sorted(action for action in actions if action.at_us < until_us)


def moments(
    dice: random.Random, pause_us: tuple[int, int], from_us: int, until_us: int
) -> Iterator[int]:
    """When something happens; each pause is drawn when the one before is over."""
    at_us = from_us
    while (at_us := at_us + dice.randint(*pause_us)) < until_us:
        yield at_us


def draw_cut(seed: int, brokers: Sequence[int], from_us: int, until_us: int) -> list[Action]:
    """One power cut, of some of the brokers or of all."""
    dice = random.Random(f"{seed}/cuts")
    count = dice.choice((2, len(brokers) - 1, len(brokers), len(brokers)))
    chosen = tuple(dice.sample(list(brokers), min(count, len(brokers))))
    return [Action(dice.randint(from_us, until_us), CUT_POWER, chosen, CUT_LASTS_US)]


def schedule(world: World, actions: Sequence[Action]) -> None:
    """Puts a script on the heap."""
    for action in actions:
        happening = _happening(world, action)
        world.heap.after(action.at_us - world.heap.now_us, None, happening)


def _happening(world: World, action: Action) -> Callable[[], None]:
    def happen() -> None:
        world.heap.note(f"FAULT {action.kind} {list(action.brokers)} for {action.lasts_us}")
        undo = DOINGS[action.kind](world, *action.brokers)
        if undo is not None:
            world.heap.after(action.lasts_us, None, undo)

    return happen


Undo = Callable[[], None] | None


def _kill(world: World, broker: int) -> Undo:
    world.kill(broker)
    return lambda: world.start(broker)


def _lose_power(world: World, broker: int) -> Undo:
    # What nobody promises to bear is a kill.
    world.kill(broker, loses_power=world.checker.bears_loss_of(broker))
    return lambda: world.start(broker)


def _cut_power(world: World, *brokers: int) -> Undo:
    world.checker.power_cut(brokers)
    dice = world.heap.dice("power cuts")
    for broker in brokers:
        world.kill(broker, loses_power=True)
        if dice.random() < 0.8:  # the others come when everything heals
            world.heap.after(dice.randint(0, CUT_LASTS_US), None, partial(world.start, broker))
    return None


def _pause(world: World, broker: int) -> Undo:
    life = world.brokers[broker].life
    if life is None:
        return None
    process = life.process
    process.is_paused = True
    return lambda: world.heap.resume(process)


def cut_pairs(world: World, pairs: Sequence[tuple[int, int]]) -> Callable[[], None]:
    """Nothing passes between these, in these directions; what ends that."""
    for pair in pairs:
        world.network.cut(*pair)

    def heal() -> None:
        # A link that was down for a while may have cost the connections over it.
        if world.heap.dice("resets").random() < RESET_SHARE:
            for one, other in pairs:
                world.network.break_connections(one, other)
        for pair in pairs:
            world.network.heal(*pair)
        world.look_at_connections()

    return heal


def _cut(world: World, one: int, other: int) -> Undo:
    return cut_pairs(world, [(one, other), (other, one)])


def _cut_one_way(world: World, one: int, other: int) -> Undo:
    return cut_pairs(world, [(one, other)])


def _cut_from_store(world: World, broker: int) -> Undo:
    return cut_pairs(world, [(broker, STORE), (STORE, broker)])


def _store_away(world: World) -> Undo:
    world.zookeeper.go_away()
    heal = cut_pairs(world, [p for b in world.brokers for p in ((b, STORE), (STORE, b))])

    def come_back() -> None:
        world.zookeeper.come_back()
        heal()

    return come_back


def _isolate(world: World, broker: int) -> Undo:
    others = [STORE, *(other for other in world.brokers if other != broker)]
    return cut_pairs(world, [p for o in others for p in ((broker, o), (o, broker))])


def _break_connections(world: World, one: int, other: int) -> Undo:
    world.network.break_connections(one, other)
    world.look_at_connections()
    return None


def _slow_disk(world: World, broker: int) -> Undo:
    volume = world.brokers[broker].volume
    volume.is_slow = True

    def heal() -> None:
        volume.is_slow = False

    return heal


def _filter(world: World, one: int, other: int) -> Undo:
    """One's connections to the other are refused, and nobody else's."""
    world.network.filter(one, other)
    world.look_at_connections()
    return lambda: world.network.unfilter(one, other)


def _leave(world: World, broker: int) -> Undo:
    life = world.brokers[broker].life
    if life is not None:
        life.leave()
    return lambda: world.start(broker)


def expire(world: World, broker: int) -> Undo:
    """The broker's sessions end, whether its process lives or not."""
    for session in list(world.zookeeper.sessions.values()):
        if session.broker == broker:
            world.heap.note(f"session {session.session_id} of {broker} is ended")
            world.zookeeper.end(session)
    return None


DOINGS: dict[str, Callable[..., Undo]] = {
    "kill": _kill,
    "lose_power": _lose_power,
    CUT_POWER: _cut_power,
    "pause": _pause,
    "cut": _cut,
    "cut_one_way": _cut_one_way,
    "cut_from_store": _cut_from_store,
    "store_away": _store_away,
    "isolate": _isolate,
    "break_connections": _break_connections,
    "filter": _filter,
    "slow_disk": _slow_disk,
    "leave": _leave,
    "expire": expire,
}


def heal_everything(world: World) -> None:
    """Nothing is wrong any more."""
    world.zookeeper.come_back()
    world.network.heal_all()
    world.options.forbid_unclean()
    for number, broker in world.brokers.items():
        broker.volume.is_slow = False
        broker.volume.is_back()
        if broker.life is None:
            world.start(number)
        elif broker.life.process.is_paused:
            world.heap.resume(broker.life.process)
