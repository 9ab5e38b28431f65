"""What brokers tell about themselves, a watched verdict, and the page of a restart."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from pyrklog.base.clock_reading import now_ms
from pyrklog.cli import broker_healths, cluster
from pyrklog.cli.broker_healths import (
    OF_OURS,
    ask_healths,
    leaving_of,
    signs_of,
    with_reassignments,
)
from pyrklog.cli.cluster_reading import read_state
from pyrklog.cli.cluster_tables import restart_page
from pyrklog.cli.failures import Exit
from pyrklog.cli.options import OutputFormat, Settings
from pyrklog.observability.health_rules import (
    BrokerState,
    ClusterState,
    PartitionState,
    Reason,
    examine,
)
from pyrklog.observability.restart_rules import restart_of
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.health import BROKER_HEALTH, BrokerHealthResponse, HealthReason
from pyrklog.protocol.reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


class FakeBroker:
    """Answers DescribeConfigs as one of ours or of Apache's, BrokerHealth where it has any, and
    ListPartitionReassignments."""

    def __init__(self, number: int, *, is_ours: bool = True) -> None:
        self.number = number
        self.is_ours = is_ours
        self.health: BrokerHealthResponse | None = None
        self.refusals = 0
        """Requests for health that it refuses first."""
        self.adding: list[int] = []
        self.keys: list[int] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def state(self) -> BrokerState:
        return BrokerState(self.number, "127.0.0.1", self._server.getsockname()[1])

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                while size := connection.recv(4, socket.MSG_WAITALL):
                    (wanted,) = struct.unpack(">i", size)
                    frame = connection.recv(wanted, socket.MSG_WAITALL)
                    body = self._body(*struct.unpack_from(">hh", frame))
                    if body is None:
                        break
                    answer = frame[4:8] + body
                    connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _body(self, key: int, version: int) -> bytes | None:
        self.keys.append(key)
        if key == DESCRIBE_CONFIGS.key:
            own = [DescribeConfigsResourceResult(OF_OURS, "/d", False)] if self.is_ours else []
            result = DescribeConfigsResult(0, None, 4, str(self.number), own)
            return DESCRIBE_CONFIGS.encode_response(DescribeConfigsResponse(0, [result]), version)
        if key == BROKER_HEALTH.key and self.refusals:
            self.refusals -= 1
            refused = BrokerHealthResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            return b"\0" + BROKER_HEALTH.encode_response(refused, version)
        if key == BROKER_HEALTH.key and self.health is not None:
            return b"\0" + BROKER_HEALTH.encode_response(self.health, version)
        if key == LIST_PARTITION_REASSIGNMENTS.key and self.adding:
            moving = OngoingPartitionReassignment(0, [1, 2, 3], self.adding, [])
            found = ListPartitionReassignmentsResponse(
                topics=[OngoingTopicReassignment("t", [moving])]
            )
            return b"\0" + LIST_PARTITION_REASSIGNMENTS.encode_response(found, version)
        return None

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


New = Callable[..., FakeBroker]


@pytest.fixture
def new_broker() -> Iterator[New]:
    made: list[FakeBroker] = []

    def make(number: int, **how: Any) -> FakeBroker:
        made.append(FakeBroker(number, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


def state_of(*brokers: FakeBroker, isr: tuple[int, ...] = (1, 2)) -> ClusterState:
    partition = PartitionState("t", 0, 1, [1, 2, 3], isr)
    return ClusterState("c", [one.state for one in brokers], 1, [partition])


def answer(number: int, controller: int, *reasons: HealthReason) -> BrokerHealthResponse:
    return BrokerHealthResponse(
        broker=number, controller_id=controller, reasons=list(reasons), clock_ms=now_ms()
    )


STUCK = HealthReason("reads_stuck", "degraded", "reads stand still", 2, "look", 0, [])
SMALL = HealthReason("cache_small", "info", "small", 2, None, 0, [])
LATER = HealthReason("of_a_later_version", "terrible", "odd", -1, None, 1, ["t-0"])


def test_only_our_brokers_are_asked_for_their_health(new_broker: New) -> None:
    ours, apaches, older = new_broker(1), new_broker(2, is_ours=False), new_broker(3)
    ours.health = answer(1, 1, STUCK)
    apaches.health = answer(2, 1, STUCK)
    found = ask_healths(state_of(ours, apaches, older), 5.0)
    assert list(found) == [1]
    assert apaches.keys == [DESCRIBE_CONFIGS.key]
    assert older.keys == [DESCRIBE_CONFIGS.key, BROKER_HEALTH.key]


def test_a_broker_that_refuses_for_a_while_is_asked_again(
    new_broker: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = new_broker(1), new_broker(2)
    for broker in (one, two):
        broker.health = answer(broker.number, 1, STUCK)
    one.refusals = 2
    (told, _) = ask_healths(state_of(one, two), 60.0).values()
    assert [reason.kind for reason in told.reasons] == ["reads_stuck"]
    assert one.keys == [DESCRIBE_CONFIGS.key, *[BROKER_HEALTH.key] * 3]
    one.refusals = 10**9
    monkeypatch.setattr(broker_healths, "RETRY_PAUSE_S", 0.0)
    assert list(ask_healths(state_of(one, two), 0.5)) == [2]


def test_findings_of_brokers_are_told_with_those_of_the_metadata(new_broker: New) -> None:
    one, two = new_broker(1), new_broker(2)
    one.health = answer(1, 1, LATER)
    two.health = answer(2, 2, STUCK, SMALL)
    state = state_of(one, two, isr=(1, 2, 3))
    found = signs_of(ask_healths(state, 5.0))
    assert [(reason.kind, reason.severity, reason.broker) for reason in found] == [
        ("controller_doubled", "error", None),
        ("of_a_later_version", "error", None),
        ("reads_stuck", "degraded", 2),
    ]
    assert [reason.kind for reason in examine(replace(state, signs=found))] == [
        "missing",  # broker 3 is not registered
        "controller_doubled",
        "of_a_later_version",
        "reads_stuck",
    ]


def test_a_clock_that_differs_is_told(new_broker: New) -> None:
    brokers = [new_broker(number) for number in (1, 2, 3)]
    for one in brokers:
        one.health = answer(one.number, 1)
    assert brokers[2].health is not None
    brokers[2].health.clock_ms += 60_000
    (found,) = signs_of(ask_healths(state_of(*brokers), 5.0))
    assert (found.kind, found.broker) == ("clock_skew", 3)


def test_the_same_is_told_once() -> None:
    away = Reason("zookeeper_unreached", "degraded", "for 9 s now", 2)
    brokers = [BrokerState(1, "h", 1), BrokerState(2, "h", 2)]
    state = ClusterState("c", brokers, 1, [], without_store=[2], signs=[away])
    assert examine(state) == [away]
    nobody = replace(state, without_store=[1, 2])
    assert [one.kind for one in examine(nobody)] == ["zookeeper_lost"]
    twice = [Reason("disk_filling", "warning", path, 1) for path in ("/a", "/b")]
    assert [one.what for one in examine(replace(state, signs=twice))][1:] == ["/a", "/b"]


def test_the_controller_is_asked_what_is_being_added(new_broker: New) -> None:
    one, two = new_broker(1), new_broker(2)
    one.adding = two.adding = [3]
    (moving,) = with_reassignments(state_of(one, two), 5.0).partitions
    assert moving.adding == [3]
    assert two.keys == []
    one.keys.clear()
    whole = state_of(one, two, isr=(1, 2, 3))
    assert with_reassignments(whole, 5.0) == whole
    assert one.keys == [], "nothing is behind"
    one.adding = []  # a Kafka that does not know the request closes the connection
    assert with_reassignments(state_of(one, two), 5.0) == state_of(one, two)


def test_what_may_be_a_move_is_no_error() -> None:
    brokers = [BrokerState(number, "h", number) for number in (1, 2)]
    late = PartitionState("t", 0, 1, [1, 2, 3], [1])
    state = ClusterState("c", brokers, 1, [late])
    assert [(one.kind, one.severity) for one in examine(state)] == [
        ("behind", "error"),
        ("missing", "error"),
    ]
    behind, missing = sorted(examine(replace(state, knows_moves=False)), key=lambda one: one.kind)
    assert (behind.severity, missing.severity) == ("degraded", "error")
    assert "kafka-reassign-partitions.sh --list" in (behind.fix or "")


def test_librdkafka_tells_no_moves() -> None:
    partition = SimpleNamespace(id=0, leader=1, replicas=[1, 2], isrs=[1])
    topic = SimpleNamespace(partitions={0: partition})
    broker = SimpleNamespace(host="h", port=1)
    metadata = SimpleNamespace(
        brokers={1: broker, 2: broker}, topics={"t": topic}, controller_id=1, cluster_id="c"
    )
    connection: Any = SimpleNamespace(
        settings=SimpleNamespace(security_protocol="ssl"),
        metadata=lambda: metadata,
        admin=SimpleNamespace(describe_cluster=None),
        admin_result=lambda *_: SimpleNamespace(nodes=[]),
    )
    (behind,) = examine(read_state(connection))
    assert (behind.kind, behind.severity) == ("behind", "degraded")


# --- watching ------------------------------------------------------------------------------------

WELL = ClusterState("c", [BrokerState(1, "h", 1)], 1, [])
BAD = [Reason("offline", "error", "without a leader")]


class Watched:
    """Verdicts one after the other, each a second after the last; the last one stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, verdicts: list[list[Reason]]) -> None:
        self.seconds = 0.0
        self._verdicts = verdicts
        monkeypatch.setattr(time, "monotonic", lambda: self.seconds)
        monkeypatch.setattr(time, "sleep", self._sleep)
        monkeypatch.setattr(cluster, "connect", lambda _: object())
        monkeypatch.setattr(cluster, "_examined", self._examined)

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def _examined(self, _connection: object) -> tuple[ClusterState, list[Reason]]:
        return WELL, self._verdicts[min(int(self.seconds), len(self._verdicts) - 1)]

    def watch(self, until_s: float | None, limit_s: float | None) -> bool:
        return cluster._watch(Settings(), OutputFormat.TABLE, until_s, limit_s)


