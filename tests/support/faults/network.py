"""Pipes between brokers, and from each to ZooKeeper: TCP connections that can be cut.

A cut pair passes nothing: connections stay open, new ones are accepted and silent. Everything
arrives once the pair is joined. The client id of the first request tells who connects
(``broker-2-fetcher-0``, ``controller-3``).
"""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from queue import SimpleQueue

from tests.support.waiting import PATIENCE_S

UNKNOWN = -1
ZOOKEEPER = 0

_CHUNK_BYTES = 65_536
_BUFFERED_BYTES_MAX = 1 << 20
_CLIENT_ID = re.compile(rb"(?:broker|controller)-(\d+)")
_ID_AT = 14
"""Length, key, version, correlation id, length of the client id."""

Pair = tuple[int, int]


@dataclass(eq=False)
class _End:
    """One socket of a connection, and the bytes to send to it."""

    socket: socket.socket
    connection: _Connection
    out: bytearray = field(default_factory=bytearray)
    is_ended: bool = False
    """The other end has closed; this one closes once everything is sent."""

    @property
    def other(self) -> _End:
        near, far = self.connection.near, self.connection.far
        return far if self is near else near


class _Connection:
    def __init__(self, source: int, target: int, near: socket.socket, far: socket.socket) -> None:
        self.source = source
        self.target = target
        self.near = _End(near, self)
        self.far = _End(far, self)


@dataclass
class _Gate:
    source: int
    target: int
    port: int
    target_port: int
    listener: socket.socket | None


