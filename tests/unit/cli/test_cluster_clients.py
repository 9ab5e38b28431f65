"""Clients of several brokers as one list, and what is old about them."""

from pyrklog.cli.cluster_clients import for_people, listing, merged
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.output import render
from pyrklog.protocol.health import (
    BrokerHealthResponse,
    ClientRefusal,
    ClientVersion,
    HealthClient,
)


def client(client_id: str, host: str = "10.0.0.5", **oldest: int) -> HealthClient:
    versions = [ClientVersion(api, version) for api, version in oldest.items()]
    return HealthClient(client_id, host, last_seen_ms=1_700_000_000_000, oldest=versions)


def told(*clients: HealthClient) -> BrokerHealthResponse:
    return BrokerHealthResponse(clients=list(clients))


def test_a_client_of_several_brokers_is_one() -> None:
    new = client("app", Fetch=12, JoinGroup=5)
    old = client("app", Fetch=11, FindCoordinator=3)
    elsewhere = client("app", "10.0.0.6")
    found = merged({2: told(old), 1: told(new, elsewhere), 3: BrokerHealthResponse()})
    assert [(one.address, one.brokers) for one in found] == [
        ("10.0.0.5", [1, 2]),
        ("10.0.0.6", [1]),
    ]
    assert found[0].oldest == {"Fetch": 11, "JoinGroup": 5, "FindCoordinator": 3}
    assert found[0].why == []


def test_old_and_refused_clients_come_first_with_why() -> None:
    refused = client("", "10.0.0.9")
    refused.refused = [
        ClientRefusal("Fetch version 99 is not served, only 0 to 16", 3),
        ClientRefusal("API key 999 is unknown", 1),
    ]
    found = merged(
        {1: told(client("app", JoinGroup=0), client("zoo", Fetch=1, Produce=3), refused)}
    )
    assert [one.client_id for one in found] == ["", "zoo", "app"]
    assert found[0].why == ["asked Fetch v99, we serve 0-16 (3 times)", "API key 999 is unknown"]
    assert found[1].why == ["asked Fetch v1, Kafka 4 serves it from v4 on"]
    assert found[2].why == [], "Kafka 4 still serves JoinGroup 0"
    assert found[1].name == "zoo at 10.0.0.5"
    assert found[0].name == "a client without a name at 10.0.0.9"


def test_the_table_for_people() -> None:
    one = client("app", Produce=9, Fetch=1, JoinGroup=5, ListOffsets=2)
    one.software_name, one.software_version = "librdkafka", "2.5.0"
    listed = listing(merged({1: told(one)}), "c")
    assert listed.items[0]["outdated"] is True
    assert listed.items[0]["oldest"]["Fetch"] == 1
    page = render(for_people(listed), OutputFormat.TABLE).splitlines()
    assert page[0].split("  ")[0] == "CLIENT"
    assert page[1].split() == [
        *("app", "librdkafka", "2.5.0", "10.0.0.5", "1"),
        *("Fetch", "v1,", "JoinGroup", "v5,", "ListOffsets", "v2,", "..."),
        *("asked", "Fetch", "v1,", "Kafka", "4", "serves", "it", "from", "v4", "on"),
    ]
