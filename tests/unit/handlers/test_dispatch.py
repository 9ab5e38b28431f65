import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyrklog.errors import ErrorCode
from pyrklog.handlers.context import Later
from pyrklog.handlers.dispatch import ELEMENTS_MIN, PLAN_FACTOR, load_route
from pyrklog.metastore.interface import SessionExpiredError
from pyrklog.plane import core_plane
from pyrklog.protocol import DecodeError, configs, topics
from pyrklog.protocol.api import Api
from pyrklog.protocol.coordinators import FindCoordinatorRequest
from pyrklog.protocol.groups import HeartbeatRequest
from pyrklog.protocol.inter_broker import StopReplicaRequest, StopReplicaTopicState
from pyrklog.protocol.offsets import OffsetFetchRequest
from pyrklog.protocol.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pyrklog.protocol.registry import API_KEYS, ROWS, find_api
from pyrklog.protocol.topics import CreateTopicsRequest
from tests.unit.handlers.fake_service import FakeRequest, FakeService, make_handlers
from tests.unit.protocol.messages import messages

NOT_FLEXIBLE = 32767
REQUESTS = [
    (find_api(key), version)
    for key in API_KEYS
    for version in range(find_api(key).versions[0], find_api(key).versions[1] + 1)
]


def test_routes_match_the_advertised_apis() -> None:
    advertised = {
        row.key: (row.name, row.min_version, row.max_version, row.flexible_since)
        for row in core_plane.api_table()
        if row.owner == "python"
    }
    served = {
        key: (api.name, *api.versions, api.flexible_since)
        for key, api in ((key, load_route(key).api) for key in API_KEYS)
    }
    assert served == advertised


@pytest.mark.parametrize(
    ("api", "version"), REQUESTS, ids=lambda value: getattr(value, "name", value)
)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_request_can_be_answered_with_an_error(
    api: Api[Any, Any], version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(api.request, version))
    request = FakeRequest(api.key, version, api.encode_request(message, version))
    body = make_handlers(FakeService()).error_reply(request, ErrorCode.NOT_CONTROLLER)
    assert body is not None
    api.decode_response(body, version)


@pytest.mark.parametrize("api", [find_api(12), find_api(9)], ids=lambda api: api.name)
async def test_api_that_never_waits_is_answered_at_once_and_alike(api: Api[Any, Any]) -> None:
    handlers = make_handlers(FakeService())
    for version in range(api.versions[0], api.versions[1] + 1):
        body = api.encode_request(_smallest(api), version)
        request = FakeRequest(api.key, version, body)
        at_once = handlers.begin(request)
        assert isinstance(at_once, bytes)
        assert at_once == await handlers.handle(request)
        with pytest.raises(DecodeError):
            handlers.begin(FakeRequest(api.key, version, body[:-1]))


def test_requests_of_other_brokers_have_bounded_element_counts() -> None:
    """Any client can claim to be a broker: three bytes a topic would make millions of objects."""
    handlers = make_handlers(FakeService(), memory_bytes=1 << 20)

    def request(topics: int) -> FakeRequest:
        states = [StopReplicaTopicState("", [])] * topics
        body = find_api(5).encode_request(StopReplicaRequest(1, topic_states=states), 4)
        return FakeRequest(5, 4, body)

    most = PLAN_FACTOR * ELEMENTS_MIN
    assert handlers.error_reply(request(most), ErrorCode.NOT_CONTROLLER) is not None
    assert handlers.error_reply(request(most + 1), ErrorCode.NOT_CONTROLLER) is None, "unreadable"


def _smallest(api: Api[Any, Any]) -> Any:
    return HeartbeatRequest("g", 1, "m") if api.key == 12 else OffsetFetchRequest("g")


def test_api_that_may_wait_is_not_answered_at_once() -> None:
    handlers = make_handlers(FakeService())
    api = find_api(19)
    request = FakeRequest(19, 7, api.encode_request(CreateTopicsRequest([]), 7))
    begun = handlers.begin(request)
    assert isinstance(begun, Later)
    assert not begun.waits


