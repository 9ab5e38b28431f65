from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.bootstrap import addresses
from pyrklog.cli.broker_connection import BrokerConnection, Req, Resp
from pyrklog.cli.cluster_requests import plain_only
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError
from pyrklog.cli.reassign_plan import Placement
from pyrklog.protocol.api import Api
from pyrklog.protocol.cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from pyrklog.protocol.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    LIST_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
    ReassignablePartition,
    ReassignableTopic,
)

RETRY_PAUSE_S = 0.2
SILENT_TIMEOUT_S = 3.0
_LOG_DIRS_VERSION = 2
_CONFIGS_VERSION = 1
_TOPIC = 2
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"

ReplicaSizes = Mapping[tuple[str, int, int], int]
"""Bytes by topic, partition and broker."""


class ReassignmentAdmin:
    def __init__(self, connection: Connection) -> None:
        if connection.settings.security_protocol != "plaintext":
            raise plain_only(connection.settings, "kafka-reassign-partitions.sh")
        self._connection = connection
        self._timeout_s = connection.settings.timeout_s
        self._known: list[tuple[str, int]] = []

    def describe(self) -> DescribeClusterResponse:
        errors: list[str] = []
        given = addresses(self._connection.settings.bootstrap)
        # Also known brokers: the bootstrap broker may have died.
        for address in dict.fromkeys([*given, *self._known]):
            try:
                with BrokerConnection(address, self._timeout_s) as broker:
                    found = broker.ask(DESCRIBE_CLUSTER, 0, DescribeClusterRequest())
            except OSError as error:
                errors.append(f"{address[0]}:{address[1]}: {error}")
            else:
                self._known = [(one.host, one.port) for one in found.brokers]
                return found
        raise CliError(Problem.NO_BROKER, "; ".join(errors), "check -b, and that the brokers run")

    def placement(self) -> tuple[dict[PartitionKey, tuple[int, ...]], str | None]:
        """Ordered replicas of all partitions, and the cluster's id."""
        metadata = self._connection.metadata()
        found = {
            (name, index): tuple(partition.replicas)
            for name, topic in metadata.topics.items()
            for index, partition in topic.partitions.items()
        }
        return found, metadata.cluster_id

    def sizes(self, *, without_silent: bool = False) -> ReplicaSizes:
        """Bytes of each replica on the live brokers.

        Raises :class:`CliError` if one does not answer. ``without_silent`` skips it after a shorter
        wait.
        """
        timeout_s = min(self._timeout_s, SILENT_TIMEOUT_S) if without_silent else self._timeout_s
        found: dict[tuple[str, int, int], int] = {}
        for one in self.describe().brokers:
            try:
                with BrokerConnection((one.host, one.port), timeout_s) as broker:
                    answer = broker.ask(
                        DESCRIBE_LOG_DIRS, _LOG_DIRS_VERSION, DescribeLogDirsRequest()
                    )
            except OSError as error:
                if without_silent:
                    continue
                what = f"broker {one.broker_id} at {one.host}:{one.port}: {error}"
                raise CliError(Problem.BROKER_AWAY, what) from None
            for directory in answer.results:
                for topic in directory.topics:
                    for item in topic.partitions:
                        if item.is_future_key:
                            continue
                        key = topic.name, item.partition_index, one.broker_id
                        found[key] = item.partition_size
        return found

    def alter(
        self,
        wanted: Mapping[PartitionKey, Iterable[int] | None],
        at_end: Collection[PartitionKey] = (),
    ) -> dict[PartitionKey, tuple[ErrorCode, str | None]]:
        """Begins reassignments, or cancels them (None); returns a result for each partition. New
        replicas of ``at_end`` start at their leaders' ends."""
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, index), replicas in wanted.items():
            targets = None if replicas is None else list(replicas)
            item = ReassignablePartition(index, targets, (topic, index) in at_end)
            topics.setdefault(topic, []).append(item)
        request = AlterPartitionReassignmentsRequest(
            int(self._timeout_s * 1000), [ReassignableTopic(*item) for item in topics.items()]
        )
        response = self._of_controller(
            lambda broker: broker.ask(ALTER_PARTITION_REASSIGNMENTS, 0, request)
        )
        return {
            (topic.name, one.partition_index): (ErrorCode(one.error_code), one.error_message)
            for topic in response.responses
            for one in topic.partitions
        }

    def moving(self) -> dict[PartitionKey, OngoingPartitionReassignment]:
        request = ListPartitionReassignmentsRequest(int(self._timeout_s * 1000))
        response = self._of_controller(
            lambda broker: broker.ask(LIST_PARTITION_REASSIGNMENTS, 0, request)
        )
        return {
            (topic.name, one.partition_index): one
            for topic in response.topics
            for one in topic.partitions
        }

    def _of_controller(self, ask: Callable[[BrokerConnection], Any]) -> Any:
        """Asks the controller; retries while it moves to another broker."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            described = self.describe()
            place = [b for b in described.brokers if b.broker_id == described.controller_id]
            failure = CliError(Problem.BROKER_AWAY, "there is no controller")
            if place:
                try:
                    address = (place[0].host, place[0].port)
                    with BrokerConnection(address, self._timeout_s) as broker:
                        response = ask(broker)
                except OSError as error:
                    what = f"the controller, broker {described.controller_id}: {error}"
                    failure = CliError(Problem.BROKER_AWAY, what)
                else:
                    code, why = ErrorCode(response.error_code), response.error_message
                    if code is ErrorCode.NONE:
                        return response
                    failure = CliError(
                        Problem.REASSIGNMENT_REFUSED, f"the controller refuses: {why or code.name}"
                    )
                    if code is not ErrorCode.NOT_CONTROLLER:
                        raise failure
            if time.monotonic() > deadline:
                raise failure
            time.sleep(RETRY_PAUSE_S)

    def leaders(self) -> dict[PartitionKey, int]:
        """Who leads each partition; -1: nobody."""
        return {
            (name, index): partition.leader
            for name, topic in self._connection.metadata().topics.items()
            for index, partition in topic.partitions.items()
        }

    def ask_each(
        self, api: Api[Req, Resp], version: int, requests: Mapping[int, Req]
    ) -> dict[int, Resp]:
        """Answers of live brokers by their numbers, without those that are silent."""
        timeout_s = min(self._timeout_s, SILENT_TIMEOUT_S)
        found: dict[int, Resp] = {}
        for one in self.describe().brokers:
            if one.broker_id not in requests:
                continue
            try:
                with BrokerConnection((one.host, one.port), timeout_s) as broker:
                    found[one.broker_id] = broker.ask(api, version, requests[one.broker_id])
            except OSError:
                continue
        return found

    def throttle(self, before: Placement, plan: Placement, rate_bytes: int) -> None:
        """Limits only the copies of a plan to a rate (KIP-73)."""
        leaders: dict[str, list[str]] = {}
        followers: dict[str, list[str]] = {}
        for (topic, index), replicas in plan.items():
            old = before.get((topic, index), ())
            leaders.setdefault(topic, []).extend(f"{index}:{broker}" for broker in old)
            fresh = [f"{index}:{broker}" for broker in replicas if broker not in old]
            followers.setdefault(topic, []).extend(fresh)
        for topic in leaders:
            options = {_LEADERS: ",".join(leaders[topic]), _FOLLOWERS: ",".join(followers[topic])}
            self._set("topic", topic, options)
        for one in self.describe().brokers:
            self._set("broker", str(one.broker_id), dict.fromkeys(_RATES, str(rate_bytes)))

    def throttled_topics(self) -> set[str]:
        topics = sorted({topic for topic, _ in self.placement()[0]})
        request = DescribeConfigsRequest(
            [DescribeConfigsResource(_TOPIC, name, [_LEADERS, _FOLLOWERS]) for name in topics]
        )
        timeout_s = min(self._timeout_s, SILENT_TIMEOUT_S)
        for one in self.describe().brokers:
            try:
                with BrokerConnection((one.host, one.port), timeout_s) as broker:
                    found = broker.ask(DESCRIBE_CONFIGS, _CONFIGS_VERSION, request)
            except OSError:
                continue
            return {
                resource.resource_name
                for resource in found.results
                for entry in resource.configs
                if entry.value
            }
        raise CliError(Problem.NO_BROKER, "no broker tells options of topics", "try again")

    def unthrottle(self, topics: Collection[str]) -> None:
        for topic in topics:
            self._set("topic", topic, {_LEADERS: None, _FOLLOWERS: None})
        for one in self.describe().brokers:
            self._set("broker", str(one.broker_id), dict.fromkeys(_RATES))

    def _set(self, kind: str, name: str, options: Mapping[str, str | None]) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entries = [
            ConfigEntry(
                option,
                value,
                incremental_operation=(
                    AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
                ),
            )
            for option, value in options.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        (future,) = self._connection.admin.incremental_alter_configs(
            [resource], request_timeout=self._timeout_s
        ).values()
        try:
            future.result()
        except KafkaException as error:
            raise self._connection.explain(error.args[0], f"throttle of {kind} {name}") from None
