"""A real broker as a service: what systemd hears, what a container's health check says."""

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pyrklog.deploy.files import KINDS, Settings
from pyrklog.testing import TestBroker
from tests.support.broker_http import ANY_PORT, http_port
from tests.support.waiting import wait_until


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "notify"))
        found.settimeout(30)
        yield found


def test_systemd_hears_of_the_start_and_of_the_end(
    manager: socket.socket, tmp_path: Path, new_broker: Callable[..., TestBroker]
) -> None:
    environment = {**os.environ, "NOTIFY_SOCKET": manager.getsockname()}
    broker = new_broker(environment=environment).start()
    told = [manager.recv(4096).decode()]
    assert told[0].startswith("STATUS=starting\nEXTEND_TIMEOUT_USEC=")
    while "READY=1" not in told[-1]:
        told.append(manager.recv(4096).decode())
    assert re.search(r"^STATUS=broker 1 of cluster \S{22}$", told[-1], re.MULTILINE)
    # It listens by then.
    socket.create_connection(("127.0.0.1", broker.port), timeout=30).close()
    assert broker.stop() == 0
    assert manager.recv(4096).startswith(b"STOPPING=1\n")


def health_check(port: int) -> int:
    """The exit code of the container's own command, with this interpreter and that port."""
    (recipe,) = KINDS["container"].files(Settings(Path("/"))).values()
    found = re.search(r"^HEALTHCHECK .* CMD (\[.*\])$", recipe, re.MULTILINE)
    assert found is not None
    _, *arguments = [word.rstrip(",") for word in shlex.split(found[1].strip("[]"))]
    command = [one.replace(":9192/", f":{port}/") for one in arguments]
    return subprocess.run(
        [sys.executable, *command], stderr=subprocess.DEVNULL, timeout=60, check=False
    ).returncode


def test_the_containers_health_check_is_the_brokers_readiness(
    new_broker: Callable[..., TestBroker],
) -> None:
    broker = new_broker(options=ANY_PORT).start()
    port = http_port(broker)
    wait_until(lambda: health_check(port) == 0, "the health check does not succeed")
    assert broker.stop() == 0
    assert health_check(port) == 1
