"""Listeners and their advertised addresses: ``NAME://HOST:PORT``, comma-separated."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyrklog.base.hosts import PORT_MAX
from pyrklog.base.problems import Problem
from pyrklog.errors import ConfigError

WILDCARDS = frozenset({"", "0.0.0.0", "::", "[::]"})
SERVED_PROTOCOLS = frozenset({"PLAINTEXT"})
DEFAULT_INTER_BROKER = "PLAINTEXT"
INTER_BROKER_NAME = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"


class Endpoint(NamedTuple):
    """One listener. An empty ``host`` binds every interface."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Listeners(NamedTuple):
    """Endpoints to bind, and those to advertise, in the same order.

    A listener that is not advertised serves its clients, but they are told of no broker. A port 0
    in ``advertised`` is filled in later.
    """

    bound: Sequence[Endpoint]
    advertised: Sequence[Endpoint]
    protocols: Mapping[str, str]
    """Security protocol of each listener name."""
    inter_broker: str
    is_inter_broker_a_guess: bool
    """Kafka would not start, since no listener has the name that holds by default."""
    left_out: Sequence[str]
    """KRaft controller listeners, which are not bound."""

    def is_for_brokers(self, name: str) -> bool:
        return name == self.inter_broker and len(self.bound) > 1


def resolve_listeners(
    listeners: str,
    advertised: str | None,
    protocol_map: str,
    inter_broker_name: str | None,
    controller_names: str | None,
    inter_broker_protocol: str | None = None,
) -> Listeners:
    """Checks the options against one another. ``inter_broker_protocol`` is None where
    ``security.inter.broker.protocol`` is not given. Raises :class:`ConfigError`."""
    protocols = _parse_protocols(protocol_map)
    controllers = {name.strip() for name in (controller_names or "").split(",") if name.strip()}
    everything = _parse(listeners, "listeners")
    bound = [item for item in everything if item.name not in controllers]
    if not bound:
        raise ConfigError(Problem.LISTENERS, "listeners names no listener for clients.")
    _check_distinct(bound)
    for item in bound:
        _check_protocol(item.name, protocols)
    if advertised is None or not advertised.strip():
        shown = [_default_advertised(item) for item in bound]
    else:
        shown = _match_advertised(advertised, bound, controllers)
    inter_broker = _inter_broker(
        [item.name for item in shown], inter_broker_name, inter_broker_protocol
    )
    left_out = [item.name for item in everything if item.name in controllers]
    return Listeners(bound, shown, protocols, *inter_broker, left_out)


def _inter_broker(names: Sequence[str], name: str | None, protocol: str | None) -> tuple[str, bool]:
    """The name of the listener between brokers, and whether it is a guess."""
    if name is not None and protocol is not None:
        raise ConfigError(
            Problem.OPTIONS_DISAGREE,
            f"Only one of {INTER_BROKER_NAME} and {INTER_BROKER_PROTOCOL} should be set.",
            fix=f"leave {INTER_BROKER_PROTOCOL} out",
        )
    found = (name or protocol or DEFAULT_INTER_BROKER).upper()
    if found in names:
        return found, False
    if name is None and protocol is None:
        return names[0], True
    option = INTER_BROKER_PROTOCOL if name is None else INTER_BROKER_NAME
    fix = f"set {INTER_BROKER_NAME} to one of {', '.join(names)}"
    raise ConfigError(
        Problem.LISTENERS,
        f"{option} is {found}, but no listener of that name is advertised.",
        fix=fix if name is not None else f"leave {INTER_BROKER_PROTOCOL} out, and {fix}",
    )


def _parse(text: str, option: str) -> list[Endpoint]:
    found = [_parse_one(item.strip(), option) for item in text.split(",") if item.strip()]
    if not found:
        raise ConfigError(
            Problem.LISTENERS, f"{option} is empty; it needs at least one NAME://HOST:PORT."
        )
    names = [item.name for item in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(Problem.LISTENERS, f"{option} names the listener {name} twice.")
    return found


def _parse_one(item: str, option: str) -> Endpoint:
    name, separator, address = item.partition("://")
    host, colon, port_text = address.rpartition(":")
    if not (separator and colon and name):
        raise ConfigError(
            Problem.LISTENERS, f"{option} has {item!r}, which is not NAME://HOST:PORT."
        )
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= PORT_MAX):
        raise ConfigError(
            Problem.LISTENERS,
            f"{option} has {item!r}, whose port is not a number up to {PORT_MAX}.",
        )
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(
            Problem.LISTENERS, f"{option} has {item!r}; an IPv6 address stands in brackets."
        )
    return Endpoint(name.upper(), host, int(port_text))


def _parse_protocols(text: str) -> dict[str, str]:
    protocols = {}
    for item in text.split(","):
        name, colon, protocol = item.strip().partition(":")
        if not item.strip():
            continue
        if not colon:
            raise ConfigError(
                Problem.LISTENERS,
                f"listener.security.protocol.map has {item.strip()!r}, which is not NAME:PROTOCOL.",
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _check_protocol(name: str, protocols: Mapping[str, str]) -> None:
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            Problem.LISTENERS,
            f"listener.security.protocol.map has no protocol for the listener {name}.",
        )
    if protocol not in SERVED_PROTOCOLS:
        raise ConfigError(
            Problem.OPTION_NOT_SERVED,
            f"The listener {name} asks for {protocol}; this version serves PLAINTEXT only.",
            fix="write it as PLAINTEXT://HOST:PORT"
            if name == protocol
            else f"give it PLAINTEXT in listener.security.protocol.map: {name}:PLAINTEXT",
        )


def _check_distinct(bound: Sequence[Endpoint]) -> None:
    for index, item in enumerate(bound):
        for other in bound[:index]:
            same_host = item.host == other.host or bool(WILDCARDS & {item.host, other.host})
            if item.port and item.port == other.port and same_host:
                raise ConfigError(
                    Problem.LISTENERS,
                    f"The listeners {other.name} and {item.name} share port {item.port}.",
                )


def _default_advertised(item: Endpoint) -> Endpoint:
    # Clients cannot connect to a wildcard; the machine's name is the best guess.
    host = socket.gethostname() if item.host in WILDCARDS else item.host
    return Endpoint(item.name, host, item.port)


def _match_advertised(
    text: str, bound: Sequence[Endpoint], controllers: set[str]
) -> list[Endpoint]:
    given = {item.name: item for item in _parse(text, "advertised.listeners")}
    for name in given.keys() - {item.name for item in bound} - controllers:
        raise ConfigError(
            Problem.LISTENERS, f"advertised.listeners names {name}, which listeners does not."
        )
    shown = []
    for item in bound:
        found = given.get(item.name)
        if found is None:
            continue
        if found.host in WILDCARDS - {""}:
            raise ConfigError(
                Problem.LISTENERS,
                f"advertised.listeners has {found}: clients cannot connect to {found.host}; "
                "give the name or address by which they reach this machine.",
            )
        shown.append(found if found.host else _default_advertised(found))
    if not shown:
        raise ConfigError(Problem.LISTENERS, "advertised.listeners names no listener for clients.")
    return shown
