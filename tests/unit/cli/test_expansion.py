"""Which partitions new brokers get, and what their replicas still lack."""

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrklog.balance.model import Broker, Cluster, Partition
from pyrklog.cli.connection import PartitionKey
from pyrklog.cli.expansion import (
    BACK_FILL,
    RETENTION,
    Backlog,
    backlogs,
    choose,
    from_the_end,
    lacking,
    why_copied,
)
from pyrklog.cli.failures import CliError, Exit
from pyrklog.protocol.cluster import DescribeClusterBroker, DescribeClusterResponse
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pyrklog.protocol.reassignments import OngoingPartitionReassignment

GB = 10**9


def chosen(
    current: dict[PartitionKey, tuple[int, ...]], fresh: Collection[int], size: int = GB
) -> dict[PartitionKey, tuple[int, ...]]:
    """Of a cluster with the brokers 1 to 4."""
    brokers = {number: Broker(number) for number in range(1, 5)}
    partitions = {key: Partition(replicas, size) for key, replicas in current.items()}
    plan = choose(Cluster(brokers, partitions), fresh, partitions.keys())
    return dict(plan.changed)


def topic(*replicas: tuple[int, ...], name: str = "t") -> dict[PartitionKey, tuple[int, ...]]:
    return {(name, index): members for index, members in enumerate(replicas)}


def test_new_broker_gets_its_share_and_the_others_exchange_nothing() -> None:
    current = topic(*[(1, 2), (2, 3), (3, 1)] * 4)
    plan = chosen(current, [4])
    assert len(plan) == 6
    for place, replicas in plan.items():
        assert set(replicas) - set(current[place]) == {4}


@given(
    st.lists(
        st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True), min_size=1, max_size=30
    ),
    st.sets(st.integers(1, 4), min_size=1, max_size=2),
)
def test_only_new_brokers_get_replicas(placed: list[list[int]], fresh: set[int]) -> None:
    current = topic(*map(tuple, placed))
    for place, replicas in chosen(current, fresh, 0).items():
        added = set(replicas) - set(current[place])
        assert added
        assert added <= fresh
        assert len(replicas) == len(set(replicas)) == len(current[place])


def test_partitions_of_dead_brokers_stay() -> None:
    current = topic(*[(1, 9)] * 4) | topic(*[(1,), (2,)] * 4, name="u")
    assert {name for name, _ in chosen(current, [3])} == {"u"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "1000"}, None),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "7"}, None),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, "retention"),
        ({"cleanup.policy": "compact", "retention.ms": "1000"}, "compacted"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "1000"}, "compacted"),
    ],
)
def test_copied_in_any_case(options: dict[str, str | None], expected: str | None) -> None:
    found = why_copied(options, is_filled=False)
    assert found is None if expected is None else expected in (found or "")
    if expected == "retention":
        assert why_copied(options, is_filled=True) is None


@pytest.mark.parametrize(
    ("start", "leader_start", "left"), [(7, 3, 4), (3, 3, 0), (2, 3, 0), (None, 3, 0), (7, None, 0)]
)
def test_partial_means_above_the_leaders_start(
    start: int | None, leader_start: int | None, left: int
) -> None:
    backlog = Backlog(4, start, leader_start, RETENTION)
    assert backlog.records_left == left
    assert backlog.is_partial == (left > 0)


