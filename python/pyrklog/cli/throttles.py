"""Throttles of replication (KIP-73): which replicas they are for, and the rate of each broker.

A topic's options name the replicas, a broker's the rate. Several plans may run at once, on the same
topics: each one sets, and takes away, only what is named for its own partitions. The rates go with
the last replica that is named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import typer

from pyrklog.balance.model import Placement
from pyrklog.base.problems import Problem
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError, Exit, cli_error, exit_code
from pyrklog.cli.reassign_cluster import SILENT_TIMEOUT_S, ReassignmentAdmin
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
ALL = "*"
_TOPIC = 2
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

    def joined(self, more: Named) -> Named:
        """Both. ``*`` stands alone."""
        both = zip(self, more, strict=True)
        return Named(*((ALL,) if ALL in own else (*own, *new) for own, new in both))

    def partitions_from(self, broker: int) -> set[int]:
        """Partitions that the broker gives, or gets."""
        found = [one.split(":") for one in (*self.leaders, *self.followers)]
        return {
            int(parts[0])
            for parts in found
            if len(parts) == 2 and parts[0].isdecimal() and parts[1] == str(broker)
        }


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
        partitions = _by_topic(plan)
        others = self.named(partitions)
        for topic, indexes in partitions.items():
            leaders, followers = [], []
            for index in indexes:
                old = before.get((topic, index), ())
                fresh = [one for one in plan[topic, index] if one not in old]
                leaders += [f"{index}:{broker}" for broker in old]
                followers += [f"{index}:{broker}" for broker in fresh]
            stay = others.get(topic, Named()).without(indexes)
            self._name(topic, stay.joined(Named(tuple(leaders), tuple(followers))))
        self.set_rate(rate_bytes)

    def set_rate(self, rate_bytes: int | None) -> None:
        """The rate of each broker; None takes it away. One that does not answer keeps its own."""
        value = None if rate_bytes is None else str(rate_bytes)
        numbers = [str(one.broker_id) for one in self._admin.describe().brokers]
        silent = self._set("broker", dict.fromkeys(numbers, dict.fromkeys(RATES, value)))
        if len(silent) == len(numbers):
            for refusal in silent.values():
                raise refusal
        for number in sorted(silent.keys() - self._silent):
            note = f"broker {number} does not answer: its rate stays as it is"
            typer.echo(f"note: {note}", err=True)
        self._silent = set(silent)

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

    def end(self, partitions: Collection[PartitionKey] | None, *, is_sure: bool = False) -> None:
        """Takes away what is named for these partitions (None: everything), and the rates if
        nothing is left. ``is_sure``: also where a broker does not know yet that something is."""
        named = self.named()
        mine = {} if partitions is None else _by_topic(partitions)
        left = False
        for topic, found in named.items():
            stay = Named() if partitions is None else found.without(mine.get(topic, ()))
            left = left or any(stay)
            if stay != found:
                self._name(topic, stay)
        if is_sure:
            there = {topic for topic, _ in self._admin.placement()[0]}
            for topic in mine.keys() & there - named.keys():
                self._name(topic, Named())
        if left:
            note = "other moves are throttled still, so the brokers' rates stay"
            fix = "`pyrklog cluster reassign cancel --all` takes away whatever is left"
            typer.echo(f"note: {note}; {fix}", err=True)
        else:
            self.set_rate(None)

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

    def _name(self, topic: str, named: Named) -> None:
        options = {LEADERS: ",".join(named.leaders), FOLLOWERS: ",".join(named.followers)}
        wanted = {name: value or None for name, value in options.items()}
        try:
            silent = self._set("topic", {topic: wanted})
        except CliError as error:
            if error.code is Exit.NOT_FOUND:
                return  # deleted meanwhile
            raise
        for refusal in silent.values():
            raise refusal

    def _set(
        self, kind: str, wanted: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, CliError]:
        """Sets options, or removes them (None); returns what was not answered."""
        from confluent_kafka import KafkaException

        timeout_s = self._connection.settings.timeout_s
        futures = {}
        for name, options in wanted.items():
            # One call each, as each broker takes its own options only.
            (futures[name],) = self._connection.admin.incremental_alter_configs(
                [_resource(kind, name, options)], request_timeout=timeout_s
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


def _resource(kind: str, name: str, options: Mapping[str, str | None]) -> Any:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    delete, put = AlterConfigOpType.DELETE, AlterConfigOpType.SET
    entries = [
        ConfigEntry(option, value, incremental_operation=delete if value is None else put)
        for option, value in options.items()
    ]
    return ConfigResource(kind, name, incremental_configs=entries)


def _listed(value: str | None) -> tuple[str, ...]:
    return tuple(one.strip() for one in (value or "").split(",") if one.strip())


def _by_topic(partitions: Iterable[PartitionKey]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
