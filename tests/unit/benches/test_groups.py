"""The generator of group load, briefly and against a real broker."""

from collections.abc import Callable
from typing import Any

import pytest

from benches import group_cases
from benches.brokers import BenchError
from benches.group_members import form_groups, heartbeat_error
from pyrklog.testing import TestBroker
from tests.support.groups import create_topic


class Running:
    name = "pyrklog"

    def __init__(self, broker: TestBroker) -> None:
        self.port, self.pid = broker.port, broker.pid


@pytest.fixture
def running(new_broker: Callable[..., TestBroker]) -> Any:
    broker = new_broker(options={"group.initial.rebalance.delay.ms": 300}).start()
    create_topic(broker.bootstrap, group_cases.TOPIC, 6)
    return Running(broker)


def test_heartbeats_and_commits_of_a_group(running: Any) -> None:
    [members] = form_groups(running.port, ["g"], 60)
    beats = [member.heartbeat_frame() for member in members]
    row = group_cases.closed_loop(running, members, beats, heartbeat_error, 0.5)
    assert row["requests_per_s"] > 0
    assert 0 < row["p50_ms"] <= row["max_ms"]
    commits = [group_cases._commit(member, 6) for member in members]
    group_cases.closed_loop(running, members, commits, group_cases._commit_error, 0.5)
    members[0].generation -= 1
    members[0].send(members[0].heartbeat_frame())
    assert heartbeat_error(members[0].receive()) != 0
    for member in members:
        member.socket.close()


def test_a_refused_request_ends_the_measurement(running: Any) -> None:
    [members] = form_groups(running.port, ["g"], 51)
    for member in members:
        member.generation += 1
    wrong = [member.heartbeat_frame() for member in members]
    with pytest.raises(BenchError, match="ILLEGAL_GENERATION"):
        group_cases.closed_loop(running, members, wrong, heartbeat_error, 0.5)
    for member in members:
        member.socket.close()
