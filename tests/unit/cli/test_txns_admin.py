"""Questions about transactions to a made-up cluster, whose leaders and coordinators move."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pyrklog.cli.cluster_requests import Address, NotServedError
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.txns_admin import Marker, TransactionAdmin
from pyrklog.protocol.api import Api
from pyrklog.protocol.coordinators import (
    FIND_COORDINATOR,
    KEY_TRANSACTION,
    Coordinator,
    FindCoordinatorResponse,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from pyrklog.protocol.producer_ids import INIT_PRODUCER_ID, InitProducerIdResponse
from pyrklog.protocol.transaction_admin import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeProducersPartitionResult,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsResponse,
    ProducerState,
    TransactionState,
)
from pyrklog.protocol.transactions import (
    WRITE_TXN_MARKERS,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

FIRST, SECOND = ("a", 1), ("b", 2)
LOADING = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
MOVED = int(ErrorCode.NOT_COORDINATOR)
NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
STATE = TransactionState(0, "id", "Ongoing", 60_000, 5, 7, 0, [])


class FakeCluster:
    """Stands for :class:`ClusterRequests`. ``answers`` gives an API's answers in turn, the last
    one for ever."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Address | None, Any]] = []
        self.leaders = [{("t", 0): 1, ("t", 1): 2}]
        self.waits = 10
        self.list_version = 1

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        leaders = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
        brokers = [MetadataBroker(1, *FIRST), MetadataBroker(2, *SECOND)]
        names = {topic for topic, _ in leaders} if topics is None else set(topics)
        found = []
        for name in sorted(names):
            partitions = [
                MetadataPartition(0, index, leader, 0, [1, 2], [1, 2], [])
                for (topic, index), leader in leaders.items()
                if topic == name
            ]
            code = 0 if partitions else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            found.append(MetadataTopic(code, name, False, partitions))
        return MetadataResponse(0, brokers, "cluster", 1, found)

    def ask(self, address: Address | None, api: Api[Any, Any], request: Any) -> Any:
        self.asked.append((api.name, address, request))
        if api.name not in self.answers:
            raise NotServedError(api.name, "the broker")
        told = self.answers[api.name]
        answer = told.pop(0) if len(told) > 1 else told[0]
        return answer(address, request) if callable(answer) else answer

    def ask_any(self, api: Api[Any, Any], request: Any) -> Any:
        return self.ask(None, api, request)

    def version(self, _address: Address, api: Api[Any, Any]) -> int:
        assert api is LIST_TRANSACTIONS
        return self.list_version

    def wait(self) -> bool:
        self.waits -= 1
        return self.waits > 0

    def addresses(self, api: Api[Any, Any]) -> list[Address | None]:
        return [address for name, address, _ in self.asked if name == api.name]


def admin(cluster: Any) -> TransactionAdmin:
    return TransactionAdmin(cluster)


def coordinated_by(address: Address, number: int) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[Coordinator("id", number, *address)])


# --- coordinators --------------------------------------------------------------------------------


def listed(address: Address, _request: Any) -> ListTransactionsResponse:
    name = "z" if address == FIRST else "y"
    return ListTransactionsResponse(transaction_states=[ListedTransaction(name, 7, "Empty")])


def test_all_coordinators_list_theirs() -> None:
    cluster = FakeCluster(ListTransactions=[ListTransactionsResponse(0, LOADING), listed])
    found = admin(cluster).listed(["Empty"], [7], 5)
    assert [(one.coordinator, one.listed.transactional_id) for one in found] == [(2, "y"), (1, "z")]
    assert cluster.addresses(LIST_TRANSACTIONS) == [FIRST, FIRST, SECOND]
    request = cluster.asked[0][2]
    assert (request.state_filters, request.producer_id_filters) == (["Empty"], [7])
    assert request.duration_filter == 5


def test_a_coordinator_that_loads_for_ever() -> None:
    cluster = FakeCluster(ListTransactions=[ListTransactionsResponse(0, LOADING)])
    with pytest.raises(CliError, match="cannot list transactions"):
        admin(cluster).listed()


def test_old_brokers_cannot_tell_long_transactions() -> None:
    cluster = FakeCluster(ListTransactions=[listed])
    cluster.list_version = 0
    assert len(admin(cluster).listed()) == 2
    with pytest.raises(CliError, match="cannot tell long transactions"):
        admin(cluster).listed(longer_than_ms=5)


