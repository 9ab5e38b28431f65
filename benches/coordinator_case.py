"""A coordinator with many commits behind it is killed: when do its groups go on?

A hundred groups with a member each commit the offsets of a hundred partitions again and again. The
coordinator is killed with SIGKILL under these commits and started on the same data. Each group goes
on when its member, with its old id and generation, gets its last acknowledged offsets, and has
committed anew.
"""

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from benches import process, topics
from benches.brokers import BenchError, Broker
from benches.effort import Effort, Row, Scenario
from benches.group_members import Driver, Member, form_groups, frame
from benches.meter import memory
from benches.stage import Stage
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.offsets import (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

GROUPS = 100
PARTITIONS = 100
TOPIC = "coordinator"
WINDOW = 50
COMMIT_VERSION = 9
FETCH_VERSION = 9
_RETRY_S = 0.01
_PATIENCE_S = 600.0
# A record of one commit in the log, with its part of a batch.
_RECORD_BYTES = 110
_ANY_OFFSET = 0x5AC3_96F1_5AC3_96F1
_ANY_OFFSET_BYTES = _ANY_OFFSET.to_bytes(8, "big")
_PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass
class Committed:
    """A group's member, and the offset that it has committed for every partition."""

    member: Member
    acknowledged: int
    sent: int

    def commit_frame(self, offset: int) -> bytes:
        return self._commit_frame.replace(_ANY_OFFSET_BYTES, offset.to_bytes(8, "big"))

    @cached_property
    def _commit_frame(self) -> bytes:
        """With a value in place of the offset that occurs nowhere else."""
        places = [
            OffsetCommitRequestPartition(index, _ANY_OFFSET, -1, committed_metadata="")
            for index in range(PARTITIONS)
        ]
        request = OffsetCommitRequest(
            group_id=self.member.group,
            generation_id_or_member_epoch=self.member.generation,
            member_id=self.member.member_id,
            topics=[OffsetCommitRequestTopic(TOPIC, places)],
        )
        return frame(OFFSET_COMMIT, COMMIT_VERSION, request)

    def fetch_frame(self) -> bytes:
        wanted = [OffsetFetchRequestTopic(TOPIC, list(range(PARTITIONS)))]
        asked = OffsetFetchRequestGroup(self.member.group, topics=wanted)
        return frame(OFFSET_FETCH, FETCH_VERSION, OffsetFetchRequest(groups=[asked]))


def commit_error(body: bytes) -> int:
    """The error code of the first partition: after throttle time, counts, name and index. A group
    refuses all of them or none."""
    at = 4 + 1 + 1 + len(TOPIC) + 1 + 4
    return int.from_bytes(body[at : at + 2], "big")


def fetched(body: bytes) -> tuple[int, set[int]]:
    """The error code and the different offsets of the partitions."""
    [group] = OFFSET_FETCH.decode_response(body, FETCH_VERSION).groups
    places = [one for topic in group.topics for one in topic.partitions]
    codes = [group.error_code, *(one.error_code for one in places)]
    return next(filter(None, codes), 0), {one.committed_offset for one in places}


def commit_many(groups: Sequence[Committed], records: int) -> float:
    """Commits until so many offsets are in the log; returns the offsets a second."""
    driver = Driver([one.member for one in groups])
    by_member = {id(one.member): one for one in groups}
    turn = itertools.cycle(groups)
    under_way = 0
    began = time.monotonic()
    left = -(-records // PARTITIONS)

    def send_next() -> None:
        nonlocal under_way, left
        if left > 0:
            one = next(turn)
            while one.sent > one.acknowledged:
                one = next(turn)
            one.sent += 1
            one.member.send(one.commit_frame(one.sent))
            under_way += 1
            left -= 1

    def on_answer(member: Member, body: bytes) -> None:
        nonlocal under_way
        code = commit_error(body)
        if code:
            raise BenchError(f"commit of {member.group}: {ErrorCode(code).name}")
        one = by_member[id(member)]
        one.acknowledged = one.sent
        under_way -= 1
        send_next()

    for _ in range(min(WINDOW, len(groups))):
        send_next()
    while under_way:
        driver.turn(on_answer, 1.0)
    driver.close()
    return records / (time.monotonic() - began)


class GoingOn(threading.Thread):
    """Asks for every group until all go on; ``done_at`` is the monotonic time of the last."""

    def __init__(self, port: int, groups: Sequence[Committed]) -> None:
        super().__init__()
        self.done_at = 0.0
        self.first_at = 0.0
        self._port = port
        self._left = list(groups)
        self._failure: Exception | None = None

    def run(self) -> None:
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while self._left:
                if time.monotonic() > deadline:
                    raise BenchError(f"{len(self._left)} groups do not go on")
                try:
                    self._look()
                except OSError:
                    time.sleep(_RETRY_S)
        except Exception as error:
            self._failure = error

    def result(self) -> tuple[float, float]:
        """Monotonic times of the first group and of the last."""
        self.join()
        if self._failure is not None:
            raise self._failure
        return self.first_at, self.done_at

    def _look(self) -> None:
        asking = Member(self._port, "nobody")
        try:
            while self._left:
                self._left = [one for one in self._left if not self._goes_on(asking, one)]
                if self._left:
                    time.sleep(_RETRY_S)
        finally:
            asking.socket.close()

    def _goes_on(self, asking: Member, one: Committed) -> bool:
        asking.send(one.fetch_frame())
        code, offsets = fetched(asking.receive())
        if code in _PASSING:
            return False
        if code:
            raise BenchError(f"offsets of {one.member.group}: {ErrorCode(code).name}")
        # A commit without an answer may have come through.
        if not offsets <= {one.acknowledged, one.sent}:
            raise BenchError(
                f"{one.member.group} lost offsets: {sorted(offsets)} for {one.acknowledged}"
            )
        asking.send(one.commit_frame(one.sent + 1))
        code = commit_error(asking.receive())
        if code in _PASSING:
            return False
        if code:
            raise BenchError(f"{one.member.group} does not go on: {ErrorCode(code).name}")
        self.done_at = time.monotonic()
        self.first_at = self.first_at or self.done_at
        return True


def measure(stage: Stage, effort: Effort) -> Row:
    """``first_s``: the first group goes on; ``all_s``: all do. From the process's creation."""
    broker = stage.prepare()
    stage.start(broker)
    topics.create(broker, TOPIC, PARTITIONS)
    topics.wait_until_led(broker, TOPIC)
    names = [f"coordinated-{number}" for number in range(GROUPS)]
    formed = form_groups(broker.port, names, 1)
    groups = [Committed(member, 0, 0) for [member] in formed]
    rate = commit_many(groups, effort.commits)
    _kill_under_commits(broker, groups)
    probe = GoingOn(broker.port, groups)
    began = time.monotonic()
    probe.start()
    metadata_s = stage.start(broker, _PATIENCE_S)
    first, last = probe.result()
    row: Row = {
        **memory(process.usage(broker.pid)),
        "metadata_s": metadata_s,
        "first_s": first - began,
        "all_s": last - began,
        "commits_millions": effort.commits / 1e6,
        "offsets_per_s": rate,
    }
    broker.stop()
    return row


def _kill_under_commits(broker: Broker, groups: Sequence[Committed]) -> None:
    for one in groups:
        one.sent += 1
        one.member.send(one.commit_frame(one.sent))
    broker.kill()
    for one in groups:
        one.member.socket.close()


SCENARIO = Scenario(
    name="coordinator",
    title="a coordinator with commits behind it is killed",
    measure=measure,
    quick=False,
    shown=("all_s", "first_s", "metadata_s", "commits_millions", "offsets_per_s", "rss_mb"),
    disk_bytes=lambda effort: effort.commits * _RECORD_BYTES,
)
