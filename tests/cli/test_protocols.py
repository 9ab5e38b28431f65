import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from pyrklog.cli.app import app
from pyrklog.cli.peer_protocol import is_without_tls
from pyrklog.testing import TestBroker

SASL = ["-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=a", "-X", "sasl.password=b"]


def failed(bootstrap: str, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["-b", bootstrap, "--timeout", "20", *arguments])
    assert done.exit_code == 3, done.output
    assert done.stderr.count("\n") == 2
    return done.stderr


@pytest.mark.parametrize(
    "command", [["produce", "a", "v"], ["consume", "a", "-e"], ["topic", "list"]], ids=" ".join
)
def test_tls_to_a_plain_broker_is_explained(broker: TestBroker, command: list[str]) -> None:
    told = failed(broker.bootstrap, *command, "-X", "security.protocol=SSL")
    assert f"{broker.bootstrap} speaks PLAINTEXT" in told
    assert "fix: the broker speaks PLAINTEXT: leave out -X security.protocol=SSL\n" in told


def test_sasl_to_a_plain_broker_is_explained(broker: TestBroker) -> None:
    protocols = {
        "sasl_ssl": "leave out -X security.protocol=sasl_ssl, or give sasl_plaintext",
        "sasl_plaintext": "knows no SASL\n  fix: leave out -X security.protocol",
    }
    for protocol, fix in protocols.items():
        told = failed(
            broker.bootstrap, "topic", "list", "-X", f"security.protocol={protocol}", *SASL
        )
        assert fix in told


@contextmanager
def server(answer: bytes | None) -> Iterator[tuple[str, int]]:
    """Answers everything with these bytes, or not at all, and keeps what came."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            open_ones = []
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    break
                open_ones.append(connection)
                connection.recv(4096)
                if answer is not None:
                    connection.sendall(answer)
                    connection.close()
            for one in open_ones:
                one.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    "answer",
    [b"\x16\x03\x03", b"\x15\x03\x03\x00\x02\x02\x46", b"HTTP/1.1 400\r\n\r\n", b"", None],
    ids=["TLS", "a TLS alert", "HTTP", "nothing", "silence"],
)
def test_unknown_server_is_not_called_a_plain_broker(answer: bytes | None) -> None:
    with server(answer) as address:
        assert not is_without_tls(address, 0.5)


def test_probe_for_tls_sends_a_client_hello(broker: TestBroker) -> None:
    """A broker would log anything else as a failed handshake."""
    host, _, port = broker.bootstrap.rpartition(":")
    assert is_without_tls((host, int(port)), 3.0)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hear() -> None:
            connection, _ = listening.accept()
            with connection:
                heard.append(connection.recv(4096))
                connection.sendall(b"\x16")

        thread = threading.Thread(target=hear)
        thread.start()
        assert not is_without_tls(listening.getsockname(), 3.0)
        thread.join()
    incoming = ssl.MemoryBIO()
    incoming.write(heard[0])
    side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_bio(
        incoming, ssl.MemoryBIO(), server_side=True
    )
    with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):  # understood, without a certificate
        side.do_handshake()
