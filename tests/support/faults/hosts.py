"""Hosts of a network of their own, on one machine: network namespaces behind a router.

What is cut here is packets: connections stay open at both ends and hear nothing, new ones are tried
until somebody gives up, as after a pulled cable. Needs Linux, and root or user namespaces; a
program that `lab` starts has both, and is itself one of the hosts (`HERE`).
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterable, Sequence

HERE = 200
"""The host on which the program itself runs."""

_RULE = "priority 10"
"""Before the router looks where to send a packet."""

Pair = tuple[int, int]
"""Who sends to whom."""


def lab(command: Sequence[str]) -> list[str]:
    """The command, to be run where it may make hosts and mount what only it sees."""
    identity = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *identity, "--net", "--mount", "--fork", "--kill-child", "--", *command]


def refusal() -> str:
    """Why the kernel allows no such hosts; empty where it does."""
    done = subprocess.run(lab(["true"]), capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


def address(number: int) -> str:
    """The host's address."""
    return f"10.77.{number}.1"


class Hosts:
    """Some hosts, and `HERE`. ``close`` ends their names, not what runs on them."""

    def __init__(self, numbers: Iterable[int]) -> None:
        interfaces = [name for _, name in socket.if_nameindex()]
        assert interfaces == ["lo"], f"this is no lab, but a machine with {interfaces}"
        self._cut: set[Pair] = set()
        # Faults come and go in threads of their own.
        self._cutting = threading.Lock()
        self._router = _Namespace()
        self._namespaces = {number: _Namespace() for number in numbers}
        self._router.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for number, namespace in self._namespaces.items():
            self._connect(number, namespace.pid, namespace.enter())
        self._connect(HERE, os.getpid(), [])

    def _connect(self, number: int, pid: int, enter: Sequence[str]) -> None:
        near, gateway = f"host{number}", f"10.77.{number}.254"
        self._router.ip(
            f"link add {near} type veth peer name eth0 netns {pid}",
            f"address add {gateway}/24 dev {near}",
            f"link set {near} up",
        )
        _ip(
            enter,
            "link set lo up",
            f"address add {address(number)}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {gateway}",
        )

    def wrapper(self, number: int) -> list[str]:
        """What, put before a command, runs it on that host."""
        return self._namespaces[number].enter()

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Packets of these are lost from now on, in this direction, and nobody is told."""
        with self._cutting:
            added = set(pairs) - self._cut
            self._cut |= added
            self._router.ip(*(f"rule add {_blackhole(*pair)}" for pair in sorted(added)))

    def join(self, pairs: Iterable[Pair]) -> None:
        """They arrive again."""
        with self._cutting:
            removed = set(pairs) & self._cut
            self._cut -= removed
            self._router.ip(*(f"rule del {_blackhole(*pair)}" for pair in sorted(removed)))

    def reset(self, pairs: Iterable[Pair]) -> None:
        """Connections of the first with the second of each break, and both ends know; new ones
        work."""
        for source, target in pairs:
            self._namespaces[source].run("ss", "--tcp", "--kill", "dst", address(target))

    def close(self) -> None:
        """Ends the network."""
        for namespace in (*self._namespaces.values(), self._router):
            namespace.close()


class _Namespace:
    """A network namespace, kept by a process that lives as long as this object wants it."""

    def __init__(self) -> None:
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        # Once it answers, it is where it belongs.
        self._keeper.stdin.write(b"?")
        self._keeper.stdin.flush()
        assert self._keeper.stdout.read(1) == b"?", "no network namespace was made"
        self.pid = self._keeper.pid

    def enter(self) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--net", "--"]

    def run(self, *command: str) -> None:
        subprocess.run([*self.enter(), *command], stdout=subprocess.DEVNULL, check=True)

    def ip(self, *commands: str) -> None:
        _ip(self.enter(), *commands)

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.communicate()


def _ip(enter: Sequence[str], *commands: str) -> None:
    script = "".join(f"{command}\n" for command in commands)
    subprocess.run([*enter, "ip", "-batch", "-"], input=script, text=True, check=True)


def _blackhole(source: int, target: int) -> str:
    return f"from {address(source)} to {address(target)} blackhole {_RULE}"