class Network:
    """One thread forwards everything; other threads call the methods."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_out.setblocking(False)
        self._selector.register(self._wake_out, selectors.EVENT_READ, None)
        self._gates: list[_Gate] = []
        self._connections: set[_Connection] = set()
        self._cut: set[Pair] = set()
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)
        self._thread.start()

    def gate(self, source: int, target: int, port: int, target_port: int) -> None:
        """Accepts connections to ``target`` at ``port``. With ``source`` = ``UNKNOWN`` the first
        request names the client."""
        self._call(lambda: self._open(_Gate(source, target, port, target_port, None)))

    def refuse(self, target: int) -> None:
        """Closes the target's ports, as when its process is gone."""
        self._call(lambda: self._close_gates(target))

    def accept(self, target: int) -> None:
        """Opens them again."""
        self._call(lambda: self._open_gates(target))

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Silences these connections in both directions."""
        cut = set(pairs)
        self._call(lambda: self._set_cut(self._cut | cut))

    def join(self, pairs: Iterable[Pair]) -> None:
        """Passes traffic again, and what was sent meanwhile."""
        joined = set(pairs)
        self._call(lambda: self._set_cut(self._cut - joined))

    def reset(self, pairs: Iterable[Pair]) -> None:
        """Ends the connections of these; new ones work."""
        chosen = set(pairs)
        self._call(lambda: self._reset(chosen))

    def close(self) -> None:
        self._commands.put(None)
        self._wake_in.send(b"x")
        self._thread.join()

    def _call(self, command: Callable[[], None]) -> None:
        """Runs it in the network's thread and waits for its end."""
        done = threading.Event()

        def carry_out() -> None:
            try:
                command()
            finally:
                done.set()

        self._commands.put(carry_out)
        self._wake_in.send(b"x")
        assert done.wait(PATIENCE_S), "the network's thread is gone"

    # --- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            for key, events in self._selector.select():
                if key.data is None:
                    if not self._obey():
                        return
                elif isinstance(key.data, _Gate):
                    self._take(key.data)
                else:
                    self._move(key.data, events)

    def _obey(self) -> bool:
        self._wake_out.recv(4096)
        while not self._commands.empty():
            command = self._commands.get()
            if command is None:
                self._end()
                return False
            command()
        return True

    def _end(self) -> None:
        for connection in tuple(self._connections):
            self._drop(connection)
        for gate in self._gates:
            if gate.listener is not None:
                gate.listener.close()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _open(self, gate: _Gate) -> None:
        self._gates.append(gate)
        self._listen(gate)

    def _listen(self, gate: _Gate) -> None:
        gate.listener = socket.create_server(("127.0.0.1", gate.port), backlog=128)
        gate.listener.setblocking(False)
        self._selector.register(gate.listener, selectors.EVENT_READ, gate)

    def _close_gates(self, target: int) -> None:
        for gate in self._gates:
            if gate.target == target and gate.listener is not None:
                self._selector.unregister(gate.listener)
                gate.listener.close()
                gate.listener = None
        self._reset({(c.source, c.target) for c in self._connections if c.target == target})

    def _open_gates(self, target: int) -> None:
        for gate in self._gates:
            if gate.target == target and gate.listener is None:
                self._listen(gate)

    def _set_cut(self, cut: set[Pair]) -> None:
        self._cut = cut
        for connection in tuple(self._connections):
            self._watch(connection.near)
            self._watch(connection.far)

    def _reset(self, pairs: set[Pair]) -> None:
        for connection in tuple(self._connections):
            if (connection.source, connection.target) in pairs:
                self._drop(connection)

    def _take(self, gate: _Gate) -> None:
        if gate.listener is None:
            return
        near, _ = gate.listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", gate.target_port))
        except OSError:
            near.close()
            return
        for end in (near, far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(gate.source, gate.target, near, far)
        self._connections.add(connection)
        self._watch(connection.near)
        self._watch(connection.far)

    def _watch(self, end: _End) -> None:
        """Selects the events that the cuts allow."""
        connection = end.connection
        wanted = 0
        if (connection.source, connection.target) not in self._cut:
            # The first bytes name the client; nothing is forwarded before.
            if end.out and connection.source != UNKNOWN:
                wanted |= selectors.EVENT_WRITE
            if len(end.other.out) < _BUFFERED_BYTES_MAX and not end.other.is_ended:
                wanted |= selectors.EVENT_READ
        is_watched = end.socket in self._selector.get_map()
        if not wanted:
            if is_watched:
                self._selector.unregister(end.socket)
        elif is_watched:
            self._selector.modify(end.socket, wanted, end)
        else:
            self._selector.register(end.socket, wanted, end)

    def _move(self, end: _End, events: int) -> None:
        connection = end.connection
        if connection not in self._connections:
            return  # dropped by an earlier event
        try:
            if events & selectors.EVENT_READ:
                self._receive(end)
            if events & selectors.EVENT_WRITE and connection in self._connections:
                self._send(end)
        except OSError:
            self._drop(connection)
            return
        if connection in self._connections:
            self._watch(end)
            self._watch(end.other)

    def _receive(self, end: _End) -> None:
        connection = end.connection
        chunk = end.socket.recv(_CHUNK_BYTES)
        if not chunk:
            end.other.is_ended = True
        end.other.out += chunk
        if connection.source == UNKNOWN and end is connection.near:
            connection.source = _speaker(connection.far.out)
        if (connection.source, connection.target) in self._cut:
            return
        if connection.source != UNKNOWN or end.other.is_ended:
            self._send(end.other)

    def _send(self, end: _End) -> None:
        if end.out:
            with contextlib.suppress(BlockingIOError):
                del end.out[: end.socket.send(end.out)]
        if end.is_ended and not end.out:
            self._drop(end.connection)

    def _drop(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        for end in (connection.near, connection.far):
            if end.socket in self._selector.get_map():
                self._selector.unregister(end.socket)
            end.socket.close()


def _speaker(start: bytes | bytearray) -> int:
    """The client whose connection begins with these bytes; ``UNKNOWN`` if they are too few."""
    if len(start) < _ID_AT:
        return UNKNOWN
    (length,) = struct.unpack(">h", start[_ID_AT - 2 : _ID_AT])
    if len(start) < _ID_AT + max(length, 0):
        return UNKNOWN
    found = _CLIENT_ID.match(bytes(start[_ID_AT : _ID_AT + max(length, 0)]))
    assert found is not None, f"no broker's client id in {bytes(start)!r}"
    return int(found[1])
