"""Reassignment plans: Kafka's JSON, placements, costs. Pure."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.failures import CliError

Placement = Mapping[PartitionKey, tuple[int, ...]]
Sizes = Mapping[PartitionKey, int]

SKEW_GOOD = 1.05
"""Up to this skew nothing moves for balance."""
RATE_MAX = 2**62
THROTTLE_MIN_BYTES = 10_000
"""Bytes a second; a lower rate lacks its unit, and nothing would ever arrive."""
INT32_MAX = 2**31 - 1
_ANY_LOG_DIR = "any"
"""What plans say of replicas that move between brokers only."""
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?i?)B?(?:/s)?")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True)
class Cost:
    """``moves`` are partitions that get other replicas."""

    partitions: int
    moves: int
    copied_bytes: int
    skew: tuple[float, float]
    """Largest over mean of the brokers' bytes, before and after."""
    leader_skew: tuple[float, float]

    def line(self, rate_bytes: int) -> str:
        return (
            f"moves {self.moves} of {self.partitions} partitions · copies "
            f"{amount(self.copied_bytes)} · about {duration(self.copied_bytes / rate_bytes)} at "
            f"{amount(rate_bytes)}/s\nskew by bytes {self.skew[0]:.2f} -> {self.skew[1]:.2f} · "
            f"leaders {self.leader_skew[0]:.2f} -> {self.leader_skew[1]:.2f}"
        )


def parse_rate(text: str) -> int:
    """Parses ``50MB/s``, ``64Mi``, ``1000000`` to bytes a second."""
    found = _RATE.fullmatch(text.strip())
    factor = {**_FACTORS, **_BINARY}.get(found[2]) if found else None
    value = float(found[1]) * factor if found and factor else 0
    if not 1 <= value <= RATE_MAX:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"{text!r} is no rate", "write 50MB/s, or bytes a second"
        )
    return int(value)


def parse_throttle(text: str) -> int:
    rate_bytes = parse_rate(text)
    if rate_bytes < THROTTLE_MIN_BYTES:
        what = f"--throttle {text} is {rate_bytes} bytes a second: too slow for any copy to arrive"
        raise CliError(Problem.ARGUMENT_VALUE, what, "give a unit, such as 50MB/s")
    return rate_bytes


def amount(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def parse_plan(text: str, source: str) -> dict[PartitionKey, tuple[int, ...]]:
    found: dict[PartitionKey, tuple[int, ...]] = {}
    for item in _items(text, source, "partitions"):
        try:
            place = _text(item["topic"]), _number(item["partition"])
            if not isinstance(item["replicas"], list):
                raise TypeError("replicas is no list")
            replicas = tuple(map(_number, item["replicas"]))
            log_dirs = set(item.get("log_dirs", ()))
        except (KeyError, TypeError, ValueError) as error:
            raise _no_plan(source, f"{type(error).__name__}: {error}") from None
        if log_dirs - {_ANY_LOG_DIR}:
            name = f"{place[0]}-{place[1]}"
            what = f"{source} moves {name} to a log directory, which this command cannot"
            raise CliError(
                Problem.FILE_CONTENT, what, "use kafka-reassign-partitions.sh for log_dirs"
            )
        if place in found:
            raise _no_plan(source, f"{place[0]}-{place[1]} is named twice")
        found[place] = replicas
    return found


def parse_topics(text: str, source: str) -> list[str]:
    try:
        return [_text(item["topic"]) for item in _items(text, source, "topics")]
    except (KeyError, TypeError) as error:
        raise _no_plan(source, f"{type(error).__name__}: {error}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    if not 0 <= value <= INT32_MAX:
        raise ValueError(f"{value} is no number of a partition or a broker")
    return value


def _items(text: str, source: str, key: str) -> list[Any]:
    try:
        content = json.loads(text)
        items = content[key]
    except (ValueError, KeyError, TypeError) as error:
        raise _no_plan(source, f"{type(error).__name__}: {error}") from None
    if not isinstance(items, list):
        raise _no_plan(source, f"{key} is no list")
    return items


def _no_plan(source: str, why: str) -> CliError:
    what = f"{source} is not what kafka-reassign-partitions reads ({why})"
    return CliError(Problem.FILE_CONTENT, what, "see `pyrklog cluster reassign plan`")


def render_plan(placement: Placement) -> str:
    """Kafka's reassignment JSON."""
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(replicas),
            "log_dirs": ["any"] * len(replicas),
        }
        for (topic, index), replicas in sorted(placement.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":")) + "\n"


def propose(
    current: Placement,
    sizes: Sizes,
    brokers: Sequence[int],
    *,
    replication_factor: int | None = None,
    racks: Mapping[int, str | None] | None = None,
    balance: bool = True,
) -> dict[PartitionKey, tuple[int, ...]]:
    """Places the wanted number of replicas on ``brokers``, copying as few bytes as possible.

    With ``racks`` two replicas share a rack only if every rack has one. With ``balance`` the
    fullest brokers give to the emptiest; spreading leaders copies nothing. Raises :class:`CliError`
    if there are too few brokers.
    """
    largest = max([replication_factor or 0, *(map(len, current.values()))], default=0)
    wanted = replication_factor or largest
    if wanted > len(brokers):
        what = f"{wanted} replicas need {wanted} brokers, and there are only {len(brokers)}"
        raise CliError(
            Problem.REPLICAS_DO_NOT_FIT, what, "name more with --brokers, or fewer with --rf"
        )
    plan = _Plan(current, sizes, brokers, racks or {})
    for place in sorted(current, key=lambda place: (-sizes.get(place, 0), place)):
        plan.settle(place, replication_factor or len(current[place]))
    if balance:
        plan.balance()
    return plan.with_leaders(balance)