def described(address: Address, request: Any) -> DescribeTransactionsResponse:
    """The second broker coordinates the id, the first one no longer."""
    code = MOVED if address == FIRST else 0
    states = [
        TransactionState(
            code if name == "id" else int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
            *(name, "Ongoing", 60_000, 5, 7, 0, []),
        )
        for name in request.transactional_ids
    ]
    return DescribeTransactionsResponse(0, states)


def test_a_coordinator_that_moves_is_looked_for_again() -> None:
    first, second = coordinated_by(FIRST, 1), coordinated_by(SECOND, 2)
    cluster = FakeCluster(
        FindCoordinator=[FindCoordinatorResponse(error_code=LOADING), first, first, second],
        DescribeTransactions=[described],
    )
    found, unknown = admin(cluster).described(["id", "none", "id"])
    assert [(one.coordinator, one.state.transactional_id) for one in found] == [(2, "id")]
    assert unknown == ["none"]
    assert cluster.addresses(DESCRIBE_TRANSACTIONS) == [FIRST, SECOND]
    asked = cluster.asked[0][2]
    assert (asked.key, asked.coordinator_keys) == ("id", ["id"])
    assert asked.key_type == KEY_TRANSACTION


def test_a_coordinator_of_brokers_before_version_4() -> None:
    told = FindCoordinatorResponse(node_id=2, host="b", port=2)
    found = admin(FakeCluster(FindCoordinator=[told])).coordinator("id")
    assert found == (2, SECOND)


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        (ErrorCode.UNSUPPORTED_VERSION, Exit.FAILED, "transactional id a"),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Exit.DENIED, "transactional id a"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Exit.UNREACHABLE, "transactional id a"),
    ],
)
def test_an_id_without_a_coordinator(code: ErrorCode, exit_code: Exit, said: str) -> None:
    cluster = FakeCluster(FindCoordinator=[FindCoordinatorResponse(error_code=int(code))])
    with pytest.raises(CliError, match=said) as caught:
        admin(cluster).described(["a"])
    assert caught.value.code is exit_code
    assert cluster.addresses(FIND_COORDINATOR)


