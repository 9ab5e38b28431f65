"""What the doctor says of ZooKeeper's servers: how many there are, whether they know each other.

Brokers may name one server by several addresses, as those of ``pyrklog dev`` do. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyrklog.cli.doctor.evidence import ZooKeeperServer
from pyrklog.cli.failures import counted
from pyrklog.config.zookeeper_connect import parse_connect
from pyrklog.errors import ConfigError
from pyrklog.observability.health_rules import Reason

ALONE = "standalone"
SPLIT = "zookeeper_split"


def told_answering(connects: Mapping[int, str], answering: Sequence[ZooKeeperServer]) -> str:
    """``3 servers answer here (leader, follower, follower)``. Addresses that only some brokers name
    may lead to the same server."""
    servers = {one.server: one.mode for one in answering}
    is_known = len({frozenset(_addresses(text)) for text in connects.values()}) <= 1
    is_known = is_known or len({one.server for one in answering}) < len(answering)
    noun = ("server",) if is_known else ("address", "addresses")
    modes = ", ".join(mode for mode in servers.values() if mode is not None)
    verb = "answers" if len(servers) == 1 else "answer"
    return f"{counted(len(servers), *noun)} {verb} here{f' ({modes})' if modes else ''}"


def standing_alone(
    connects: Mapping[int, str], answering: Sequence[ZooKeeperServer]
) -> list[Reason]:
    """Servers without an ensemble among others: each has data of its own."""
    known = {one.address: one for one in answering if one.mode is not None}
    named = {
        number: {known[at].server: known[at].mode for at in _addresses(text) if at in known}
        for number, text in connects.items()
    }
    findings = []
    for servers in {tuple(one.items()): one for one in named.values()}.values():
        alone = [server for server, mode in servers.items() if mode == ALONE]
        if alone and len(servers) > 1:
            what = (
                f"zookeeper.connect names {len(servers)} servers, of which "
                f"{counted(len(alone), 'stands', 'stand')} alone ({', '.join(alone)}): a broker "
                "that goes to another one finds other data"
            )
            fix = "make them one ensemble (server.N lines in each zoo.cfg), or name one alone"
            findings.append(Reason(SPLIT, "error", what, fix=fix))
    alone = sorted({s for one in named.values() for s, mode in one.items() if mode == ALONE})
    if not findings and len(alone) > 1:
        whose = ", ".join(
            f"broker {n} {next(iter(one))}" for n, one in sorted(named.items()) if one
        )
        what = f"brokers name different servers that stand alone: {whose}"
        fix = "unless these are ways to one server, give all the same zookeeper.connect"
        findings.append(Reason(SPLIT, "warning", what, fix=fix))
    return findings


def _addresses(connect: str) -> list[str]:
    try:
        return [f"{host}:{port}" for host, port in parse_connect(connect)[0]]
    except ConfigError:
        return []  # the chroot's check shows it
