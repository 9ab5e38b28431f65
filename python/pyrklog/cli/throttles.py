"""Throttles of replication (KIP-73): which replicas they are for, and the rate of each broker.

A topic's options name the replicas, a broker's the rate. Several plans may run at once, on the same
topics: each one adds, and takes away, only what is named for its own partitions. The rates go with
the last replica that is named. What brokers tell of options may be a moment old, so a command that
watches looks now and then whether its own are there still.

Replicas that start at their leaders' ends are named, too: brokers hold them back only where they
copy after all. Their back-fills have a rate of their own, which is an option of a broker, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import typer

from pyrklog.balance.model import Placement
from pyrklog.base.problems import Problem
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError, Exit, cli_error, exit_code
from pyrklog.cli.in_parallel import in_parallel
from pyrklog.cli.reassign_cluster import SILENT_TIMEOUT_S, ReassignmentAdmin
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
FILL_RATE = "pyrklog.expansion.rate"
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
ALL = "*"
NO_RATE = str(2**63 - 1)
"""The value of a rate that is not set, where a broker tells that."""
SET, DELETE, APPEND, SUBTRACT = "set", "delete", "append", "subtract"
"""Operations of IncrementalAlterConfigs (KIP-339)."""
_TOPIC = 2
_BROKER = 4
_CONFIGS_VERSION = 1
_SILENT = (Exit.UNREACHABLE, Exit.TIMED_OUT)


class Named(NamedTuple):
    """The replicas of a topic that are throttled, as ``partition:broker``."""

    leaders: tuple[str, ...] = ()
    followers: tuple[str, ...] = ()

    def without(self, partitions: Collection[int]) -> Named:
        """What is named for other partitions. ``*``, which names all, is not a plan's."""
        gone = {str(index) for index in partitions}
        return Named(*(tuple(one for one in names if _part(one) not in gone) for names in self))

    def minus(self, names: Named) -> Named:
        both = zip(self, names, strict=True)
        return Named(*(tuple(one for one in own if one not in gone) for own, gone in both))

    def partitions_from(self, broker: int) -> set[int]:
        """Partitions that the broker gives, or gets."""
        found = [one.split(":") for one in (*self.leaders, *self.followers)]
        return {
            int(parts[0])
            for parts in found
            if len(parts) == 2 and parts[0].isdecimal() and parts[1] == str(broker)
        }


class Change(NamedTuple):
    """Of one option. ``value`` None: that of an operation without one."""

    option: str
    operation: str
    value: str | None = None


def names_of(before: Placement, plan: Placement) -> dict[str, Named]:
    """What a plan names, by topic: those that give, and those that get a replica."""
    found = {}
    for topic, indexes in _by_topic(plan).items():
        leaders, followers = [], []
        for index in indexes:
            old = before.get((topic, index), ())
            fresh = [one for one in plan[topic, index] if one not in old]
            leaders += [f"{index}:{broker}" for broker in old]
            followers += [f"{index}:{broker}" for broker in fresh]
        found[topic] = Named(tuple(leaders), tuple(followers))
    return found


def _part(name: str) -> str:
    return name.split(":", 1)[0]


