from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pyrklog.balance.directories import Directories
from pyrklog.base.problems import Problem
from pyrklog.cli.bootstrap import addresses
from pyrklog.cli.broker_connection import BrokerConnection, Req, Resp
from pyrklog.cli.cluster_requests import plain_only
from pyrklog.cli.cluster_views import min_insync_of
from pyrklog.cli.connection import Connection, PartitionKey
from pyrklog.cli.failures import CliError
from pyrklog.cli.topic_watch import topic_ids
from pyrklog.protocol.api import Api
from pyrklog.protocol.cluster import (
    DESCRIBE_CLUSTER,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from pyrklog.protocol.elections import ELECT_LEADERS, ElectedTopic, ElectLeadersRequest
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.log_dirs import (
    ALTER_REPLICA_LOG_DIRS,
    DESCRIBE_LOG_DIRS,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
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
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_LOG_DIRS_VERSION = 2
_ALTER_DIRS_VERSION = 1
_ELECT_VERSION = 2
"""Since Kafka 2.4, as reassignments."""

ReplicaSizes = Mapping[tuple[str, int, int], int]
"""Bytes by topic, partition and broker."""


def target_of(one: OngoingPartitionReassignment) -> tuple[int, ...]:
    """The replicas at the end of a move."""
    return tuple(broker for broker in one.replicas if broker not in one.removing_replicas)


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

    def origins(self) -> tuple[dict[PartitionKey, tuple[int, ...]], str | None]:
        """The same without the replicas that running moves add: what a cancel would leave."""
        found, cluster_id = self.placement()
        for key, one in self.moving().items():
            if key in found:
                found[key] = tuple(b for b in one.replicas if b not in one.adding_replicas)
        return found, cluster_id

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """By name; without those that no broker tells (Kafka before 2.8)."""
        told = topic_ids(self._connection, sorted(topics)) if topics else {}
        return {name: one for name, one in told.items() if one not in (None, NO_TOPIC_ID)}

    def minimums(self, topics: Collection[str]) -> dict[str, int]:
        """``min.insync.replicas`` of topics."""
        failure: CliError | None = None
        timeout_s = min(self._timeout_s, SILENT_TIMEOUT_S)
        for one in self.describe().brokers:
            try:
                return min_insync_of((one.host, one.port), sorted(topics), timeout_s)
            except CliError as error:
                failure = error
        raise failure or CliError(Problem.NO_BROKER, "no broker tells options of topics")

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

    def place(self, directories: Directories) -> dict[tuple[PartitionKey, int], ErrorCode]:
        """Says which directories replicas are to be in: those that are there begin to move, others
        are made there. Returns the refusals."""
        by_broker: dict[int, dict[str, dict[str, list[int]]]] = {}
        for ((topic, index), number), path in directories.items():
            paths = by_broker.setdefault(number, {})
            paths.setdefault(path, {}).setdefault(topic, []).append(index)
        live = {one.broker_id: (one.host, one.port) for one in self.describe().brokers}
        refused: dict[tuple[PartitionKey, int], ErrorCode] = {}
        for number, paths in sorted(by_broker.items()):
            if number not in live:
                continue  # the controller refuses the partition
            request = AlterReplicaLogDirsRequest(
                [
                    AlterReplicaLogDir(
                        path, [AlterReplicaLogDirTopic(*one) for one in topics.items()]
                    )
                    for path, topics in paths.items()
                ]
            )
            try:
                with BrokerConnection(live[number], self._timeout_s) as broker:
                    told = broker.ask(ALTER_REPLICA_LOG_DIRS, _ALTER_DIRS_VERSION, request)
            except OSError as error:
                raise CliError(Problem.BROKER_AWAY, f"broker {number}: {error}") from None
            for answered in told.results:
                for one in answered.partitions:
                    code = ErrorCode(one.error_code)
                    # A broker without the replica remembers the wish.
                    if code not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                        refused[(answered.topic_name, one.partition_index), number] = code
        return refused

    def astray(self, directories: Directories) -> dict[tuple[PartitionKey, int], bool]:
        """Replicas that are not where ``directories`` wants them; whether they move there. A broker
        that does not answer has them all, and none moves."""
        live = {one.broker_id: (one.host, one.port) for one in self.describe().brokers}
        current: dict[tuple[PartitionKey, int], str] = {}
        future: dict[tuple[PartitionKey, int], str] = {}
        for number in sorted({number for _, number in directories} & live.keys()):
            try:
                with BrokerConnection(live[number], self._timeout_s) as broker:
                    answer = broker.ask(
                        DESCRIBE_LOG_DIRS, _LOG_DIRS_VERSION, DescribeLogDirsRequest()
                    )
            except OSError:
                continue
            for directory in answer.results:
                for topic in directory.topics:
                    for item in topic.partitions:
                        key = (topic.name, item.partition_index), number
                        (future if item.is_future_key else current)[key] = directory.log_dir
        return {
            key: future.get(key) == path
            for key, path in directories.items()
            if current.get(key) != path
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

    def _of_controller(
        self,
        ask: Callable[[BrokerConnection], Any],
        error_of: Callable[[Any], ErrorCode] | None = None,
    ) -> Any:
        """Asks the controller; retries while it moves to another broker, or is late. An error that
        passes counts as out of reach: a command that waits for the cluster waits for that, too."""
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
                    code = (error_of or _error_of)(response)
                    why = getattr(response, "error_message", None) or code.name
                    if code is ErrorCode.NONE:
                        return response
                    if not (code.retriable or code is ErrorCode.BROKER_NOT_AVAILABLE):
                        what = f"the controller refuses: {why}"
                        raise CliError(Problem.REASSIGNMENT_REFUSED, what)
                    is_late = code is ErrorCode.REQUEST_TIMED_OUT
                    problem = Problem.NO_ANSWER if is_late else Problem.BROKER_AWAY
                    failure = CliError(problem, f"the controller, for now: {why}")
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

    def behind(self, besides: Collection[PartitionKey]) -> int:
        """Partitions with replicas out of sync, besides these, which have such while they move."""
        return sum(
            len(partition.isrs) < len(partition.replicas)
            for name, topic in self._connection.metadata().topics.items()
            for index, partition in topic.partitions.items()
            if (name, index) not in besides
        )

    def elect(self, places: Collection[PartitionKey]) -> dict[PartitionKey, ErrorCode]:
        """Has the preferred replicas lead; the errors of those that do not."""
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        request = ElectLeadersRequest(
            topic_partitions=[ElectedTopic(*item) for item in topics.items()],
            timeout_ms=int(self._timeout_s * 1000),
        )
        response = self._of_controller(
            lambda broker: broker.ask(ELECT_LEADERS, _ELECT_VERSION, request), _election_error
        )
        fine = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        return {
            (topic.topic, one.partition_id): ErrorCode(one.error_code)
            for topic in response.replica_election_results
            for one in topic.partition_result
            if one.error_code not in fine
        }


def _error_of(response: Any) -> ErrorCode:
    return ErrorCode(response.error_code)


def _election_error(response: Any) -> ErrorCode:
    """A broker that is not the controller says so for each partition, as Kafka's do."""
    codes = {
        one.error_code
        for topic in response.replica_election_results
        for one in topic.partition_result
    }
    return ErrorCode.NOT_CONTROLLER if ErrorCode.NOT_CONTROLLER in codes else _error_of(response)
