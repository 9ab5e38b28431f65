"""Values in znodes that go into messages. Pure.

A value that no message can carry is refused here: it would keep the controller from sending
anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyrklog.base.hosts import PORT_MAX

INT32_MAX = 2**31 - 1


def text_of(found: object) -> str:
    """Raises ``TypeError`` and ``ValueError``."""
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no text")
    found.encode()  # JSON may hold unpaired surrogates, which cannot be encoded
    return found


def port_of(text: str) -> int:
    """Raises ``ValueError``."""
    port = int(text)
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"{port} is no port")
    return port


def int32_of(found: Any) -> int:
    """Raises ``ValueError`` and ``TypeError``."""
    number = int(found)
    if not -(2**31) <= number <= INT32_MAX:
        raise ValueError(f"{number} has more than 32 bits")
    return number


def broker_of(name: str) -> int:
    """The broker of a node's name; raises ``ValueError``."""
    broker = int32_of(name)
    if broker < 0:
        raise ValueError(f"{broker} is no broker")
    return broker


def broker_ids_of(found: Sequence[int]) -> tuple[int, ...]:
    """Brokers, each once; raises ``ValueError`` and ``TypeError``."""
    ids = tuple(found)
    if len(set(ids)) < len(ids) or not all(
        type(broker) is int and 0 <= broker <= INT32_MAX for broker in ids
    ):
        raise ValueError(f"{found!r} are no brokers")
    return ids
