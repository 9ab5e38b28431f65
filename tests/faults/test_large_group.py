"""A group of 9,000 members: all are answered, and other groups do not notice."""

import resource
import threading
from pathlib import Path

from benches.group_members import Driver, Member, form_groups, heartbeat_error, sync_error
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.groups import JOIN_GROUP
from pyrklog.testing import TestBroker

MEMBERS = 9_000
# A broker gives half of its descriptors to connections.
DESCRIPTORS = 2 * MEMBERS + 1_000
CODES = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_SERVER_ERROR % 2**16,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
"""Such a generation exceeds a record of ``max.message.bytes``: as in Kafka, waiting members are
told that the write failed, and the others to join again."""


def test_nine_thousand_members(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= DESCRIPTORS or hard == resource.RLIM_INFINITY, "raise the limit of open files"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    try:
        options = {"group.initial.rebalance.delay.ms": 3_000}
        with TestBroker(tmp_path / "data", options=options) as broker:
            _gather(broker)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _gather(broker: TestBroker) -> None:
    [[bystander]] = form_groups(broker.port, ["bystander"], 1)
    errors: list[int] = []
    done = threading.Event()

    def beat() -> None:
        while not done.wait(0.2):
            bystander.send(bystander.heartbeat_frame())
            errors.append(heartbeat_error(bystander.receive()))

    thread = threading.Thread(target=beat)
    thread.start()
    members = [Member(broker.port, "large") for _ in range(MEMBERS)]
    driver = Driver(members)
    try:
        _join(driver, members)
        codes = _sync(driver, members)
    finally:
        done.set()
        thread.join()
        driver.close()
        for member in [bystander, *members]:
            member.socket.close()
    assert set(codes) <= CODES
    assert errors
    assert set(errors) == {ErrorCode.NONE}, "the bystander's heartbeats"
    assert broker.running


def _join(driver: Driver, members: list[Member]) -> None:
    """All get an id, then a generation, which may take more than one rebalance."""
    waiting = set(map(id, members))

    def on_answer(member: Member, body: bytes) -> None:
        code = JOIN_GROUP.decode_response(body, 9).error_code
        if code == ErrorCode.NONE:
            member.joined(body)
            waiting.discard(id(member))
            return
        assert code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS), code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            member.joined(body)
        member.send(member.join_frame())

    for member in members:
        member.send(member.join_frame())
    while waiting:
        driver.turn(on_answer, 1.0)
    assert len({member.generation for member in members}) == 1


def _sync(driver: Driver, members: list[Member]) -> list[int]:
    codes: list[int] = []
    everybody = [member.member_id for member in members]
    for member in members:
        member.send(member.sync_frame(everybody if member is members[0] else []))
    while len(codes) < len(members):
        driver.turn(lambda _, body: codes.append(sync_error(body)), 1.0)
    return codes
