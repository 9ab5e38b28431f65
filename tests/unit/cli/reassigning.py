"""A cluster whose moves last until a test ends them, and whose throttles are in a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from pyrklog.balance.model import PartitionKey, Replicas
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError
from pyrklog.cli.reassign_cluster import ReassignmentAdmin
from pyrklog.cli.throttles import (
    APPEND,
    FILL_RATE,
    FOLLOWERS,
    LEADERS,
    RATES,
    SUBTRACT,
    Change,
    Named,
    Throttles,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.reassignments import OngoingPartitionReassignment

NO_CONNECTION = cast(Connection, SimpleNamespace(settings=SimpleNamespace(timeout_s=1.0)))


class FakeAdmin(ReassignmentAdmin):
    """``done``: what was asked of it, in order. ``refusals`` are raised first, one for each call of
    :meth:`moving`."""

    def __init__(self, placed: Mapping[PartitionKey, Replicas], brokers: int = 4) -> None:
        self.placed = dict(placed)
        self.targets: dict[PartitionKey, Replicas] = {}
        self.at_end: set[PartitionKey] = set()
        self.brokers = range(1, brokers + 1)
        self.done: list[tuple[str, Any]] = []
        self.refusals: list[CliError] = []
        self.is_quick = False
        """Whether moves have ended at the next look."""
        self.ids: dict[str, str] = {}
        self.floors: dict[str, int] = {}
        """``min.insync.replicas``"""

    def describe(self) -> Any:
        places = [SimpleNamespace(broker_id=one, host="h", port=one) for one in self.brokers]
        return SimpleNamespace(brokers=places, controller_id=1)

    def placement(self) -> tuple[dict[PartitionKey, Replicas], str | None]:
        found = dict(self.placed)
        for key in self.targets:
            found[key] = self._all(key)
        return found, "id"

    def leaders(self) -> dict[PartitionKey, int]:
        return {key: replicas[0] for key, replicas in self.placed.items()}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: one for topic, one in self.ids.items() if topic in topics}

    def minimums(self, topics: Collection[str]) -> dict[str, int]:
        return {topic: self.floors.get(topic, 1) for topic in topics}

    def sizes(self, *, without_silent: bool = False) -> dict[tuple[str, int, int], int]:
        return {(*key, one): 1_000 for key, replicas in self.placed.items() for one in replicas}

    def _all(self, key: PartitionKey) -> Replicas:
        target = self.targets[key]
        return (*target, *(one for one in self.placed[key] if one not in target))

    def moving(self) -> dict[PartitionKey, OngoingPartitionReassignment]:
        if self.refusals:
            raise self.refusals.pop(0)
        found = {}
        for key, target in self.targets.items():
            added = [one for one in target if one not in self.placed[key]]
            gone = [one for one in self.placed[key] if one not in target]
            found[key] = OngoingPartitionReassignment(key[1], list(self._all(key)), added, gone)
        if self.is_quick:
            self.end()
        return found

    def end(self, *keys: PartitionKey) -> None:
        """These moves, or all, are done."""
        for key in keys or tuple(self.targets):
            self.placed[key] = self.targets.pop(key)

    def ask_each(self, api: Any, version: int, requests: Mapping[int, Any]) -> dict[int, Any]:
        """These brokers know nothing of replicas that start at the end."""
        return {}

    def alter(
        self,
        wanted: Mapping[PartitionKey, Iterable[int] | None],
        at_end: Collection[PartitionKey] = (),
    ) -> dict[PartitionKey, tuple[ErrorCode, str | None]]:
        self.done.append(("alter", dict(wanted)))
        self.at_end |= wanted.keys() & set(at_end)
        results: dict[PartitionKey, tuple[ErrorCode, str | None]] = {}
        for key, replicas in wanted.items():
            code = ErrorCode.NONE
            if key not in self.placed:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif replicas is not None:
                self.targets[key] = tuple(replicas)
            elif self.targets.pop(key, None) is None:
                code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            results[key] = (code, None)
        return results

    @property
    def altered(self) -> list[Any]:
        return [what for name, what in self.done if name == "alter"]


class FakeThrottles(Throttles):
    """``options``: by kind and name. ``silent``: brokers that do not answer."""

    def __init__(self, admin: FakeAdmin) -> None:
        super().__init__(NO_CONNECTION, admin)
        self.options: dict[tuple[str, str], dict[str, str]] = {}
        self.silent: dict[str, CliError] = {}
        self.is_late = False
        """Whether brokers do not tell yet what was set."""
        self.meanwhile: list[Callable[[], None]] = []
        """What others do before each of the next looks."""

    def named(self, topics: Any = None) -> dict[str, Named]:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        found = {}
        for (kind, name), options in self.options.items():
            lists = [options.get(one, "").split(",") for one in (LEADERS, FOLLOWERS)]
            named = Named(*(tuple(one for one in names if one) for names in lists))
            is_asked = topics is None or name in topics
            if kind == "topic" and any(named) and is_asked and not self.is_late:
                found[name] = named
        return found

    @property
    def rates(self) -> dict[str, str]:
        found = {}
        for (kind, name), options in self.options.items():
            if kind == "broker" and options.keys() - {FILL_RATE}:
                assert options.keys() - {FILL_RATE} == set(RATES)
                found[name] = options[RATES[0]]
        return found

    @property
    def fill_rates(self) -> dict[str, str]:
        known = {name: one for (kind, name), one in self.options.items() if kind == "broker"}
        return {name: one[FILL_RATE] for name, one in known.items() if FILL_RATE in one}

    def _lost_rates(self, brokers: Collection[int]) -> list[int]:
        return [one for one in brokers if str(one) not in self.rates]

    def _set(self, kind: str, wanted: Mapping[str, Sequence[Change]]) -> dict[str, CliError]:
        """Lists as Kafka's brokers have them: an empty one has an empty item."""
        for name, changes in wanted.items():
            if kind == "broker" and name in self.silent:
                continue
            kept = self.options.setdefault((kind, name), {})
            assert len({one.option for one in changes}) == len(changes), "refused by brokers"
            for option, operation, value in changes:
                if value is None:
                    kept.pop(option, None)
                    continue
                assert value, "nothing to add or take"
                items, old = value.split(","), kept.get(option, "").split(",")
                if operation == APPEND:
                    assert old != [""], "Kafka's brokers cannot read the list then"
                    items = [*old, *items]
                elif operation == SUBTRACT:
                    items = [one for one in old if one not in items]
                kept[option] = ",".join(items)
        return {name: error for name, error in self.silent.items() if kind == "broker"}
