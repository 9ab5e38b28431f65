"""A cluster's ports differ, and the holder of a taken port is named."""

import os
import socket
from itertools import chain

import pytest

from pyrklog.base.problems import Problem
from pyrklog.dev import ports
from pyrklog.dev.errors import DevError
from pyrklog.dev.routes import routes_of
from pyrklog.testing.broker import free_port

BROKERS = range(1, ports.BROKERS_MAX + 1)
SERVERS = range(1, ports.ZOOKEEPERS_MAX + 1)


def test_all_ports_of_the_largest_cluster_differ_and_lie_in_its_block() -> None:
    base = 19092
    found = [
        *chain.from_iterable(
            (
                ports.client_port(base, one),
                ports.peer_port(base, one),
                ports.client_port(base, one) + 100,
            )
            for one in BROKERS
        ),
        *(ports.zookeeper_port(base, one) + more for one in SERVERS for more in (0, 10, 20)),
        *(route.port for route in routes_of(base, BROKERS, SERVERS)),
    ]
    assert len(set(found)) == len(found)
    assert min(found) == base
    assert max(found) < base + ports.USED_PORTS


def test_each_cluster_gets_a_block_of_its_own() -> None:
    first = ports.choose_base([])
    second = ports.choose_base([first])
    third = ports.choose_base([first, second + 100])
    assert (first, second, third) == (19092, 20092, 21092)
    every = list(range(19092, 32768, 1000))
    with pytest.raises(DevError, match="have all the ports"):
        ports.choose_base(every)


def test_brokers_of_tests_leave_the_blocks_free() -> None:
    taken = {free_port() for _ in range(100)}
    for base in range(ports.BASE_PORT, 32768, ports.BLOCK_PORTS):
        assert not taken & set(range(base, base + ports.USED_PORTS))


@pytest.mark.parametrize("base", [-1, 0, 80, 1023, 65087, 70000])
def test_port_base_without_room_for_a_cluster_is_refused(base: int) -> None:
    with pytest.raises(DevError) as caught:
        ports.check_base(base)
    assert caught.value.problem is Problem.ARGUMENT_VALUE


def test_the_holder_of_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(
            DevError, match=rf"port {port} is held by .* pid {os.getpid()}"
        ) as caught:
            ports.check_free([port], "do this")
        assert caught.value.fix == "do this"
    ports.check_free([port], "")


def test_a_connection_that_was_closed_holds_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as near:
            far, _ = server.accept()
            far.close()  # this side has the port, and closes first
            assert near.recv(1) == b""
    ports.check_free([port], "")


def test_routes_lead_to_brokers_and_from_each_to_every_zookeeper() -> None:
    routes = routes_of(19092, [1, 4], [1, 2, 3])
    assert len(routes) == 2 + 2 * 3
    peers = [one for one in routes if not one.is_to_zookeeper]
    assert [(one.broker, one.port, one.target) for one in peers] == [
        (1, 19342, 19292),
        (4, 19345, 19295),
    ]
    assert {one.target for one in routes if one.is_to_zookeeper} == {19142, 19143, 19144}
