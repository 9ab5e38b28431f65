"""Which clients a broker remembers, and what of them."""

from itertools import count
from types import SimpleNamespace
from typing import Any

from pyrklog.handlers.client_table import CLIENTS_MAX, REFUSALS_MAX, ClientTable

NAMES = {1: "Fetch", 10: "FindCoordinator", 11: "JoinGroup", 4: "LeaderAndIsr"}
REFUSAL = "Fetch version 99 is not served, only 0 to 16"


def table() -> ClientTable:
    clock = count(1000)
    return ClientTable(lambda: NAMES, lambda: next(clock))


def session(client_id: str | None = "a", host: str = "10.0.0.1") -> Any:
    return SimpleNamespace(client_id=client_id, host=host)


def test_the_oldest_version_of_each_api_is_remembered() -> None:
    clients = table()
    for key, version in ((11, 5), (11, 2), (11, 9), (10, 3)):
        clients.note_request(session(), key, version)
    clients.note_request(session(None), 10, 0)
    other, one = clients.clients()
    assert (other.client_id, other.oldest) == ("", {"FindCoordinator": 0})
    assert (one.client_id, one.host) == ("a", "10.0.0.1")
    assert one.oldest == {"JoinGroup": 2, "FindCoordinator": 3}
    assert one.first_seen_ms < one.last_seen_ms


def test_other_brokers_and_our_own_requests_are_no_clients() -> None:
    clients = table()
    for key in (4, 56, 20_004, 999):
        clients.note_request(session(), key, 0)
    assert clients.clients() == []


def test_notices_of_the_data_plane_name_old_formats_and_refusals() -> None:
    clients = table()
    old = {"client_id": "a", "host": "10.0.0.1", "request": "Fetch v1"}
    clients.note_notice("old_client", old)
    clients.note_notice("old_client", {**old, "request": "odd"})
    for reason in (REFUSAL, REFUSAL, "API key 999 is unknown", "the peer sent nonsense"):
        fields = {"reason": reason, "peer": "10.0.0.2", "listener": "PLAINTEXT"}
        clients.note_notice("connection_refused", fields)
    clients.note_notice("disk_full", {"path": "/d"})
    refused, one = clients.clients()
    assert one.oldest == {"Fetch": 1}
    assert (refused.host, refused.client_id) == ("10.0.0.2", "")
    assert refused.refused == {REFUSAL: 2, "API key 999 is unknown": 1}


def test_a_client_names_its_software() -> None:
    clients = table()
    clients.note_request(session(), 10, 3)
    seen = {"client_id": "a", "host": "10.0.0.1", "software_name": "librdkafka"}
    clients.note_notice("client_seen", {**seen, "software_version": "2.5.0"})
    (one,) = clients.clients()
    assert (one.software, one.oldest) == (("librdkafka", "2.5.0"), {"FindCoordinator": 3})
    clients.note_notice("client_seen", {**seen, "software_version": "9" * 5000})
    assert len(one.software[1]) == 100


def test_what_is_remembered_is_bounded() -> None:
    clients = table()
    for number in range(CLIENTS_MAX + 5):
        clients.note_request(session(f"{number}-{'x' * 1000}"), 10, 0)
        clients.note_request(session("busy"), 10, 0)
    found = clients.clients()
    assert len(found) == CLIENTS_MAX
    assert clients.forgotten == 6
    assert found[0].client_id == "busy", "the one that was seen last is not forgotten"
    assert max(len(one.client_id) for one in found) == 100
    for key in range(50):
        reason = f"API key {key} is unknown"
        clients.note_notice("connection_refused", {"reason": reason, "peer": "h"})
    assert len(clients.clients()[0].refused) == REFUSALS_MAX


def test_the_names_of_apis_are_read_once() -> None:
    read: list[int] = []

    def names() -> dict[int, str]:
        read.append(1)
        return NAMES

    clients = ClientTable(names)
    for _ in range(3):
        clients.note_request(session(), 10, 0)
    assert read == [1]
