"""The HTTP port of a broker, for metrics and health, which is easily taken for its Kafka port."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple

from pyrklog.config.http_place import ABOVE_KAFKA

ANSWER_BYTES_MAX = 64 * 1024
WHY = "metrics and health are served there, not Kafka's protocol"
_PATH = "/health/ready"


class HttpPort(NamedTuple):
    broker: int

    @property
    def what(self) -> str:
        """To follow the address."""
        return f"is the HTTP port of broker {self.broker}"


def http_port(address: tuple[str, int], timeout_s: float) -> HttpPort | None:
    """None where what speaks HTTP there is no broker of ours."""
    connection = HTTPConnection(*address, timeout=timeout_s)
    try:
        connection.request("GET", _PATH)
        told = json.loads(connection.getresponse().read(ANSWER_BYTES_MAX))
    except (OSError, HTTPException, UnicodeError, ValueError):
        return None
    finally:
        connection.close()
    number = told.get("broker") if isinstance(told, dict) and "ready" in told else None
    return HttpPort(number) if isinstance(number, int) else None


def kafka_port_fix(address: tuple[str, int], timeout_s: float) -> str:
    """What to ask instead: the port where a broker listens unless it is told another one, if a
    Kafka broker answers there."""
    from pyrklog.cli.peer_protocol import foreign

    host, port = address
    beside = port - ABOVE_KAFKA
    try:
        with socket.create_connection((host, beside), timeout=timeout_s) as connection:
            is_kafka = foreign(connection) is None
    except (OSError, OverflowError):
        is_kafka = False
    if is_kafka:
        shown = f"[{host}]" if ":" in host else host
        return f"ask its Kafka port: -b {shown}:{beside}"
    return (
        f"give the port of its Kafka listener with -b, {ABOVE_KAFKA} below its HTTP port unless "
        "pyrklog.http.listener is set"
    )