def test_a_verdict_that_lasts_long_enough_ends_the_watching(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(monkeypatch, [BAD, [], [], BAD, []])
    assert watched.watch(3.0, None)
    assert watched.seconds == 7.0, "from the fourth second on"
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "NOT",
        "HEALTHY",
        "NOT",
        "HEALTHY",
    ]


def test_a_verdict_that_does_not_last_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    flapping = [BAD, []] * 10
    assert not Watched(monkeypatch, flapping).watch(3.0, 9.5)
    assert not Watched(monkeypatch, [BAD]).watch(None, 2.0)
    assert Watched(monkeypatch, [[]]).watch(None, 2.0)
    assert Watched(monkeypatch, [BAD, []]).watch(0.0, None)


def test_times_within_a_sentence_are_no_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = [[Reason("zookeeper_unreached", "degraded", f"for {n} s", 1)] for n in range(5)]
    assert not Watched(monkeypatch, away).watch(None, 4.0)
    assert capsys.readouterr().out == "DEGRADED  for 0 s\n"


# --- restarts ------------------------------------------------------------------------------------


def page(*partitions: tuple[int, list[int], list[int], int], **more: Any) -> str:
    found = [PartitionState("t", index, *one) for index, one in enumerate(partitions)]
    brokers = [BrokerState(number, "h", number) for number in (1, 2, 3)]
    return restart_page(restart_of(ClusterState("c", brokers, 2, found, **more), 1))


