"""A clean shutdown during any work: exit code 0, and no recovery at the next start."""

import signal
import struct
import threading
from collections.abc import Callable

import pytest

from pyrklog.testing import TestBroker
from tests.support.waiting import wait_until
from tests.support.wire import Connection, ConnectionClosed, array, string

CREATE_TOPICS = 19
CLIENTS = 6
END_S = 90.0
"""A busy disk has thousands of files to write."""


def clean_marker(broker: TestBroker) -> bool:
    return (broker.data / "logs" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_end_signals_stop_the_broker_in_order(
    new_broker: Callable[..., TestBroker], number: int
) -> None:
    """A closed terminal sends SIGHUP."""
    broker = new_broker().start()
    broker.signal(number)
    assert broker.wait(END_S) == 0
    assert clean_marker(broker)


def test_a_signal_that_comes_twice_at_once_is_one(new_broker: Callable[..., TestBroker]) -> None:
    """timeout(1) signals the process and its group."""
    broker = new_broker().start()
    broker.signal(signal.SIGTERM)
    broker.signal(signal.SIGTERM)
    assert broker.wait(END_S) == 0
    assert clean_marker(broker)


def create_without_waiting(connection: Connection, names: list[str], partitions: int) -> None:
    topics = [string(n) + struct.pack(">ih", partitions, 1) + array([]) + array([]) for n in names]
    connection.request(CREATE_TOPICS, 2, array(topics) + struct.pack(">i?", 0, False))


def test_the_end_while_topics_are_being_created(new_broker: Callable[..., TestBroker]) -> None:
    """The controller's later commands to the plane come too late, which must not crash it."""
    for turn in range(4):
        broker = new_broker().start()
        created = [0] * CLIENTS

        def create(client: int, broker: TestBroker = broker, created: list[int] = created) -> None:
            try:
                with Connection(broker.bootstrap) as connection:
                    while True:
                        names = [f"t{client}-{created[client]}-{i}" for i in range(10)]
                        create_without_waiting(connection, names, 20)
                        created[client] += 1
            except (ConnectionClosed, OSError):
                pass  # the shutdown under test

        clients = [threading.Thread(target=create, args=(client,)) for client in range(CLIENTS)]
        for client in clients:
            client.start()
        enough = CLIENTS * (1 + turn)
        wait_until(lambda: sum(created) >= enough, "too few are created")  # noqa: B023
        broker.signal(signal.SIGTERM)
        code = broker.wait(END_S)
        for client in clients:
            client.join()
        assert not [line for line in broker.log if '"crashed"' in line or '"error"' in line]
        assert code == 0
        assert clean_marker(broker)