async def test_a_body_that_cannot_be_read_closes_the_connection() -> None:
    handlers = make_handlers(FakeService())
    request = FakeRequest(19, 7, b"\x05garbage")
    with pytest.raises(DecodeError):
        await handlers.handle(request)
    assert handlers.error_reply(request, ErrorCode.NOT_CONTROLLER) is None


async def test_an_api_of_the_data_plane_is_not_answered_here() -> None:
    handlers = make_handlers(FakeService())
    request = FakeRequest(0, 9, b"")
    assert await handlers.handle(request) is None
    assert handlers.error_reply(request, ErrorCode.NOT_CONTROLLER) is None


def test_modules_of_subjects_are_imported_when_needed() -> None:
    program = (
        "import sys; import pyrklog.handlers.dispatch;"
        "print(*(name for name in sys.modules if name.startswith('pyrklog.handlers.')))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(out.stdout.split())
    assert {"pyrklog.handlers.dispatch", "pyrklog.handlers.context"} <= loaded
    assert not {f"pyrklog.handlers.{module}" for module, _ in ROWS.values()} & loaded


NOT_CONTROLLER, TIMED_OUT = ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT


class Interrupted(FakeService):
    def _answer(self, name: str, *arguments: Any, **options: Any) -> Any:
        raise SessionExpiredError("/")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (topics.CreateTopicsRequest([topics.CreatableTopic("t", 1, 1)]), NOT_CONTROLLER),
        (topics.DeleteTopicsRequest([topics.DeleteTopicState("t")]), NOT_CONTROLLER),
        (topics.CreatePartitionsRequest([topics.CreatePartitionsTopic("t", 2)]), NOT_CONTROLLER),
        (configs.AlterConfigsRequest([configs.AlterConfigsResource(2, "t", [])]), TIMED_OUT),
        (
            configs.IncrementalAlterConfigsRequest(
                [configs.IncrementalAlterConfigsResource(2, "t", [])]
            ),
            TIMED_OUT,
        ),
        (configs.DescribeConfigsRequest([configs.DescribeConfigsResource(2, "t")]), TIMED_OUT),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_request_during_a_session_end_gets_a_retriable_code(
    message: Any, code: ErrorCode
) -> None:
    """The request is fine. Clients look for the controller only with requests meant for it."""
    (api,) = (api for api, _ in REQUESTS if api.request is type(message) and api.versions[1] == _)
    version = api.versions[1]
    request = FakeRequest(api.key, version, api.encode_request(message, version))
    body = await make_handlers(Interrupted()).handle(request)
    assert body is not None
    answer = msgspec.structs.asdict(api.decode_response(body, version))
    ((result,),) = (value for value in answer.values() if isinstance(value, list))
    assert result.error_code == code


class NoTopic:
    """A coordinator that cannot create its topic, because the store's session ends."""

    async def find(self, _group: str, _listener: str) -> Any:
        raise SessionExpiredError("/")


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_find_coordinator_during_a_session_end_gets_not_available(version: int) -> None:
    api = find_api(10)
    message = FindCoordinatorRequest(key="g", coordinator_keys=["g"])
    request = FakeRequest(10, version, api.encode_request(message, version))
    groups: Any = NoTopic()
    body = await make_handlers(FakeService(), groups).handle(request)
    assert body is not None
    answer = api.decode_response(body, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_plan_for_all_partitions_may_name_more_than_other_requests() -> None:
    partitions = [ReassignablePartition(index, [1, 2, 3, 4]) for index in range(90_000)]
    topic = ReassignableTopic("t", partitions)
    plan = AlterPartitionReassignmentsRequest(60_000, [topic])
    body = ALTER_PARTITION_REASSIGNMENTS.encode_request(plan, 0)
    handlers = make_handlers(FakeService())
    request = FakeRequest(ALTER_PARTITION_REASSIGNMENTS.key, 0, body)
    assert handlers.error_reply(request, ErrorCode.NOT_CONTROLLER) is not None


@pytest.mark.parametrize("key", [71, 72])
def test_late_answers_leave_a_clients_telemetry_on(key: int) -> None:
    route = load_route(key)
    assert route.late is route.expired is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_requests_for_producer_ids_are_refused_in_a_way_that_old_producers_survive() -> None:
    route = load_route(22)
    assert route.late is route.expired is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