def test_the_page_of_a_restart() -> None:
    assert page((1, [1, 2, 3], [1, 2, 3], 2)) == "yes\n"
    assert page((1, [1, 2], [1, 2], 1)) == (
        "yes, with a warning: 1 partition would have one in-sync replica meanwhile (t-0)\n"
    )
    assert page((1, [1], [1], 1)).splitlines() == [
        "no, 1 partition in the way",
        "TOPIC  PARTITION  REASON      LEADER  ISR  MIN ISR",
        "t              0  leaderless       1  1          1",
    ]


def test_brokers_tell_that_they_are_ending(new_broker: New) -> None:
    one, two = new_broker(1), new_broker(2)
    one.health, two.health = answer(1, 1), answer(2, 1)
    two.health.stage = "ending"
    assert leaving_of(ask_healths(state_of(one, two), 5.0)) == [2]


def test_the_page_of_a_restart_beside_a_broker_that_is_ending() -> None:
    assert page((1, [1, 2, 3], [1, 2, 3], 1), leaving=[3]).startswith(
        "yes, with a warning: broker 3 is ending, and does not count; 1 partition would have one"
    )
    assert page((1, [1, 2, 3], [1, 2, 3], 2), leaving=[3]).splitlines()[0] == (
        "no, 1 partition in the way; broker 3 is ending, and does not count"
    )


def test_no_restart_without_zookeeper() -> None:
    well = (1, [1, 2, 3], [1, 2, 3], 2)
    assert page(well, without_store=[1, 2, 3]) == (
        "no: no broker reaches ZooKeeper: no leader would be replaced\n"
    )
    assert page(well, without_store=[3]) == (
        "yes, with a warning: broker 3 does not reach ZooKeeper, and may soon count as gone\n"
    )
    both = page((1, [1], [1], 1), without_store=[1, 2, 3]).splitlines()
    assert both[0] == "no, 1 partition in the way"
    assert both[1].startswith("no: no broker reaches ZooKeeper")
    assert both[-1].startswith("t  ")


def test_a_broker_that_is_not_alive_cannot_be_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyrklog.cli.cluster_reading

    monkeypatch.setattr(cluster, "connect", lambda _: object())
    monkeypatch.setattr(pyrklog.cli.cluster_reading, "read_state", lambda *_, **__: WELL)
    ended = CliRunner().invoke(cluster.app, ["restart-safe", "9"])
    assert (ended.exit_code, ended.stdout) == (Exit.NOT_FOUND, "")
    assert ended.stderr.startswith("error[PK77]: no broker 9 is alive\n  fix: brokers alive: 1")
