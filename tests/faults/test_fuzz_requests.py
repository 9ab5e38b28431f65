"""Any request of Python's APIs, damaged or not: an answer, or a closed connection.

Once against the handlers alone, over a coordinator on a clock that jumps and with injected bugs;
once against a broker in a process of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing
from hypothesis import strategies as st

from pyrklog.groups import fencing, syncing
from pyrklog.groups.options import GroupSettings
from pyrklog.handlers.dispatch import BETWEEN_BROKERS
from pyrklog.handlers.service import TopicInfo
from pyrklog.protocol.lag import PARTITION_OFFSETS
from pyrklog.protocol.primitives import DecodeError
from pyrklog.protocol.registry import API_KEYS, ROWS, find_api
from pyrklog.protocol.topics import CreatePartitionsRequest, CreateTopicsRequest
from pyrklog.testing import TestBroker
from tests.faults.fuzzing import EXAMPLES, damaged, finds, run
from tests.support.raw_client import RawClient
from tests.unit.groups.rig import running
from tests.unit.handlers.fake_service import FakeRequest, FakeService, make_handlers
from tests.unit.protocol.messages import messages

GROUP_APIS = (8, 9, 11, 12, 13, 14, 15, 16, 42, 47)
LONGEST_WAIT_S = 10_000_000
ANSWER_S = 0.5
PARTITIONS_MAX = 20


class Frame(NamedTuple):
    key: int
    version: int
    body: bytes
    is_whole: bool


@st.composite
def frames(draw: Any, keys: tuple[int, ...]) -> Frame:
    key = draw(st.sampled_from(keys))
    api = find_api(key)
    version = draw(st.integers(*api.versions))
    message = draw(messages(api.request, version))
    for name in ("group_id", "group"):
        if hasattr(message, name) and draw(st.booleans()):
            setattr(message, name, "g")
    _keep_small(message)
    body = api.encode_request(message, version)
    is_whole = draw(st.booleans())
    return Frame(key, version, body if is_whole else damaged(body, draw), is_whole)


def _keep_small(message: Any) -> None:
    """Topics of thousands of partitions have another test."""
    if isinstance(message, CreateTopicsRequest):
        for topic in message.topics:
            topic.num_partitions = min(topic.num_partitions, PARTITIONS_MAX)
            del topic.assignments[PARTITIONS_MAX:]
    if isinstance(message, CreatePartitionsRequest):
        for grown in message.topics:
            grown.count = min(grown.count, PARTITIONS_MAX)


# --- the handlers --------------------------------------------------------------------------------


async def _ask(frame: Frame) -> None:
    service = FakeService(topics=[TopicInfo("t", bytes(16), 2, False)])
    async with running(settings=GroupSettings(initial_rebalance_delay_ms=0)) as rig:
        await rig.enter()
        handlers = make_handlers(service, rig.coordinator)
        with trio.move_on_after(LONGEST_WAIT_S):
            request: Any = FakeRequest(frame.key, frame.version, frame.body)
            try:
                body = await handlers.handle(request)
            except DecodeError:
                assert not frame.is_whole
                return
            assert body is not None
            find_api(frame.key).decode_response(body, frame.version)


def check(frame: Frame) -> None:
    """Any other exception is a failure."""
    try:
        trio.run(_ask, frame, clock=trio.testing.MockClock(autojump_threshold=0))
    except Exception as error:
        raise AssertionError(f"{frame}: {error!r}") from error


def test_handlers_answer_random_requests() -> None:
    run(frames(GROUP_APIS), check)


def test_bug_injected_into_fencing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown instance id is looked up as if it were known."""

    def check_member(group: Any, member_id: str, instance_id: str | None) -> Any:
        if instance_id is not None:
            assert group.members[group.members.ids_by_instance[instance_id]]
        return original(group, member_id, instance_id)

    original = fencing.check_member
    monkeypatch.setattr(fencing, "check_member", check_member)
    finds(frames((8, 12, 13, 14)), check)


def test_bug_injected_into_generations_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members count as known."""

    def check_sync(group: Any, request: Any) -> Any:
        assert group.members[request.member_id]
        return original(group, request)

    original = syncing._check
    monkeypatch.setattr(syncing, "_check", check_sync)
    finds(frames((14,)), check)


# --- a broker ------------------------------------------------------------------------------------


_WAITS = b""
"""The broker has taken a request, and waits for other members before it answers."""


def _is_served_alone(frame: Frame) -> bool:
    """Whether a broker that has no cluster knows the API."""
    module, _ = ROWS[frame.key]
    is_between = module in BETWEEN_BROKERS or frame.key == PARTITION_OFFSETS.key
    return not is_between and module != "observation"


def _answer(client: RawClient, frame: Frame) -> bytes | None:
    """None if the broker closes the connection."""
    try:
        return client.exchange(find_api(frame.key), frame.version, frame.body)
    except TimeoutError:
        return _WAITS
    except OSError:
        return None


def test_a_broker_outlives_frames_of_every_api(tmp_path: Path) -> None:
    """Good frames get answers of their form. After each the broker serves others, and no handler
    has failed unexpectedly."""
    options = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    probe_body = find_api(60).encode_request(find_api(60).request(), 0)
    probe = Frame(60, 0, probe_body, is_whole=True)
    with TestBroker(tmp_path / "data", options=options) as broker:
        client, other = RawClient(broker.bootstrap, ANSWER_S), RawClient(broker.bootstrap)

        def attempt(frame: Frame) -> None:
            body = _answer(client, frame)
            if body:
                find_api(frame.key).decode_response(body, frame.version)
            if frame.is_whole and _is_served_alone(frame):
                assert body is not None, f"a good request closed the connection: {broker.log[-1]}"
            assert _answer(other, probe)
            failures = [line for line in list(broker.log) if "request_failed" in line]
            assert not failures, failures[-1]

        run(frames(API_KEYS), attempt, examples=EXAMPLES, shrink=False)
        client.close()
        other.close()
        assert broker.stop() == 0
