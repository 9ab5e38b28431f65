from __future__ import annotations

import contextlib
import socket
import threading

_CHUNK_BYTES = 65_536


class FlakyPipe:
    """Forwards connections to a local port until it is closed."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._loses_answers = False
        self._lost = threading.Event()
        self._mute_next = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def lose_answers(self) -> None:
        """Loses the server's bytes until the next ``cut``."""
        self._lost.clear()
        self._loses_answers = True

    def wait_lost(self) -> None:
        """Waits until something was lost. AssertionError after ten seconds."""
        assert self._lost.wait(10), "the server said nothing"

    def mute_next(self, connections: int) -> None:
        """The next ``connections`` connections pass nothing, either way."""
        self._mute_next = connections

    def cut(self) -> None:
        """Cuts all connections; new ones work, except those of ``mute_next``."""
        with self._lock:
            opened, self._open = self._open, []
            self._loses_answers = False
        for each in opened:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._open += [client, server]
                if self._mute_next:
                    self._mute_next -= 1
                    continue
                for pair in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                if is_answer and self._loses_answers:
                    self._lost.set()
                    continue
                target.sendall(chunk)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
