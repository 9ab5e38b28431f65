"""Measurements of consumer groups: heartbeats, commits, a group that settles, a bystander."""

import heapq
import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from benches import process
from benches.brokers import BenchError, Broker
from benches.group_members import (
    Driver,
    Member,
    form_groups,
    frame,
    heartbeat_error,
    sync_error,
)
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

GROUPS, MEMBERS_EACH = 10, 100
LARGE_GROUP = 500
WINDOW = 50
"""Requests under way at the same time, each of another member."""
TOPIC = "group-load"
COMMIT_VERSION = 9
HEARTBEAT_INTERVAL_S = 1.0
BYSTANDER_INTERVAL_S = 0.01
Row = dict[str, float]


def closed_loop(
    broker: Broker,
    everybody: Sequence[Member],
    requests: Sequence[bytes],
    error_of: Callable[[bytes], int],
    seconds: float,
) -> Row:
    """``WINDOW`` members at a time have a request under way; each answer starts the next one."""
    driver = Driver(everybody)
    turn = itertools.cycle(range(len(everybody)))
    sent: dict[int, float] = {}
    latencies: list[float] = []
    index_of = {id(member): index for index, member in enumerate(everybody)}

    def send_next() -> None:
        index = next(turn)
        while index in sent:
            index = next(turn)
        sent[index] = time.monotonic()
        everybody[index].send(requests[index])

    def on_answer(member: Member, body: bytes) -> None:
        latencies.append(time.monotonic() - sent.pop(index_of[id(member)]))
        if error_of(body):
            raise BenchError(f"{broker.name}: {ErrorCode(error_of(body)).name}")
        send_next()

    before, began = process.usage(broker.pid), time.monotonic()
    for _ in range(WINDOW):
        send_next()
    while time.monotonic() < began + seconds:
        driver.turn(on_answer, 0.1)
    after, took = process.usage(broker.pid), time.monotonic() - began
    count = len(latencies)
    for index in sent:
        everybody[index].receive()
    driver.close()
    return {**_figures(latencies), **_rates(count, after.cpu_s - before.cpu_s, took)}


def _rates(count: int, cpu_s: float, seconds: float) -> Row:
    return {
        "requests_per_s": count / seconds,
        "requests_per_cpu_s": count / cpu_s,
        "cpu_percent": 100 * cpu_s / seconds,
        "seconds": seconds,
    }


def _figures(latencies: Sequence[float]) -> Row:
    ordered = sorted(latencies)
    at = {"p50_ms": 0.5, "p99_ms": 0.99, "p99.9_ms": 0.999}
    figures = {name: 1000 * ordered[int(part * (len(ordered) - 1))] for name, part in at.items()}
    return {**figures, "max_ms": 1000 * ordered[-1]}


def heartbeats(broker: Broker, warm_s: float, seconds: float) -> Row:
    """1,000 members of ten groups."""
    everybody = _thousand(broker, "heartbeats")
    requests = [member.heartbeat_frame() for member in everybody]
    closed_loop(broker, everybody, requests, heartbeat_error, warm_s)
    row = closed_loop(broker, everybody, requests, heartbeat_error, seconds)
    _close(everybody)
    return row


def commits(partitions: int) -> Callable[[Broker, float, float], Row]:
    """Offset commits of 1,000 members of ten groups, of so many partitions each."""

    def measure(broker: Broker, warm_s: float, seconds: float) -> Row:
        everybody = _thousand(broker, f"commits-{partitions}")
        requests = [_commit(member, partitions) for member in everybody]
        closed_loop(broker, everybody, requests, _commit_error, warm_s)
        row = closed_loop(broker, everybody, requests, _commit_error, seconds)
        _close(everybody)
        return row

    return measure


def _thousand(broker: Broker, name: str) -> list[Member]:
    names = [f"{name}-{number}" for number in range(GROUPS)]
    groups = form_groups(broker.port, names, MEMBERS_EACH)
    # Neighbours in turn are members of different groups.
    return [member for rank in zip(*groups, strict=True) for member in rank]


def _commit(member: Member, partitions: int) -> bytes:
    places = [
        OffsetCommitRequestPartition(index, 1_000_000, 0, committed_metadata="")
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(TOPIC, places)],
    )
    return frame(OFFSET_COMMIT, COMMIT_VERSION, request)


