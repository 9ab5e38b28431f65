"""Asks about transactions, and ends them, on any Kafka cluster (KIP-664; fencing as by KIP-618)."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pyrklog.base.problems import Problem
from pyrklog.cli.cluster_requests import (
    Address,
    ClusterRequests,
    NotServedError,
    broker_addresses,
    error_code,
    refused,
)
from pyrklog.cli.connection import PartitionKey, missing_topic
from pyrklog.cli.failures import CliError, missing_partition
from pyrklog.cli.output import cell
from pyrklog.protocol.api import Api
from pyrklog.protocol.coordinators import (
    FIND_COORDINATOR,
    KEY_TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.fields import Message
from pyrklog.protocol.metadata import NO_LEADER, MetadataPartition, MetadataTopic
from pyrklog.protocol.producer_ids import INIT_PRODUCER_ID, InitProducerIdRequest
from pyrklog.protocol.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    NO_DURATION,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListedTransaction,
    ListTransactionsRequest,
    ProducerState,
    TransactionState,
)
from pyrklog.protocol.transactions import (
    WRITE_TXN_MARKERS,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Kafka's, of transactional ids."""
PARTITIONS_MAX = 1000
"""Partitions of one request."""
IDS_MAX = 1000
"""Transactional ids of one request."""
_COORDINATOR_PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_LEADER_PASSING = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Also of a leader that does not know it yet."""
_LIST_WITH_DURATION = 1

T = TypeVar("T")
Req = TypeVar("Req", bound=Message)
Resp = TypeVar("Resp", bound=Message)


class Coordinated(NamedTuple):
    """A transactional id as its coordinator lists it."""

    coordinator: int
    listed: ListedTransaction


class Described(NamedTuple):
    coordinator: int
    state: TransactionState


class Marker(NamedTuple):
    """Whose transaction an abort marker ends."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class TransactionAdmin:
    def __init__(self, requests: ClusterRequests) -> None:
        self._requests = requests
        self.without_leader: list[PartitionKey] = []
        """Partitions that :meth:`producers` could not look at."""

    def listed(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = NO_DURATION,
    ) -> list[Coordinated]:
        """All transactional ids, as their coordinators list them, by id."""
        request = ListTransactionsRequest(list(states), list(producer_ids), longer_than_ms)
        found: list[Coordinated] = []
        for number, address in sorted(self._brokers().items()):
            self._refuse_without_durations(address, longer_than_ms)
            found += [Coordinated(number, one) for one in self._listed_by(address, request)]
        return sorted(found, key=lambda one: one.listed.transactional_id)

    def _refuse_without_durations(self, address: Address, longer_than_ms: int) -> None:
        if longer_than_ms == NO_DURATION:
            return
        if self._version(address, LIST_TRANSACTIONS) < _LIST_WITH_DURATION:
            what = f"the broker at {address[0]}:{address[1]} cannot tell long transactions"
            raise CliError(Problem.NOT_SERVED, what, "leave --longer-than out; Kafka can since 3.8")

    def _listed_by(
        self, address: Address, request: ListTransactionsRequest
    ) -> list[ListedTransaction]:
        while True:
            told = self._ask(address, LIST_TRANSACTIONS, request)
            code = error_code(told.error_code)
            if code is ErrorCode.NONE:
                return told.transaction_states
            if code not in _COORDINATOR_PASSING or not self._requests.wait():
                raise refused("cannot list transactions", code)

    def described(self, ids: Iterable[str]) -> tuple[list[Described], list[str]]:
        """What coordinators know about these ids, and the ids that they do not know."""
        found: dict[str, Described] = {}
        unknown: list[str] = []
        left = list(dict.fromkeys(ids))
        while left:
            passing: list[str] = []
            for (number, address), asked in self._by_coordinator(left).items():
                for chunk in _chunks(asked, IDS_MAX):
                    request = DescribeTransactionsRequest(chunk)
                    told = self._ask(address, DESCRIBE_TRANSACTIONS, request)
                    for one in told.transaction_states:
                        code = error_code(one.error_code)
                        if code is ErrorCode.NONE:
                            found[one.transactional_id] = Described(number, one)
                        elif code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                            unknown.append(one.transactional_id)
                        elif code in _COORDINATOR_PASSING:
                            passing.append(one.transactional_id)
                        else:
                            raise refused(_about(one.transactional_id), code)
            left = passing
            if left and not self._requests.wait():
                raise refused(_about(left[0]), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return [found[one] for one in sorted(found)], unknown

    def _by_coordinator(self, ids: Sequence[str]) -> dict[tuple[int, Address], list[str]]:
        found: dict[tuple[int, Address], list[str]] = {}
        for one in ids:
            found.setdefault(self.coordinator(one), []).append(one)
        return found

    def coordinator(self, transactional_id: str) -> tuple[int, Address]:
        """The number and address of the broker that coordinates the id."""
        request = FindCoordinatorRequest(
            key=transactional_id, key_type=KEY_TRANSACTION, coordinator_keys=[transactional_id]
        )
        while True:
            told = self._any(FIND_COORDINATOR, request)
            number, address, code = _first_coordinator(told)
            if code is ErrorCode.NONE:
                return number, address
            if code not in _COORDINATOR_PASSING or not self._requests.wait():
                raise refused(_about(transactional_id), code)

    def producers(
        self, wanted: Mapping[str, Sequence[int]], broker: int | None = None
    ) -> Iterator[tuple[PartitionKey, list[ProducerState]]]:
        """The producers of partitions (empty: all of a topic; no topics: all), as their leaders
        know them, or this broker for its replicas.

        Partitions without a leader are asked for until the timeout; named ones are an error then,
        others are in :attr:`without_leader`.
        """
        places = self._places(wanted, broker)
        while places:
            passing: list[PartitionKey] = []
            for address, keys in _by_address(places).items():
                for chunk in _chunks(keys, PARTITIONS_MAX):
                    for key, told in self._producers_at(address, chunk):
                        code = error_code(told.error_code)
                        if code is ErrorCode.NONE:
                            yield key, told.active_producers
                        elif address is None or code in _LEADER_PASSING:
                            passing.append(key)
                        else:
                            raise refused(_place(key), code, told.error_message)
            if passing and not self._requests.wait():
                self._give_up(passing, wanted)
                return
            left = set(passing)
            again = self._places(wanted, broker) if left else {}
            places = {key: address for key, address in again.items() if key in left}

    def _give_up(self, keys: list[PartitionKey], wanted: Mapping[str, Sequence[int]]) -> None:
        if wanted:
            raise refused(_place(keys[0]), ErrorCode.LEADER_NOT_AVAILABLE)
        self.without_leader = sorted(keys)

    def _producers_at(
        self, address: Address | None, keys: Sequence[PartitionKey]
    ) -> Iterator[tuple[PartitionKey, DescribeProducersPartitionResult]]:
        if address is None:
            code = ErrorCode.LEADER_NOT_AVAILABLE
            for key in keys:
                yield key, DescribeProducersPartitionResult(key[1], code)
            return
        topics: dict[str, list[int]] = {}
        for name, index in keys:
            topics.setdefault(name, []).append(index)
        asked = [DescribeProducersTopic(*item) for item in topics.items()]
        told = self._ask(address, DESCRIBE_PRODUCERS, DescribeProducersRequest(asked))
        for topic in told.topics:
            for one in topic.partitions:
                yield (topic.name, one.partition_index), one

    def _places(
        self, wanted: Mapping[str, Sequence[int]], broker: int | None
    ) -> dict[PartitionKey, Address | None]:
        """Where to ask for each partition; None without a leader."""
        metadata = self._requests.metadata(wanted or None)
        brokers = broker_addresses(metadata)
        if broker is not None and broker not in brokers:
            known = ", ".join(map(str, sorted(brokers)))
            raise CliError(
                Problem.BROKER_NOT_FOUND, f"no broker {broker} is alive", f"brokers alive: {known}"
            )
        found: dict[PartitionKey, Address | None] = {}
        for topic in metadata.topics:
            for one in self._chosen(topic, wanted):
                if broker is not None and broker not in one.replica_nodes:
                    continue
                asked = one.leader_id if broker is None else broker
                address = None if asked == NO_LEADER else brokers.get(asked)
                found[topic.name, one.partition_index] = address
        return found

    def _chosen(
        self, topic: MetadataTopic, wanted: Mapping[str, Sequence[int]]
    ) -> list[MetadataPartition]:
        code = error_code(topic.error_code)
        if wanted and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            names = [one.name for one in self._requests.metadata().topics]
            raise missing_topic(topic.name, names)
        if wanted and code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise refused(f"topic {cell(topic.name)}", code)
        indices = wanted.get(topic.name, ())
        known = {one.partition_index: one for one in topic.partitions}
        for index in indices:
            if index not in known:
                raise missing_partition(topic.name, index, len(known))
        return [known[index] for index in indices or sorted(known)]

    def fence(self, state: TransactionState) -> None:
        """Aborts an id's transaction as a new producer of it does; returns once it is over."""
        request = InitProducerIdRequest(state.transactional_id, state.transaction_timeout_ms)
        while True:
            _, address = self.coordinator(state.transactional_id)
            told = self._ask(address, INIT_PRODUCER_ID, request)
            code = error_code(told.error_code)
            if code is ErrorCode.NONE:
                return
            passing = (*_COORDINATOR_PASSING, ErrorCode.CONCURRENT_TRANSACTIONS)
            if code not in passing or not self._requests.wait():
                raise refused(_about(state.transactional_id), code)

    def write_abort(self, key: PartitionKey, marker: Marker) -> None:
        """Writes an abort marker into a partition, past the coordinator."""
        topics = [WritableTxnMarkerTopic(key[0], [key[1]])]
        # A transaction without a marker before it has coordinator epoch -1; brokers take 0.
        epoch = max(0, marker.coordinator_epoch)
        written = WritableTxnMarker(marker.producer_id, marker.producer_epoch, False, topics, epoch)
        while True:
            address = self._places({key[0]: [key[1]]}, None)[key]
            code = ErrorCode.LEADER_NOT_AVAILABLE
            if address is not None:
                told = self._ask(address, WRITE_TXN_MARKERS, WriteTxnMarkersRequest([written]))
                codes = [
                    one.error_code
                    for result in told.markers
                    for topic in result.topics
                    for one in topic.partitions
                ]
                code = error_code(codes[0]) if codes else ErrorCode.UNKNOWN_SERVER_ERROR
            if code is ErrorCode.NONE:
                return
            if code not in _LEADER_PASSING or not self._requests.wait():
                raise refused(_place(key), code)

    def _brokers(self) -> dict[int, Address]:
        return broker_addresses(self._requests.metadata(()))

    def _ask(self, address: Address, api: Api[Req, Resp], request: Req) -> Resp:
        try:
            return self._requests.ask(address, api, request)
        except NotServedError as error:
            raise _without_transactions(error.what) from None

    def _any(self, api: Api[Req, Resp], request: Req) -> Resp:
        try:
            return self._requests.ask_any(api, request)
        except NotServedError as error:
            raise _without_transactions(error.what) from None

    def _version(self, address: Address, api: Api[Any, Any]) -> int:
        try:
            return self._requests.version(address, api)
        except NotServedError as error:
            raise _without_transactions(error.what) from None


def _without_transactions(why: str) -> CliError:
    what = f"this cluster serves no such request about transactions: {why}"
    return CliError(Problem.NOT_SERVED, what, "Apache Kafka serves them since 3.0")


def _first_coordinator(told: FindCoordinatorResponse) -> tuple[int, Address, ErrorCode]:
    """The one asked for; version 4 and later have a list."""
    if told.coordinators:
        one = told.coordinators[0]
        return one.node_id, (one.host, one.port), error_code(one.error_code)
    return told.node_id, (told.host, told.port), error_code(told.error_code)


def _by_address(
    places: Mapping[PartitionKey, Address | None],
) -> dict[Address | None, list[PartitionKey]]:
    found: dict[Address | None, list[PartitionKey]] = {}
    for key, address in places.items():
        found.setdefault(address, []).append(key)
    return found


def _chunks(items: Sequence[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def _about(transactional_id: str) -> str:
    return f"transactional id {cell(transactional_id)}"


def _place(key: PartitionKey) -> str:
    return f"{cell(key[0])} [{key[1]}]"


def now_ms() -> int:
    return time.time_ns() // 1_000_000