def test_a_producer_is_fenced_once_its_transaction_is_over() -> None:
    busy = InitProducerIdResponse(0, int(ErrorCode.CONCURRENT_TRANSACTIONS))
    cluster = FakeCluster(
        FindCoordinator=[coordinated_by(FIRST, 1)],
        InitProducerId=[busy, InitProducerIdResponse(0, MOVED), busy, InitProducerIdResponse()],
    )
    admin(cluster).fence(STATE)
    assert len(cluster.addresses(INIT_PRODUCER_ID)) == 4
    request = cluster.asked[-1][2]
    assert (request.transactional_id, request.transaction_timeout_ms) == ("id", 60_000)
    assert request.producer_id == -1
    cluster.answers["InitProducerId"] = [
        InitProducerIdResponse(0, int(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
    ]
    with pytest.raises(CliError, match="transactional id id"):
        admin(cluster).fence(STATE)


# --- leaders -------------------------------------------------------------------------------------


def knowing(*moved: Address) -> Callable[[Address, Any], DescribeProducersResponse]:
    """Leaders that know one producer, the offset of its transaction being the partition; those at
    ``moved`` lead no more."""

    def answer(address: Address, request: Any) -> DescribeProducersResponse:
        topics = []
        for topic in request.topics:
            partitions = [
                DescribeProducersPartitionResult(
                    index,
                    NOT_LEADER if address in moved else 0,
                    None,
                    [ProducerState(7, 0, current_txn_start_offset=index)],
                )
                for index in topic.partition_indexes
            ]
            topics.append(DescribeProducersTopicResult(topic.name, partitions))
        return DescribeProducersResponse(0, topics)

    return answer


def test_leaders_tell_their_producers() -> None:
    cluster = FakeCluster(DescribeProducers=[knowing()])
    found = dict(admin(cluster).producers({}))
    assert {
        key: [one.current_txn_start_offset for one in known] for key, known in found.items()
    } == {
        ("t", 0): [0],
        ("t", 1): [1],
    }
    assert cluster.addresses(DESCRIBE_PRODUCERS) == [FIRST, SECOND]
    assert list(dict(admin(cluster).producers({"t": [1]}))) == [("t", 1)]


def test_a_leader_that_moves_is_asked_again() -> None:
    cluster = FakeCluster(DescribeProducers=[knowing(FIRST), knowing()])
    cluster.leaders = [{("t", 0): 1}, {("t", 0): -1}, {("t", 0): 2}]
    assert list(dict(admin(cluster).producers({"t": []}))) == [("t", 0)]
    assert cluster.addresses(DESCRIBE_PRODUCERS) == [FIRST, SECOND]


def test_a_topic_that_goes_meanwhile_is_left_out() -> None:
    cluster = FakeCluster(DescribeProducers=[knowing(FIRST)])
    cluster.leaders = [{("t", 0): 1, ("u", 0): 2}, {("u", 0): 2}]
    assert list(dict(admin(cluster).producers({}))) == [("u", 0)]


def test_partitions_without_a_leader() -> None:
    cluster = FakeCluster(DescribeProducers=[knowing()])
    cluster.leaders = [{("t", 0): -1, ("t", 1): 2}]
    asking = admin(cluster)
    assert list(dict(asking.producers({}))) == [("t", 1)]
    assert asking.without_leader == [("t", 0)]
    cluster.waits = 3
    with pytest.raises(CliError, match=r"t \[0\]") as caught:
        dict(asking.producers({"t": [0]}))
    assert caught.value.code is Exit.UNREACHABLE


def test_a_replica_is_asked_instead() -> None:
    cluster = FakeCluster(DescribeProducers=[knowing()])
    assert list(dict(admin(cluster).producers({}, 2))) == [("t", 0), ("t", 1)]
    assert cluster.addresses(DESCRIBE_PRODUCERS) == [SECOND]
    with pytest.raises(CliError, match="no broker 3 is alive"):
        dict(admin(cluster).producers({}, 3))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [({"nothing": []}, "topic nothing does not exist"), ({"t": [5]}, "has no partition 5")],
)
def test_what_does_not_exist(wanted: dict[str, list[int]], said: str) -> None:
    with pytest.raises(CliError, match=said) as caught:
        dict(admin(FakeCluster(DescribeProducers=[knowing()])).producers(wanted))
    assert caught.value.code is Exit.NOT_FOUND


def marked(code: int) -> WriteTxnMarkersResponse:
    topics = [WritableTxnMarkerTopicResult("t", [WritableTxnMarkerPartitionResult(0, code)])]
    return WriteTxnMarkersResponse([WritableTxnMarkerResult(7, topics)])


def test_an_abort_marker_goes_to_the_leader() -> None:
    cluster = FakeCluster(WriteTxnMarkers=[marked(NOT_LEADER), marked(0)])
    cluster.leaders = [{("t", 0): 1}, {("t", 0): 2}]
    admin(cluster).write_abort(("t", 0), Marker(7, 3, -1))
    assert cluster.addresses(WRITE_TXN_MARKERS) == [FIRST, SECOND]
    (written,) = cluster.asked[-1][2].markers
    assert (written.producer_id, written.producer_epoch) == (7, 3)
    assert (written.coordinator_epoch, written.transaction_result) == (0, False)
    assert (written.topics[0].name, written.topics[0].partition_indexes) == ("t", [0])


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, None])
def test_a_marker_that_is_refused(code: ErrorCode | None) -> None:
    answer = WriteTxnMarkersResponse([]) if code is None else marked(int(code))
    with pytest.raises(CliError, match=r"t \[0\]: ") as caught:
        admin(FakeCluster(WriteTxnMarkers=[answer])).write_abort(("t", 0), Marker(7, 3, 1))
    assert caught.value.code is Exit.FAILED


def test_a_cluster_without_transactions() -> None:
    for ask in (
        lambda one: one.listed(),
        lambda one: one.described(["id"]),
        lambda one: dict(one.producers({})),
        lambda one: one.write_abort(("t", 0), Marker(7, 3, 1)),
    ):
        with pytest.raises(CliError, match="serves no such request about transactions") as caught:
            ask(admin(FakeCluster()))
        assert caught.value.fix is not None