class FakeAdmin:
    """Stands for :class:`ReassignmentAdmin`. ``starts``: log starts by broker."""

    def __init__(self, starts: dict[int, int]) -> None:
        self.starts = starts
        self.retention_ms = "1000"
        self.old: set[int] = set()
        self.filling: set[int] = set()
        self.silent: set[int] = set()

    def describe(self) -> DescribeClusterResponse:
        brokers = [DescribeClusterBroker(number, "h", 1) for number in (1, 2, 3, 4)]
        return DescribeClusterResponse(controller_id=1, cluster_id="c", brokers=brokers)

    def leaders(self) -> dict[PartitionKey, int]:
        return {("t", 0): 1}

    def ask_each(self, api: Any, _version: int, requests: dict[int, Any]) -> dict[int, Any]:
        return {
            broker: self._answer(api, broker, request)
            for broker, request in requests.items()
            if broker not in self.silent
        }

    def _answer(self, api: Any, broker: int, request: Any) -> Any:
        if api is DESCRIBE_CONFIGS and request.resources[0].resource_type == 4:
            assert request.resources[0].resource_name == str(broker)
            rate = "20000000" if broker in self.filling else "0"
            option = DescribeConfigsResourceResult("pyrklog.expansion.rate", rate, True)
            configs = [] if broker in self.old else [option]
            result = DescribeConfigsResult(0, None, 4, str(broker), configs)
            return DescribeConfigsResponse(results=[result])
        if api is DESCRIBE_CONFIGS:
            values = {"cleanup.policy": "delete", "retention.ms": self.retention_ms}
            configs = [
                DescribeConfigsResourceResult(name, value, False) for name, value in values.items()
            ]
            return DescribeConfigsResponse(
                results=[
                    DescribeConfigsResult(0, None, 2, one.resource_name, configs)
                    for one in request.resources
                ]
            )
        assert api is LIST_OFFSETS
        assert request.replica_id == -2, "a follower tells of its log only then"
        code = 0 if broker in self.starts else int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition = ListOffsetsPartitionResponse(0, code, offset=self.starts.get(broker, -1))
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [partition])])


MOVING = {("t", 0): OngoingPartitionReassignment(0, [1, 2, 3, 4], [3, 4], [2])}


def test_backlogs_of_new_replicas() -> None:
    admin: Any = FakeAdmin({1: 100, 3: 130, 4: 100})
    assert backlogs(admin, MOVING) == {
        ("t", 0): [Backlog(3, 130, 100, RETENTION), Backlog(4, 100, 100, RETENTION)]
    }
    assert lacking(admin, MOVING) == {
        ("t", 0): {
            "partial": [
                {
                    "broker": 3,
                    "start": 130,
                    "leader_start": 100,
                    "records_left": 30,
                    "by": RETENTION,
                }
            ],
            "lacks": "3: 30 below 130, until retention deletes them",
        }
    }
    admin.retention_ms = "-1"
    assert lacking(admin, MOVING)["t", 0]["lacks"] == "3: 30 below 130, and nothing ends it"
    admin.filling = {3}
    assert lacking(admin, MOVING)["t", 0]["lacks"] == "3: 30 below 130, until they are back-filled"
    assert [one.by for one in backlogs(admin, MOVING)["t", 0]] == [BACK_FILL, None]


def test_silent_broker_and_one_without_the_replica_yet() -> None:
    admin: Any = FakeAdmin({1: 100, 4: 130})
    admin.silent = {4}
    assert backlogs(admin, MOVING)["t", 0] == [
        Backlog(3, None, 100, RETENTION),
        Backlog(4, None, 100, RETENTION),
    ]
    assert lacking(admin, MOVING)["t", 0] == {"partial": [], "lacks": None}


def test_older_brokers_start_no_replica_at_the_end() -> None:
    admin: Any = FakeAdmin({})
    before, wanted = topic((1, 2)), topic((4, 2))
    assert from_the_end(admin, before, wanted).at_end == {("t", 0)}
    admin.retention_ms = "-1"
    start = from_the_end(admin, before, wanted)
    assert start.at_end == set()
    assert "retention deletes nothing of it" in start.copied["t"]
    admin.filling = {4}
    assert from_the_end(admin, before, wanted).at_end == {("t", 0)}
    admin.old = {2, 3}
    with pytest.raises(CliError, match="brokers 2,3 cannot start replicas") as raised:
        from_the_end(admin, before, wanted)
    assert raised.value.code is Exit.FAILED
    admin.silent = {4}
    with pytest.raises(CliError, match="broker 4 does not answer") as raised:
        from_the_end(admin, before, wanted)
    assert raised.value.code is Exit.UNREACHABLE
