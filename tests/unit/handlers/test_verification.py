"""ReplicaDigest, StateChanges, ObserveBroker and BrokerHealth, our own requests."""

import pytest

from pyrklog.controller.state_log import LogPiece
from pyrklog.errors import ErrorCode
from pyrklog.handlers.verification import DIGEST_BYTES_MAX, PIECE_BYTES_MAX
from pyrklog.plane.seam import DigestRange, ReplicaDigest
from pyrklog.protocol.health import BrokerHealthRequest, BrokerHealthResponse, HealthReason
from pyrklog.protocol.observation import ObserveBrokerRequest, ObserveBrokerResponse, Outcome
from pyrklog.protocol.verification import (
    DigestedBatch,
    ReplicaDigestRequest,
    StateChangesRequest,
    StateChangesResponse,
)
from tests.unit.handlers.fake_service import FakeService, ask

DIGEST, CHANGES, OBSERVE, HEALTH = 20_001, 20_002, 20_003, 20_004


async def test_a_digest_is_that_of_the_plane() -> None:
    found = ReplicaDigest(ErrorCode.NONE, 7, 1, 30, 40, 25, -5, 3, 11, (2, 4, 6, 0xFFFFFFFF), 20)
    fake = FakeService(replica_digest=found)
    answer = await ask(fake, DIGEST, 0, ReplicaDigestRequest("t", 3, 2, 25, 1 << 30))
    assert fake.calls == [("replica_digest", ("t", 3, DigestRange(2, 25, DIGEST_BYTES_MAX)), {})]
    assert (answer.error_code, answer.leader_epoch) == (0, 7)
    assert (answer.log_start_offset, answer.high_watermark, answer.log_end_offset) == (1, 30, 40)
    assert (answer.next_offset, answer.digest, answer.batch_count) == (25, -5, 3)
    assert answer.damaged_offset == 11
    assert answer.first == [DigestedBatch(2, 4, 6, 0xFFFFFFFF)]
    assert answer.compacted_end == 20


async def test_a_replica_that_is_not_there_has_no_digest() -> None:
    fake = FakeService(replica_digest=ReplicaDigest(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    answer = await ask(fake, DIGEST, 0, ReplicaDigestRequest("t", 3, 0, 0, 1))
    assert (answer.error_code, answer.first) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


@pytest.mark.parametrize(("start", "max_bytes"), [(-1, 1), (0, 0), (0, -1)])
async def test_impossible_offset_range_is_refused(start: int, max_bytes: int) -> None:
    fake = FakeService()
    answer = await ask(fake, DIGEST, 0, ReplicaDigestRequest("t", 0, start, 5, max_bytes))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert fake.calls == []


async def test_a_piece_of_the_state_change_log() -> None:
    fake = FakeService(state_changes=LogPiece(9, b"{}\n"))
    answer = await ask(fake, CHANGES, 0, StateChangesRequest(True, 5, 1 << 30))
    assert answer == StateChangesResponse(file_id=9, data=b"{}\n")
    wanted = {"older": True, "position": 5, "max_bytes": PIECE_BYTES_MAX}
    assert fake.options("state_changes") == wanted
    for position, size in ((-1, 1), (0, 0)):
        refused = await ask(fake, CHANGES, 0, StateChangesRequest(False, position, size))
        assert refused.error_code == ErrorCode.INVALID_REQUEST


async def test_observe_broker_returns_the_outcome_of_a_look() -> None:
    fake = FakeService(observe=Outcome.SILENT)
    answer = await ask(fake, OBSERVE, 0, ObserveBrokerRequest(3, 250))
    assert answer == ObserveBrokerResponse(outcome=Outcome.SILENT)
    assert fake.calls == [("observe", (3, 0.25), {})]


async def test_broker_health_is_that_of_the_service() -> None:
    reason = HealthReason("disk_hangs", "degraded", "it hangs", 1, "look", 2, ["t-0", "t-1"])
    found = BrokerHealthResponse(broker=1, clock_ms=7, reasons=[reason], left_out=3)
    fake = FakeService(health=found)
    assert await ask(fake, HEALTH, 0, BrokerHealthRequest(True, 2)) == found
    assert fake.calls == [("health", (BrokerHealthRequest(True, 2),), {})]
