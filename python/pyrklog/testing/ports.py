from __future__ import annotations

import os
import random
import socket

# Below Linux's range of local ports: a client that retries a dead broker's port could otherwise
# connect to itself and hold the port. Each worker of pytest-xdist has its own ports. Those that
# `pyrklog dev` chooses are left to it: 450 of each thousand.
_PORTS = frozenset(
    port
    for port in range(
        12_000 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")),
        32_000,
        int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
    )
    if port < 19_092 or (port - 19_092) % 1000 >= 450
)
_handed_out: set[int] = set()


def free_port() -> int:
    """A free TCP port of the loopback interface; each is given out once."""
    for port in random.sample(sorted(_PORTS - _handed_out), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _handed_out.add(port)
        return port
    raise OSError("no free port found on 127.0.0.1")
