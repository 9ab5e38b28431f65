"""What lies between the processes: who reaches whom, and how long it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.sim.heap import Heap

STORE = 0
"""ZooKeeper's place; brokers have their numbers, clients are everywhere."""

NEAR_US = (50, 600)
FAR_SHARE = 0.02
FAR_US = (5_000, 60_000)
STRAY_SHARE = 0.04
LATE_US = (1_000, 8_000_000)
REFUSED_SHARE = 0.8
"""Of the connections to a broker whose process is gone; the others get no answer."""


class Network:
    """Cut links, broken connections and delays."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._dice = heap.dice("network")
        self._cut: set[tuple[int, int]] = set()
        self.healed_us: dict[tuple[int, int], int] = {}
        """When a link was last cut, or filtered, no more."""
        self._on_heal: list[Callable[[], None]] = []
        self.is_stormy = False
        """Faults happen."""
        self.breaks: dict[tuple[int, int], int] = {}
        """How often the connections of a pair were broken."""
        self._filtered: set[tuple[int, int]] = set()
        self.refusals: Counter[tuple[int, int]] = Counter()
        """How often an observer (the first) was refused."""

    def delay_us(self) -> int:
        """Of one message."""
        dice = self._dice
        return dice.randint(*(FAR_US if dice.random() < FAR_SHARE else NEAR_US))

    def late_us(self) -> int:
        """Of one that lay in the buffers of a connection that has broken since."""
        return self._dice.randint(*LATE_US)

    def strays(self) -> bool:
        """Whether a request arrives late, its connection being reset behind it."""
        return self.is_stormy and self._dice.random() < STRAY_SHARE

    def is_lost_in_break(self) -> bool:
        """Whether a message on its way goes with its connection."""
        return self._dice.random() < 0.5

    def reaches(self, source: int, target: int) -> bool:
        """Whether messages arrive."""
        return source == target or (source, target) not in self._cut

    def answers_for_the_dead(self) -> bool:
        """Whether a connection to a broker whose process is gone is refused."""
        return self._heap.dice("refusals").random() < REFUSED_SHARE

    def filters(self, source: int, target: int) -> bool:
        """Whether a packet filter refuses connections."""
        return (source, target) in self._filtered

    def filter(self, source: int, target: int) -> None:
        """From now on it does; connections from before are reset."""
        self._filtered.add((source, target))
        self.break_connections(source, target)

    def unfilter(self, source: int, target: int) -> None:
        """Connections are made again."""
        if (source, target) in self._filtered:
            self._filtered.remove((source, target))
            self.healed_us[source, target] = self._heap.now_us

    def cut(self, source: int, target: int) -> None:
        """From now on nothing arrives; what is sent waits in buffers."""
        self._cut.add((source, target))

    def heal(self, source: int, target: int) -> None:
        """Messages arrive again."""
        if (source, target) in self._cut:
            self._cut.remove((source, target))
            self.healed_us[source, target] = self._heap.now_us
        self._look()

    def heal_all(self) -> None:
        """Everyone reaches everyone."""
        self.healed_us.update(dict.fromkeys(self._cut | self._filtered, self._heap.now_us))
        self._cut.clear()
        self._filtered.clear()
        self._look()

    def _look(self) -> None:
        waiting, self._on_heal = self._on_heal, []
        for look in waiting:
            self._heap.after(self.delay_us(), None, look)

    def when_healed(self, look: Callable[[], None]) -> None:
        """Calls it once, after the next healing of any link."""
        self._on_heal.append(look)

    def break_connections(self, one: int, other: int) -> None:
        """All connections between two brokers are reset."""
        for pair in ((one, other), (other, one)):
            self.breaks[pair] = self.breaks.get(pair, 0) + 1

    def generation(self, source: int, target: int) -> int:
        """Changes when connections break."""
        return self.breaks.get((source, target), 0)

    def carry(
        self, source: int, target: int, arrive: Callable[[], None], extra_us: int = 0
    ) -> None:
        """Brings one message over a reliable connection, as soon as the link is not cut."""

        def try_to() -> None:
            if self.reaches(source, target):
                arrive()
            else:
                self.when_healed(try_to)

        self._heap.after(self.delay_us() + extra_us, None, try_to)
