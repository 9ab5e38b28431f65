"""Requests to made-up brokers: versions, and answers that do not come."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyrklog.cli.cluster_requests import ClusterRequests, NotServedError, error_code, refused
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import Settings
from pyrklog.protocol.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.transaction_admin import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

Answer = Callable[[int, int], bytes | None]
"""Makes a body of an API key and a version; None closes the connection, b"" says nothing."""


class FakeBroker:
    """Serves ApiVersions, and other requests by ``answer``."""

    def __init__(self, versions: dict[int, tuple[int, int]], answer: Answer) -> None:
        self._versions = [ApiVersion(key, *bounds) for key, bounds in versions.items()]
        self._answer = answer
        self.asked: list[tuple[int, int]] = []
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.getsockname()
        return host, port

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            with connection:
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        while True:
            try:
                head = connection.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return
                frame = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
            except OSError:
                return
            key, version, correlation = struct.unpack_from(">hhi", frame)
            if key == API_VERSIONS.key:
                told = ApiVersionsResponse(0, self._versions)
                body: bytes | None = API_VERSIONS.encode_response(told, 0)
            else:
                self.asked.append((key, version))
                body = self._answer(key, version)
            if body is None:
                return
            if body:
                answer = struct.pack(">i", correlation) + body
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in self._open:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed before
        self._thread.join()


@pytest.fixture
def make() -> Iterator[Callable[..., tuple[FakeBroker, ClusterRequests]]]:
    """A broker, and requests to it."""
    brokers: list[FakeBroker] = []
    asking: list[ClusterRequests] = []

    def start(
        versions: dict[int, tuple[int, int]], answer: Answer, timeout_s: float = 20.0
    ) -> tuple[FakeBroker, ClusterRequests]:
        broker = FakeBroker(versions, answer)
        brokers.append(broker)
        host, port = broker.address
        asking.append(ClusterRequests(Settings(f"{host}:{port}", timeout_s=timeout_s)))
        return broker, asking[-1]

    yield start
    for requests in asking:
        requests.__exit__()
    for broker in brokers:
        broker.close()


def configs(_key: int, version: int) -> bytes:
    return DESCRIBE_CONFIGS.encode_response(DescribeConfigsResponse(7), version)


REQUEST = DescribeConfigsRequest([])
Make = Callable[..., Any]


@pytest.mark.parametrize(("served", "used"), [((0, 2), 2), ((2, 3), 3), ((1, 1), 1)])
def test_the_newest_version_of_both_is_used(make: Make, served: tuple[int, int], used: int) -> None:
    broker, requests = make({DESCRIBE_CONFIGS.key: served}, configs)
    for _ in range(2):
        told = requests.ask(broker.address, DESCRIBE_CONFIGS, REQUEST)
        assert told.throttle_time_ms == 7
    assert requests.version(broker.address, DESCRIBE_CONFIGS) == used
    assert broker.asked == [(DESCRIBE_CONFIGS.key, used)] * 2
    assert broker.connections == 1


@pytest.mark.parametrize("served", [{}, {LIST_TRANSACTIONS.key: (2, 9)}])
def test_an_api_that_is_not_served(make: Make, served: dict[int, tuple[int, int]]) -> None:
    broker, requests = make(served, configs)
    host, port = broker.address
    with pytest.raises(NotServedError) as caught:
        requests.ask_any(LIST_TRANSACTIONS, ListTransactionsRequest())
    assert caught.value.what == f"the broker at {host}:{port} does not serve ListTransactions"
    assert caught.value.code is Exit.FAILED
    assert broker.asked == []


def test_a_connection_that_breaks_is_opened_again(make: Make) -> None:
    answers = iter([None, b"x"])

    def answer(key: int, version: int) -> bytes | None:
        return next(answers, configs(key, version))

    broker, requests = make({DESCRIBE_CONFIGS.key: (1, 1)}, answer)
    for _ in range(2):
        with pytest.raises(CliError, match=r"the broker at 127\.0\.0\.1") as caught:
            requests.ask(broker.address, DESCRIBE_CONFIGS, REQUEST)
        assert caught.value.code is Exit.UNREACHABLE
    assert requests.ask(broker.address, DESCRIBE_CONFIGS, REQUEST).results == []
    assert broker.connections == 3


def test_a_silent_broker(make: Make) -> None:
    broker, requests = make({DESCRIBE_CONFIGS.key: (1, 1)}, lambda *_: b"", timeout_s=0.2)
    with pytest.raises(CliError) as caught:
        requests.ask(broker.address, DESCRIBE_CONFIGS, REQUEST)
    assert caught.value.code is Exit.TIMED_OUT
    host, port = broker.address
    assert caught.value.what == f"no answer from {host}:{port} within 0.2 s"


def test_a_port_that_never_answers_may_be_no_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"127.0.0.1:{server.getsockname()[1]}"
        requests = ClusterRequests(Settings(where, timeout_s=0.2))
        with requests, pytest.raises(CliError) as caught:
            requests.metadata()
    assert caught.value.text() == (
        f"error[PK32]: no answer from {where} within 0.2 s; it may be no broker\n"
        "  fix: name another broker with -b HOST:PORT, or wait longer with --timeout SECONDS"
    )


def test_an_argument_beyond_the_protocols_bounds(make: Make) -> None:
    broker, requests = make({DESCRIBE_TRANSACTIONS.key: (0, 0)}, configs)
    request = DescribeTransactionsRequest(["x" * 70_000])
    with pytest.raises(CliError, match="too long") as caught:
        requests.ask(broker.address, DESCRIBE_TRANSACTIONS, request)
    assert caught.value.code is Exit.USAGE


def test_waiting_ends_with_the_timeout() -> None:
    requests = ClusterRequests(Settings(timeout_s=60.0))
    assert requests.wait()
    requests.deadline = 0.0
    assert not requests.wait()


@pytest.mark.parametrize("protocol", ["SSL", "sasl_plaintext", " SASL_SSL "])
def test_encryption_and_authentication_are_refused(protocol: str) -> None:
    with pytest.raises(CliError, match=r"cannot use security\.protocol="):
        ClusterRequests(Settings(properties={"security.protocol": protocol}))


def test_errors_of_brokers_have_exit_codes() -> None:
    assert error_code(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(CliError, match="unknown error 9999"):
        error_code(9999)
    denied = refused("x", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert (denied.code, denied.what.startswith("x: ")) == (Exit.DENIED, True)
    assert refused("x", ErrorCode.INVALID_REQUEST, "why").what == "x: why"