class Throttles:
    """Those of a cluster."""

    def __init__(self, connection: Connection, admin: ReassignmentAdmin) -> None:
        self._connection = connection
        self._admin = admin
        self._silent: set[str] = set()
        """Brokers whose silence was told."""

    def begin(self, before: Placement, plan: Placement, rate_bytes: int) -> None:
        """Limits the copies of a plan to a rate."""
        self._add(names_of(before, plan))
        self.set_rate(rate_bytes)

    def hold(self, before: Placement, plan: Placement, rate_bytes: int) -> None:
        """Sets again what somebody has taken away of the throttle of these moves."""
        wanted = names_of(before, plan)
        there = self.named(wanted)
        is_lost = any(
            ALL not in own and not set(own).issuperset(names)
            for topic in wanted
            for own, names in zip(there.get(topic, Named()), wanted[topic], strict=True)
        )
        if is_lost:
            self._add(wanted)
        involved = {broker for key in plan for broker in (*before.get(key, ()), *plan[key])}
        if self._lost_rates(involved):
            self.set_rate(rate_bytes)

    def _add(self, wanted: Mapping[str, Named]) -> None:
        """Names these replicas, and no others of their partitions."""
        known = self.named(wanted)
        for topic, names in wanted.items():
            there = known.get(topic, Named())
            mine = {int(_part(one)) for one in (*names.leaders, *names.followers)}
            stale = there.minus(there.without(mine)).minus(names)
            first: list[Change] = []
            then: list[Change] = []
            columns = zip((LEADERS, FOLLOWERS), there, stale, names, strict=True)
            for option, own, gone, new in columns:
                if ALL in own:
                    continue  # brokers take it alone only
                if len(gone) == len(own):
                    # Kafka's brokers append to an empty list what they cannot read then.
                    then += _listing(option, SET, new) or ([Change(option, DELETE)] if own else [])
                else:
                    first += _listing(option, SUBTRACT, gone)
                    then += _listing(option, APPEND, [one for one in new if one not in own])
            self._change(topic, first)
            self._change(topic, then)

    def set_rate(self, rate_bytes: int | None) -> None:
        """The rate of each broker; None takes it away. One that does not answer keeps its own."""
        operation, value = (DELETE, None) if rate_bytes is None else (SET, str(rate_bytes))
        numbers = [str(one.broker_id) for one in self._admin.describe().brokers]
        changes = [Change(option, operation, value) for option in RATES]
        silent = self._set("broker", dict.fromkeys(numbers, changes))
        if len(silent) == len(numbers):
            for refusal in silent.values():
                raise refusal
        for number in sorted(silent.keys() - self._silent):
            note = f"broker {number} does not answer: its rate stays as it is"
            typer.echo(f"note: {note}", err=True)
        self._silent = set(silent)

    def set_fill_rate(self, brokers: Collection[int], rate_bytes: int | None) -> None:
        """The rate of these brokers' back-fills; None: that of their own options again. One that
        does not answer keeps its own."""
        operation, value = (DELETE, None) if rate_bytes is None else (SET, str(rate_bytes))
        change = [Change(FILL_RATE, operation, value)]
        self._set("broker", {str(number): change for number in sorted(brokers)})

    def named(self, topics: Collection[str] | None = None) -> dict[str, Named]:
        """Topics with throttled replicas; None: of all topics."""
        if topics is None:
            topics = {topic for topic, _ in self._admin.placement()[0]}
        request = DescribeConfigsRequest(
            [DescribeConfigsResource(_TOPIC, name, [LEADERS, FOLLOWERS]) for name in sorted(topics)]
        )
        timeout_s = min(self._connection.settings.timeout_s, SILENT_TIMEOUT_S)
        for one in self._admin.describe().brokers:
            try:
                with BrokerConnection((one.host, one.port), timeout_s) as broker:
                    told = broker.ask(DESCRIBE_CONFIGS, _CONFIGS_VERSION, request)
            except OSError:
                continue
            found = {}
            for resource in told.results:
                values = {entry.name: entry.value or "" for entry in resource.configs}
                named = Named(_listed(values.get(LEADERS)), _listed(values.get(FOLLOWERS)))
                if any(named):
                    found[resource.resource_name] = named
            return found
        raise CliError(Problem.NO_BROKER, "no broker tells options of topics", "try again")

    def _lost_rates(self, brokers: Collection[int]) -> list[int]:
        """Brokers without a rate, of those that tell."""
        timeout_s = min(self._connection.settings.timeout_s, SILENT_TIMEOUT_S)

        def ask(one: Any) -> bool:
            resource = DescribeConfigsResource(_BROKER, str(one.broker_id), list(RATES))
            try:
                with BrokerConnection((one.host, one.port), timeout_s) as broker:
                    told = broker.ask(
                        DESCRIBE_CONFIGS, _CONFIGS_VERSION, DescribeConfigsRequest([resource])
                    )
            except OSError:
                return False
            values = {entry.name: entry.value for item in told.results for entry in item.configs}
            is_known = all(item.error_code == 0 for item in told.results)
            return is_known and any(values.get(one) in (None, "", NO_RATE) for one in RATES)

        asked = [one for one in self._admin.describe().brokers if one.broker_id in brokers]
        lost = in_parallel(ask, asked)
        return [one.broker_id for one, is_lost in zip(asked, lost, strict=True) if is_lost]

    def end(
        self,
        partitions: Collection[PartitionKey] | None,
        *,
        sure: Mapping[str, Named] | None = None,
    ) -> None:
        """Takes away what is named for these partitions (None: everything), and the rates if
        nothing is left. ``sure``: what was named, also where a broker does not know that yet."""
        mine = None if partitions is None else _by_topic(partitions)
        self._unname(mine, sure or {})
        # Another plan may have begun meanwhile.
        left = {} if mine is None else self.named()
        if any(any(found.without((mine or {}).get(topic, ()))) for topic, found in left.items()):
            note = "other moves are throttled still, so the brokers' rates stay"
            fix = "`pyrklog cluster reassign cancel --all` takes away whatever is left"
            typer.echo(f"note: {note}; {fix}", err=True)
        else:
            self.set_rate(None)

    def _unname(
        self, mine: Mapping[str, Collection[int]] | None, sure: Mapping[str, Named]
    ) -> None:
        named = self.named()
        if mine is None:
            for topic in named:
                self._change(topic, [Change(LEADERS, DELETE), Change(FOLLOWERS, DELETE)])
            return
        there = {topic for topic, _ in self._admin.placement()[0]} if sure else set()
        topics = (named.keys() | (sure.keys() & there)) & mine.keys()
        touched = []
        for topic in sorted(topics):
            found = named.get(topic, Named())
            known = found.minus(found.without(mine[topic]))
            told = sure.get(topic, Named())
            both = zip((LEADERS, FOLLOWERS), known, told.minus(known), strict=True)
            changes = [
                change for option, *lists in both for change in _listing(option, SUBTRACT, *lists)
            ]
            self._change(topic, changes)
            touched += [topic] if changes else []
        # A list that is empty is no option any more.
        named = self.named(touched) if touched else {}
        for topic in touched:
            stay = named.get(topic, Named()).without(mine[topic])
            columns = zip((LEADERS, FOLLOWERS), stay, strict=True)
            self._change(topic, [Change(option, DELETE) for option, names in columns if not names])

    def end_of(self, broker: int) -> None:
        """Takes away what is named for partitions that a broker has given, and which move no
        more."""
        moving = self._admin.moving()
        found = [
            (topic, index)
            for topic, named in self.named().items()
            for index in sorted(named.partitions_from(broker))
            if (topic, index) not in moving
        ]
        if found:
            self.end(found)

    def _change(self, topic: str, changes: Sequence[Change]) -> None:
        if not changes:
            return
        try:
            silent = self._set("topic", {topic: changes})
        except CliError as error:
            if error.code is Exit.NOT_FOUND:
                return  # deleted meanwhile
            raise
        for refusal in silent.values():
            raise refusal

    def _set(self, kind: str, wanted: Mapping[str, Sequence[Change]]) -> dict[str, CliError]:
        """Changes options; returns what was not answered."""
        from confluent_kafka import KafkaException

        timeout_s = self._connection.settings.timeout_s
        futures = {}
        for name, changes in wanted.items():
            # One call each, as each broker takes its own options only.
            (futures[name],) = self._connection.admin.incremental_alter_configs(
                [_resource(kind, name, changes)], request_timeout=timeout_s
            ).values()
        silent = {}
        for name, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                about = f"throttle of {kind} {name}"
                if exit_code(error.args[0]) not in _SILENT:
                    raise self._connection.explain(error.args[0], about) from None
                silent[name] = cli_error(error.args[0], about)
        return silent


def _resource(kind: str, name: str, changes: Sequence[Change]) -> Any:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entries = [
        ConfigEntry(
            one.option, one.value, incremental_operation=AlterConfigOpType[one.operation.upper()]
        )
        for one in changes
    ]
    return ConfigResource(kind, name, incremental_configs=entries)


def _listing(option: str, operation: str, *lists: Sequence[str]) -> list[Change]:
    """Adds to a list, or takes from it; nothing for no items."""
    items = [one for names in lists for one in names]
    return [Change(option, operation, ",".join(items))] if items else []


def _listed(value: str | None) -> tuple[str, ...]:
    return tuple(one.strip() for one in (value or "").split(",") if one.strip())


def _by_topic(partitions: Iterable[PartitionKey]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