class _Plan:
    """Placements, and the load of each broker. An empty replica weighs 1."""

    def __init__(
        self,
        current: Placement,
        sizes: Sizes,
        brokers: Sequence[int],
        racks: Mapping[int, str | None],
    ) -> None:
        self._brokers = sorted(set(brokers))
        self._racks = racks
        self._weights = {place: sizes.get(place, 0) + 1 for place in current}
        self._placed = {
            place: [broker for broker in replicas if broker in self._brokers]
            for place, replicas in current.items()
        }
        self._load = dict.fromkeys(self._brokers, 0)
        for place, replicas in self._placed.items():
            for broker in replicas:
                self._load[broker] += self._weights[place]

    def settle(self, place: PartitionKey, count: int) -> None:
        replicas, weight = self._placed[place], self._weights[place]
        while len(replicas) > count:
            # The leader stays.
            gone = max(replicas[1:], key=lambda b: (self._crowd(b, replicas), self._load[b], b))
            replicas.remove(gone)
            self._load[gone] -= weight
        while len(replicas) < count:
            free = [broker for broker in self._brokers if broker not in replicas]
            chosen = min(free, key=lambda b: (self._crowd(b, replicas), self._load[b], b))
            replicas.append(chosen)
            self._load[chosen] += weight

    def _crowd(self, broker: int, replicas: Collection[int]) -> int:
        rack = self._racks.get(broker)
        if rack is None:
            return 0
        return sum(self._racks.get(other) == rack for other in replicas if other != broker)

    def balance(self) -> None:
        """Moves replicas from the fullest broker that can give to the emptiest that can take."""
        while skew(self._load.values()) > SKEW_GOOD:
            if not self._improve():
                return

    def _improve(self) -> bool:
        ordered = sorted(self._brokers, key=lambda broker: (self._load[broker], broker))
        for light in ordered[: len(ordered) // 2]:
            for heavy in reversed(ordered[len(ordered) // 2 :]):
                place = self._best(heavy, light)
                if place is not None:
                    replicas = self._placed[place]
                    replicas[replicas.index(heavy)] = light
                    self._load[heavy] -= self._weights[place]
                    self._load[light] += self._weights[place]
                    return True
        return False

    def _best(self, heavy: int, light: int) -> PartitionKey | None:
        """The partition whose move brings the two closest to each other, if any."""
        difference = self._load[heavy] - self._load[light]
        best: PartitionKey | None = None
        for place, replicas in self._placed.items():
            if heavy not in replicas or light in replicas or self._weights[place] >= difference:
                continue
            others = [broker for broker in replicas if broker != heavy]
            if self._crowd(light, others) > self._crowd(heavy, others):
                continue
            if best is None or self._gap(place, difference) < self._gap(best, difference):
                best = place
        return best

    def _gap(self, place: PartitionKey, difference: int) -> int:
        return abs(difference - 2 * self._weights[place])

    def with_leaders(self, spread: bool) -> dict[PartitionKey, tuple[int, ...]]:
        """The placements; with ``spread`` each broker is preferred leader about equally often."""
        led = dict.fromkeys(self._brokers, 0)
        for replicas in self._placed.values():
            led[replicas[0]] += 1
        for place in sorted(self._placed) if spread else ():
            replicas = self._placed[place]
            best = min(replicas, key=lambda broker: led[broker])
            if led[replicas[0]] - led[best] > 1:
                led[replicas[0]] -= 1
                led[best] += 1
                replicas.remove(best)
                replicas.insert(0, best)
        return {place: tuple(replicas) for place, replicas in self._placed.items()}


def skew(values: Collection[int]) -> float:
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0


def cost(everything: Placement, plan: Placement, sizes: Sizes, brokers: Collection[int]) -> Cost:
    """The cost of ``plan``, with the skew of all partitions on all ``brokers``."""
    after = {**everything, **plan}
    used = {*brokers, *(b for replicas in after.values() for b in replicas)}
    moves = [place for place in plan if set(plan[place]) != set(everything.get(place, ()))]
    copied = sum(
        sizes.get(place, 0) * len(set(plan[place]) - set(everything.get(place, ())))
        for place in moves
    )

    def loads(placement: Placement, *, leaders: bool) -> list[int]:
        found = dict.fromkeys(used, 0)
        for place, replicas in placement.items():
            for broker in replicas[:1] if leaders else replicas:
                found[broker] = found.get(broker, 0) + (1 if leaders else sizes.get(place, 0))
        return list(found.values())

    return Cost(
        len(everything),
        len(moves),
        copied,
        (skew(loads(everything, leaders=False)), skew(loads(after, leaders=False))),
        (skew(loads(everything, leaders=True)), skew(loads(after, leaders=True))),
    )
