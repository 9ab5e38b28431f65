"""The choice among brokers with different metadata, over their own protocol."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from pyrklog.cli.cluster_reading import read_state
from pyrklog.cli.cluster_views import BrokerView, min_insync, newest, newest_view
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import Settings
from pyrklog.observability.health_rules import LogDir
from pyrklog.protocol.cluster import DESCRIBE_CLUSTER, DescribeClusterResponse
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pyrklog.protocol.log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from pyrklog.protocol.metadata import (
    METADATA,
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)

Partitions = list[tuple[int, int, list[int]]]
"""Leader, leader epoch and in-sync replicas of t-0, t-1, ...; replicas are 1, 2, 3."""


def metadata(
    brokers: list[tuple[int, int]], controller: int, partitions: Partitions
) -> MetadataResponse:
    topic = MetadataTopic(
        0,
        "t",
        False,
        [
            MetadataPartition(0, index, leader, epoch, [1, 2, 3], isr, [])
            for index, (leader, epoch, isr) in enumerate(partitions)
        ],
    )
    known = [MetadataBroker(number, "127.0.0.1", port, f"r{number}") for number, port in brokers]
    return MetadataResponse(0, known, "id", controller, [topic])


def view(number: int, alive: list[int], controller: int, *epochs: int) -> BrokerView:
    partitions: Partitions = [(1, epoch, [1]) for epoch in epochs]
    told = metadata([(one, 9092) for one in alive], controller, partitions)
    return BrokerView(number, ("h", number), told)


@pytest.mark.parametrize(
    ("views", "believed"),
    [
        ([view(1, [1, 2], 1, 3), view(2, [1, 2], 1, 3)], 1),  # the controller's, among equals
        ([view(1, [1, 2], 2, 3), view(2, [1, 2], 2, 3)], 2),
        ([view(1, [1, 2], 1, 3), view(2, [1, 2], 1, 4)], 2),  # it has heard of newer leaders
        # 3 is cut off; it still knows a topic that was deleted since
        ([view(3, [1, 2, 3], 3, 3, 9), view(1, [1, 2], 1, 4), view(2, [1, 2], 1, 3)], 1),
        # 2 and 3 are cut off
        ([view(3, [1, 2, 3], 3, 3), view(2, [1, 2, 3], 3, 3), view(1, [1], 1, 3)], 1),
    ],
)
def test_newest_view_of_the_cluster_is_believed(views: list[BrokerView], believed: int) -> None:
    assert newest(views).number == believed


API_VERSIONS_KEY = 18


class FakeBroker:
    """Answers these commands' requests; without ``told`` it accepts connections and is silent."""

    def __init__(self) -> None:
        self.told: MetadataResponse | None = None
        self.min_insync: dict[str, str | None] = {}
        self.log_dirs: list[DescribeLogDirsResult] = []
        self.log_dirs_version = 4
        self.controller: int | None = None
        """In answers to DescribeCluster; None: as in metadata."""
        self.silent: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            if self.told is None:
                self.silent.append(connection)
                continue
            with connection:
                while size := connection.recv(4, socket.MSG_WAITALL):
                    self._answer(connection, *struct.unpack(">i", size))

    def _answer(self, connection: socket.socket, size: int) -> None:
        frame = connection.recv(size, socket.MSG_WAITALL)
        key, version = struct.unpack_from(">hh", frame)
        if key == METADATA.key:
            assert self.told is not None
            body = METADATA.encode_response(self.told, version)
        elif key == API_VERSIONS_KEY:
            body = bytes(6)  # no error, and no API: nobody looks
        elif key == DESCRIBE_CLUSTER.key:
            assert self.told is not None
            controller = self.told.controller_id if self.controller is None else self.controller
            described = DescribeClusterResponse(controller_id=controller)
            body = bytes(1) + DESCRIBE_CLUSTER.encode_response(described, version)
        elif key == DESCRIBE_LOG_DIRS.key:
            if version > self.log_dirs_version:
                connection.shutdown(socket.SHUT_RDWR)
                return
            found = DescribeLogDirsResponse(results=self.log_dirs)
            body = bytes(version >= 2) + DESCRIBE_LOG_DIRS.encode_response(found, version)
        else:
            results = [
                DescribeConfigsResult(
                    0 if value is not None else 3,
                    None,
                    2,
                    name,
                    [DescribeConfigsResourceResult("min.insync.replicas", value, False)],
                )
                for name, value in self.min_insync.items()
            ]
            body = DESCRIBE_CONFIGS.encode_response(DescribeConfigsResponse(0, results), version)
        answer = frame[4:8] + body
        connection.sendall(struct.pack(">i", len(answer)) + answer)

    def close(self) -> None:
        if self._server.fileno() < 0:
            return
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        for connection in self.silent:
            connection.close()


@pytest.fixture
def new_broker() -> Iterator[Callable[[], FakeBroker]]:
    made: list[FakeBroker] = []

    def make() -> FakeBroker:
        made.append(FakeBroker())
        return made[-1]

    yield make
    for one in made:
        one.close()