def _commit_error(body: bytes) -> int:
    """The error code of the first partition: after throttle time, counts, name and index."""
    at = 4 + 1 + 1 + len(TOPIC) + 1 + 4
    return int.from_bytes(body[at : at + 2], "big")


def _close(everybody: Sequence[Member]) -> None:
    for member in everybody:
        member.socket.close()


def settle(broker: Broker, warm_s: float, seconds: float) -> Row:
    """One of 500 leaves; meanwhile a member of another group sends 100 heartbeats a second.

    Members send heartbeats once a second, spread evenly, as they must to hear of a rebalance.
    """
    [large] = form_groups(broker.port, ["large"], LARGE_GROUP)
    [[bystander]] = form_groups(broker.port, ["bystander"], 1)
    rounds, delays = [], []
    quiet = _Bystander(bystander)
    for _ in range(max(2, round(seconds / 8))):
        watched = _Bystander(bystander)
        rounds.append(_one_leaves(large, watched))
        delays += watched.latencies
        quiet.run_alone(1.0)
    _close([*large, bystander])
    undisturbed = _figures(quiet.latencies)
    disturbed = _figures(delays)
    return {
        "settle_s": statistics.median(rounds),
        "settle_max_s": max(rounds),
        **disturbed,
        "delay_ms": disturbed["max_ms"] - undisturbed["p50_ms"],
    }


class _Bystander:
    """Heartbeats at fixed times, even before the last answer; latency counts from these times."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.latencies: list[float] = []
        self.next_due = time.monotonic()
        self._request = member.heartbeat_frame()
        self._under_way: deque[float] = deque()

    def send_what_is_due(self) -> None:
        while self.next_due <= time.monotonic():
            self.member.send(self._request)
            self._under_way.append(self.next_due)
            self.next_due += BYSTANDER_INTERVAL_S

    def answered(self, body: bytes) -> None:
        if heartbeat_error(body):
            raise BenchError(f"bystander: {ErrorCode(heartbeat_error(body)).name}")
        self.latencies.append(time.monotonic() - self._under_way.popleft())

    def finish(self) -> None:
        while self._under_way:
            self.answered(self.member.receive())

    def run_alone(self, seconds: float) -> None:
        driver = Driver([self.member])
        self.next_due = time.monotonic()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.send_what_is_due()
            driver.turn(lambda _member, body: self.answered(body), self.next_due - time.monotonic())
        self.finish()
        driver.close()


def _one_leaves(large: list[Member], bystander: _Bystander) -> float:
    """Removes the group's last member; seconds until all others have their assignment."""
    driver = Driver([*large[:-1], bystander.member])
    state = dict.fromkeys(map(id, large[:-1]), "stable")
    now = time.monotonic()
    spread = HEARTBEAT_INTERVAL_S / len(large)
    due = [(now + rank * spread, rank) for rank in range(len(large) - 1)]
    heapq.heapify(due)
    settled = 0

    def on_answer(member: Member, body: bytes) -> None:
        nonlocal settled
        if member is bystander.member:
            bystander.answered(body)
            return
        match state[id(member)]:
            case "heartbeat":
                told = heartbeat_error(body) == ErrorCode.REBALANCE_IN_PROGRESS
                state[id(member)] = "joining" if told else "stable"
                if told:
                    member.send(member.join_frame())
            case "joining":
                everybody = member.joined(body)
                state[id(member)] = "syncing"
                member.send(member.sync_frame(everybody))
            case "syncing":
                if sync_error(body):
                    state[id(member)] = "joining"
                    member.send(member.join_frame())
                else:
                    state[id(member)] = "settled"
                    settled += 1

    leaving = large.pop()
    leaving.leave()
    began = time.monotonic()
    bystander.next_due = began
    while settled < len(large):
        if time.monotonic() > began + 60:
            raise BenchError(f"{settled} of {len(large)} members settled within 60 s")
        while due and due[0][0] <= time.monotonic():
            at, rank = heapq.heappop(due)
            member = large[rank]
            if state[id(member)] == "stable":
                state[id(member)] = "heartbeat"
                member.send(member.heartbeat_frame())
            heapq.heappush(due, (at + HEARTBEAT_INTERVAL_S, rank))
        bystander.send_what_is_due()
        next_due = min(due[0][0], bystander.next_due)
        driver.turn(on_answer, next_due - time.monotonic())
    took = time.monotonic() - began
    bystander.finish()
    driver.close()
    return took
