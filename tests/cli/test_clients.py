"""``cluster clients`` at a broker that old and misbehaving clients have asked."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.testing import TestBroker
from tests.support.commands import runner
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

FETCH = 1


def send(broker: TestBroker, api_key: int, version: int, client_id: bytes, body: bytes) -> None:
    """Sends a request, and waits until the broker answers or closes."""
    header = struct.pack(">hhih", api_key, version, 7, len(client_id)) + client_id
    with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(header + body)) + header + body)
        connection.recv(4)


def test_old_and_refused_clients_are_named(fresh_broker: TestBroker) -> None:
    run = runner(fresh_broker.bootstrap)
    with RawClient(fresh_broker.bootstrap) as nameless:
        nameless.ask(FIND_COORDINATOR, 1, FindCoordinatorRequest("g"))
    nothing_asked = struct.pack(">iiii", -1, 0, 0, 0)  # replica, wait, least bytes, no topics
    send(fresh_broker, FETCH, 1, b"ancient", nothing_asked)
    send(fresh_broker, FETCH, 99, b"future", b"")

    def clients(*arguments: str) -> dict[tuple[str | None, bool], Any]:
        items = json.loads(run("cluster", "clients", "-o", "json", *arguments))["items"]
        return {(one["client_id"], one["outdated"]): one for one in items}

    wait_until(lambda: len(clients("--outdated")) == 2, "the broker has not noticed both")
    found = clients()
    assert found["ancient", True]["why"] == ["asked Fetch v1, Kafka 4 serves it from v4 on"]
    assert found["ancient", True]["oldest"] == {"Fetch": 1}
    assert found[None, True]["why"][0].startswith("asked Fetch v99, we serve ")
    assert found[None, True]["address"] == "127.0.0.1"
    assert found[None, True]["oldest"] == {"FindCoordinator": 1}
    assert found["pyrklog-cli", False]["brokers"] == [1]
    page = run("cluster", "clients", "--outdated").splitlines()
    assert page[0].split()[:3] == ["CLIENT", "SOFTWARE", "ADDRESS"]
    assert len(page) == 3


def test_a_broker_that_nobody_else_has_asked(new_broker: Callable[..., TestBroker]) -> None:
    run = runner(new_broker().start().bootstrap)
    assert run("cluster", "clients", "--outdated") == "no client is outdated\n"


@pytest.mark.jvm
def test_other_kafkas_do_not_tell(apache_kafka: str) -> None:
    told = runner(apache_kafka)("cluster", "clients", code=1)
    assert "are not pyrklog's" in told
    assert "JMX" in told
