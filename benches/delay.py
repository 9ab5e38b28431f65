"""A slow path to a server: bytes arrive later, in order.

``python -m benches.delay PORT SECONDS`` runs in its own process, so that the measuring process does
not hold it up. It prints its port and ends with its standard input.
"""

import queue
import socket
import subprocess
import sys
import threading
import time

from benches.brokers import ROOT

_PIECE_BYTES = 1 << 20


class Delay:
    """A process that forwards to a local port."""

    def __init__(self, target_port: int, round_trip_s: float) -> None:
        command = [sys.executable, "-m", "benches.delay", str(target_port), str(round_trip_s)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


class _Relay:
    """Listens locally and forwards, each way half of ``round_trip_s`` later.

    Bytes under way do not hold up later ones: many requests may be in flight.
    """

    def __init__(self, target_port: int, round_trip_s: float) -> None:
        self._target_port = target_port
        self._one_way_s = round_trip_s / 2
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
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


def main() -> None:
    print(_Relay(int(sys.argv[1]), float(sys.argv[2])).port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
