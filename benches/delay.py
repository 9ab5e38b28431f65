"""A way to a server that takes longer: bytes arrive some time after they were sent, in order."""

import queue
import socket
import threading
import time

_PIECE_BYTES = 1 << 20


class Delay:
    """Listens on the loopback interface and passes on, each way half of `round_trip_s` later.

    What is under way does not hold up what follows: many requests may be in flight.
    """

    def __init__(self, target_port: int, round_trip_s: float) -> None:
        self._target_port = target_port
        self._one_way_s = round_trip_s / 2
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Takes no more connections; those that stand end with their peers."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pass(client, server)
            self._pass(server, client)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        pieces: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(source, pieces), daemon=True).start()
        threading.Thread(target=_write, args=(pieces, sink), daemon=True).start()

    def _read(
        self, source: socket.socket, pieces: "queue.SimpleQueue[tuple[float, bytes]]"
    ) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(_PIECE_BYTES)
            except OSError:
                data = b""
            pieces.put((time.monotonic() + self._one_way_s, data))


def _write(pieces: "queue.SimpleQueue[tuple[float, bytes]]", sink: socket.socket) -> None:
    while True:
        due, data = pieces.get()
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)
        except OSError:
            return
