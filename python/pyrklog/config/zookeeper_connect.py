"""``zookeeper.connect``: HOST:PORT[,HOST:PORT...][/CHROOT]."""

from pyrklog.base.hosts import host_and_port
from pyrklog.base.problems import Problem
from pyrklog.errors import ConfigError

DEFAULT_PORT = 2181


def parse_connect(
    connect: str, option: str = "zookeeper.connect"
) -> tuple[list[tuple[str, int]], str]:
    """(host, port) of each server, and the chroot without its slash, or "".

    Raises :class:`ConfigError`.
    """
    try:
        return _parse(connect)
    except ValueError as error:
        raise ConfigError(
            Problem.OPTION_VALUE,
            f"{option} takes HOST:PORT[,HOST:PORT...][/CHROOT], not {connect!r}: {error}.",
            fix="for example 127.0.0.1:2181/pyrklog",
        ) from None


def _parse(connect: str) -> tuple[list[tuple[str, int]], str]:
    servers, _, chroot = connect.partition("/")
    found = []
    for item in servers.split(","):
        host, port = host_and_port(item.strip(), DEFAULT_PORT)
        if not host:
            raise ValueError("a host is missing")
        found.append((host, port))
    if "," in chroot:
        raise ValueError("the chroot stands once, behind the last server")
    if chroot and not {"", ".", ".."}.isdisjoint(chroot.split("/")):
        raise ValueError(f"/{chroot} is no path in ZooKeeper")
    return found, chroot
