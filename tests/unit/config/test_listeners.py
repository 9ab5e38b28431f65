import socket

import pytest

from pyrklog.config.listeners import Endpoint, Listeners, resolve_listeners
from pyrklog.errors import ConfigError

MAP = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,SSL:SSL"


def resolve(
    listeners: str,
    advertised: str | None = None,
    inter_broker: str | None = None,
    controllers: str | None = None,
    protocol: str | None = None,
    protocols: str = MAP,
) -> Listeners:
    return resolve_listeners(listeners, advertised, protocols, inter_broker, controllers, protocol)


def test_a_named_host_is_advertised_as_it_is() -> None:
    found = resolve("PLAINTEXT://db.example:9092")
    assert found.bound == found.advertised == [Endpoint("PLAINTEXT", "db.example", 9092)]
    assert found.inter_broker == "PLAINTEXT"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_for_every_interface_the_machines_name_is_advertised(host: str) -> None:
    (shown,) = resolve(f"PLAINTEXT://{host}:9092").advertised
    assert shown == Endpoint("PLAINTEXT", socket.gethostname(), 9092)


def test_several_listeners_and_ipv6() -> None:
    found = resolve(
        "inside://[::1]:9092, OUTSIDE://0.0.0.0:9093",
        "OUTSIDE://kafka.example:19093,INSIDE://[fd00::1]:9092",
        "OUTSIDE",
    )
    assert found.bound == [Endpoint("INSIDE", "::1", 9092), Endpoint("OUTSIDE", "0.0.0.0", 9093)]
    assert found.advertised[0] == Endpoint("INSIDE", "fd00::1", 9092)
    assert str(found.advertised[0]) == "INSIDE://[fd00::1]:9092"
    assert found.inter_broker == "OUTSIDE"


@pytest.mark.parametrize(
    ("listeners", "advertised", "said"),
    [
        ("", None, "empty"),
        ("localhost:9092", None, "not NAME://HOST:PORT"),
        ("PLAINTEXT://localhost", None, "not NAME://HOST:PORT"),
        ("PLAINTEXT://localhost:port", None, "number up to 65535"),
        ("PLAINTEXT://localhost:70000", None, "number up to 65535"),
        ("PLAINTEXT://::1:9092", None, "brackets"),
        ("PLAINTEXT://a:1,PLAINTEXT://a:2", None, "twice"),
        ("INSIDE://a:1,OUTSIDE://a:1", None, "share port 1"),
        ("INSIDE://0.0.0.0:1,OUTSIDE://a:1", None, "share port 1"),
        ("STRANGE://a:1", None, "no protocol for the listener STRANGE"),
        ("SSL://a:1", None, "serves PLAINTEXT only"),
        ("PLAINTEXT://a:1", "PLAINTEXT://0.0.0.0:1", "cannot connect to 0.0.0.0"),
        ("PLAINTEXT://a:1", "INSIDE://a:1", "which listeners does not"),
        ("PLAINTEXT://a:1", ",", "advertised.listeners is empty"),
    ],
)
def test_malformed_listeners_are_refused(listeners: str, advertised: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(listeners, advertised)


@pytest.mark.parametrize(
    ("listener", "fix"),
    [
        ("SASL_SSL", "write it as PLAINTEXT://HOST:PORT"),
        ("INSIDE", "give it PLAINTEXT in listener.security.protocol.map: INSIDE:PLAINTEXT"),
    ],
)
def test_a_protocol_that_is_not_served_has_a_fix(listener: str, fix: str) -> None:
    protocols = "SASL_SSL:SASL_SSL,INSIDE:SSL"
    with pytest.raises(ConfigError, match="serves PLAINTEXT only") as refused:
        resolve(f"{listener}://a:1", protocols=protocols)
    assert refused.value.fix == fix


def test_some_listeners_may_be_left_out_of_the_advertised_ones() -> None:
    found = resolve("INSIDE://a:1,OUTSIDE://a:2,PLAINTEXT://a:3", "PLAINTEXT://c:3,INSIDE://b:1")
    assert [item.name for item in found.bound] == ["INSIDE", "OUTSIDE", "PLAINTEXT"]
    assert found.advertised == [Endpoint("INSIDE", "b", 1), Endpoint("PLAINTEXT", "c", 3)]
    assert found.inter_broker == "PLAINTEXT"


def test_only_a_listener_that_is_advertised_serves_brokers() -> None:
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name is PLAINTEXT, but no"):
        resolve(TWO, "INSIDE://b:1", inter_broker="PLAINTEXT")
    found = resolve(TWO, "INSIDE://b:1")
    assert (found.inter_broker, found.is_inter_broker_a_guess) == ("INSIDE", True)


def test_advertised_listeners_for_controllers_only_are_refused() -> None:
    both = "PLAINTEXT://a:1,CONTROLLER://a:2"
    with pytest.raises(ConfigError, match=r"advertised.*no listener for clients"):
        resolve(both, "CONTROLLER://a:2", controllers="CONTROLLER")


def test_two_free_ports_may_share_an_address() -> None:
    assert len(resolve("INSIDE://a:0,OUTSIDE://a:0").bound) == 2


def test_the_inter_broker_listener_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name is OUTSIDE"):
        resolve("INSIDE://a:1", inter_broker="OUTSIDE")


TWO = "INSIDE://a:1,PLAINTEXT://a:2"


def test_brokers_use_the_listener_of_the_protocols_name_whatever_the_order() -> None:
    for protocol in (None, "PLAINTEXT"):
        found = resolve(TWO, protocol=protocol)
        assert (found.inter_broker, found.is_inter_broker_a_guess) == ("PLAINTEXT", False)
    assert resolve(TWO, inter_broker="INSIDE").inter_broker == "INSIDE"
    assert not resolve(TWO, inter_broker="INSIDE").is_inter_broker_a_guess


def test_without_such_a_listener_brokers_use_the_first() -> None:
    found = resolve("OUTSIDE://a:1,INSIDE://a:2")
    assert (found.inter_broker, found.is_inter_broker_a_guess) == ("OUTSIDE", True)


@pytest.mark.parametrize(
    ("name", "protocol", "said"),
    [
        ("INSIDE", "PLAINTEXT", "Only one of inter.broker.listener.name and security.inter"),
        (None, "SSL", "security.inter.broker.protocol is SSL, but no listener of that name"),
    ],
)
def test_a_protocol_between_brokers_is_refused_as_by_kafka(
    name: str | None, protocol: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(TWO, inter_broker=name, protocol=protocol)


def test_the_inter_broker_name_is_upper_cased_as_those_of_listeners() -> None:
    assert resolve("inside://a:1,Outside://a:2", inter_broker="outSide").inter_broker == "OUTSIDE"


def test_listeners_for_controllers_only_are_refused() -> None:
    with pytest.raises(ConfigError, match="no listener for clients"):
        resolve("CONTROLLER://a:1", controllers="CONTROLLER")


def test_a_listener_is_for_brokers_where_clients_have_another() -> None:
    found = resolve("INSIDE://:9093,OUTSIDE://:9092", inter_broker="INSIDE")
    assert found.is_for_brokers("INSIDE")
    assert not found.is_for_brokers("OUTSIDE")
    assert not resolve("PLAINTEXT://:9092").is_for_brokers("PLAINTEXT")