def settings(*brokers: FakeBroker, timeout_s: float = 5.0) -> Settings:
    return Settings(",".join(f"127.0.0.1:{one.port}" for one in brokers), timeout_s=timeout_s)


def test_view_of_another_broker_can_be_newer_than_the_named_ones(
    new_broker: Callable[[], FakeBroker],
) -> None:
    one, two, cut_off = new_broker(), new_broker(), new_broker()
    everyone = [(1, one.port), (2, two.port), (3, cut_off.port)]
    cut_off.told = metadata(everyone, 3, [(3, 5, [1, 2, 3])])
    one.told = two.told = metadata(everyone[:2], 1, [(1, 6, [1, 2])])
    two.min_insync = one.min_insync = {"t": "2"}
    state = read_state(Connection(settings(cut_off)), lambda partition: len(partition.isr) < 3)
    assert (state.alive, state.silent, state.controller) == ([1, 2], [], 1)
    assert [(part.leader, part.isr, part.min_insync) for part in state.partitions] == [
        (1, [1, 2], 2)
    ]
    assert [broker.rack for broker in state.brokers] == ["r1", "r2"]


def test_stalled_broker_is_distinguished_from_a_dead_one(
    new_broker: Callable[[], FakeBroker],
) -> None:
    one, paused = new_broker(), new_broker()
    one.told = metadata([(1, one.port), (2, paused.port)], 2, [(2, 5, [1, 2, 3])])
    view, silent = newest_view(settings(paused, one, timeout_s=2.0))
    assert (view.number, silent) == (1, {2: "timed out"})


def test_cluster_view_fails_when_no_broker_answers(new_broker: Callable[[], FakeBroker]) -> None:
    paused = new_broker()
    with pytest.raises(CliError, match="answers") as caught:
        newest_view(settings(paused, timeout_s=0.2))
    assert caught.value.code is Exit.UNREACHABLE


def test_addresses_that_lead_nowhere_from_here(new_broker: Callable[[], FakeBroker]) -> None:
    one, closed = new_broker(), new_broker()
    closed.close()
    one.told = metadata([(1, closed.port)], 1, [])
    found, silent = newest_view(settings(one))
    assert found.metadata == one.told
    assert silent == {1: "Connection refused"}


def test_directories_that_take_no_records_are_told(new_broker: Callable[[], FakeBroker]) -> None:
    one, old = new_broker(), new_broker()
    one.told = old.told = metadata([(1, one.port), (2, old.port)], 1, [(1, 1, [1])])
    one.log_dirs = [
        DescribeLogDirsResult(0, "/well", total_bytes=9, usable_bytes=1),
        DescribeLogDirsResult(0, "/full", total_bytes=9, usable_bytes=0),
        DescribeLogDirsResult(56, "/lost"),
        DescribeLogDirsResult(29, "/not-for-you"),
    ]
    # An old Kafka that does not report bytes.
    old.log_dirs = [DescribeLogDirsResult(0, "/well"), DescribeLogDirsResult(56, "/lost")]
    old.log_dirs_version = 1
    connection = Connection(settings(one))
    state = read_state(connection, log_dirs=True)
    assert state.log_dirs == [
        LogDir(1, "/full", False),
        LogDir(1, "/lost", True),
        LogDir(2, "/lost", True),
    ]
    assert read_state(connection).log_dirs == ()


def test_brokers_that_have_lost_zookeeper_are_told(new_broker: Callable[[], FakeBroker]) -> None:
    one, two = new_broker(), new_broker()
    one.told = two.told = metadata([(1, one.port), (2, two.port)], 1, [(1, 1, [1])])
    connection = Connection(settings(one))
    assert read_state(connection, log_dirs=True).without_store == []
    two.controller = -1
    assert read_state(connection, log_dirs=True).without_store == [2]
    one.controller = -1
    assert read_state(connection, log_dirs=True).without_store == [1, 2]
    assert read_state(connection).without_store == ()
    # The controller is dead, too.
    one.told = two.told = metadata([(1, one.port), (2, two.port)], 3, [(1, 1, [1])])
    assert read_state(connection, log_dirs=True).without_store == [1, 2]
    # Between two controllers metadata names none either.
    one.told = two.told = metadata([(1, one.port), (2, two.port)], -1, [(1, 1, [1])])
    assert read_state(connection, log_dirs=True).without_store == []


def test_deleted_topic_has_the_default_minimum(
    new_broker: Callable[[], FakeBroker],
) -> None:
    one = new_broker()
    one.told = metadata([(1, one.port)], 1, [(1, 1, [1])])
    one.min_insync = {"t": None}
    state = read_state(Connection(settings(one)), lambda _: True)
    assert [part.min_insync for part in state.partitions] == [1]


def test_min_insync_is_read_among_other_options() -> None:
    several = [{"name": "x", "value": "7"}, {"name": "min.insync.replicas", "value": "2"}]
    assert min_insync(several) == 2
    assert min_insync([{"name": "min.insync.replicas", "value": None}]) == 1
    assert min_insync([]) == 1
