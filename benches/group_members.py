"""Members of consumer groups by hand: frames, sockets, and a loop that drives many at once.

``pyrklog.protocol`` encodes bodies, in the versions of Kafka 3.9's clients. Each member has its own
connection, as consumers do.
"""

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benches.brokers import BenchError
from pyrklog.protocol.api import Api
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.groups import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

VERSIONS = {FIND_COORDINATOR: 6, JOIN_GROUP: 9, SYNC_GROUP: 5, HEARTBEAT: 4, LEAVE_GROUP: 5}
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
# The metadata of a consumer of one topic, as large as an assignment of a few partitions.
TOPIC = b"group-load"
SUBSCRIPTION = struct.pack(">hih10sii", 1, 1, len(TOPIC), TOPIC, -1, 0)
ASSIGNMENT = struct.pack(">hih10siiii", 1, 1, len(TOPIC), TOPIC, 2, 0, 1, -1)
PATIENCE_S = 60.0
_CLIENT_ID = b"group-load"


def frame(api: Api[Any, Any], version: int, request: Any) -> bytes:
    """A whole request; all APIs here are flexible in the versions used."""
    header = struct.pack(">hhih", api.key, version, 7, len(_CLIENT_ID)) + _CLIENT_ID + b"\0"
    payload = header + api.encode_request(request, version)
    return struct.pack(">i", len(payload)) + payload


class Member:
    def __init__(self, port: int, group: str) -> None:
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def send(self, request: bytes) -> None:
        """Sends a whole frame; they are small."""
        self.socket.sendall(request)

    def read(self) -> None:
        """Takes the socket's bytes; waits if there are none."""
        data = self.socket.recv(65536)
        if not data:
            raise BenchError(f"the broker closed the connection of a member of {self.group}")
        self._received += data

    def pop(self) -> bytes | None:
        """The next answer without its header, if it has arrived."""
        if len(self._received) < 4:
            return None
        size = int.from_bytes(self._received[:4], "big")
        if len(self._received) < 4 + size:
            return None
        body = bytes(self._received[9 : 4 + size])  # length, correlation id, empty tags
        del self._received[: 4 + size]
        return body

    def receive(self) -> bytes:
        while (body := self.pop()) is None:
            self.read()
        return body

    def ask(self, api: Api[Any, Any], request: Any) -> Any:
        version = VERSIONS[api]
        self.send(frame(api, version, request))
        return api.decode_response(self.receive(), version)

    # --- frames ----------------------------------------------------------------------------------

    def join_frame(self) -> bytes:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", SUBSCRIPTION)],
        )
        return frame(JOIN_GROUP, VERSIONS[JOIN_GROUP], request)

    def joined(self, body: bytes) -> Sequence[str]:
        """Takes the answer in; returns all members' ids if this one leads, else none."""
        answer = JOIN_GROUP.decode_response(body, VERSIONS[JOIN_GROUP])
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return []
        _check(answer.error_code, "JoinGroup")
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return [one.member_id for one in answer.members]

    def sync_frame(self, everybody: Sequence[str]) -> bytes:
        """SyncGroup, with everybody's assignment if this member leads."""
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(one, ASSIGNMENT) for one in everybody],
        )
        return frame(SYNC_GROUP, VERSIONS[SYNC_GROUP], request)

    def heartbeat_frame(self) -> bytes:
        request = HeartbeatRequest(self.group, self.generation, self.member_id)
        return frame(HEARTBEAT, VERSIONS[HEARTBEAT], request)

    def leave(self) -> None:
        request = LeaveGroupRequest(
            group_id=self.group, members=[MemberIdentity(self.member_id, None, "bench")]
        )
        _check(self.ask(LEAVE_GROUP, request).error_code, "LeaveGroup")
        self.socket.close()


def _check(code: int, what: str) -> None:
    if code:
        raise BenchError(f"{what}: {ErrorCode(code).name}")


def heartbeat_error(body: bytes) -> int:
    """The error code of a Heartbeat's answer (after the throttle time)."""
    return int.from_bytes(body[4:6], "big")


def sync_error(body: bytes) -> int:
    """The error code of a SyncGroup's answer (after the throttle time)."""
    return int.from_bytes(body[4:6], "big")


def form_groups(port: int, names: Iterable[str], size: int) -> list[list[Member]]:
    """Stable groups of ``size`` members each."""
    groups = [[Member(port, name) for _ in range(size)] for name in names]
    everybody = [member for group in groups for member in group]
    for group in groups:
        _await_coordinator(group[0])
    _all_join(everybody)  # each gets its id
    leading = _all_join(everybody)
    for member in everybody:
        member.send(member.sync_frame(leading.get(member.member_id, [])))
    for member in everybody:
        _check(sync_error(member.receive()), "SyncGroup")
    return groups


def _await_coordinator(member: Member) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        asked = FindCoordinatorRequest(coordinator_keys=[member.group])
        code = member.ask(FIND_COORDINATOR, asked).coordinators[0].error_code
        if code == 0 and _is_loaded(member):
            return
        if time.monotonic() > deadline:
            raise BenchError(f"no coordinator of {member.group}: {ErrorCode(code).name}")
        time.sleep(0.1)


def _is_loaded(member: Member) -> bool:
    """A serving coordinator answers a stranger's heartbeat with an unknown member."""
    member.send(HeartbeatProbe(member.group).frame)
    return heartbeat_error(member.receive()) == ErrorCode.UNKNOWN_MEMBER_ID


class HeartbeatProbe:
    """A heartbeat of nobody."""

    def __init__(self, group: str) -> None:
        self.frame = frame(HEARTBEAT, VERSIONS[HEARTBEAT], HeartbeatRequest(group, 1, "nobody"))


def _all_join(everybody: Sequence[Member]) -> dict[str, Sequence[str]]:
    """All send JoinGroup and wait for the answer; returns the leaders' ids with their groups'."""
    for member in everybody:
        member.send(member.join_frame())
    found = {}
    for member in everybody:
        ids = member.joined(member.receive())
        if ids:
            found[member.member_id] = ids
    return found


class Driver:
    """Calls back when an answer has come, or when a time is due."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._selector = selectors.DefaultSelector()
        for member in members:
            self._selector.register(member.socket, selectors.EVENT_READ, member)

    def forget(self, member: Member) -> None:
        self._selector.unregister(member.socket)

    def turn(self, on_answer: Callable[[Member, bytes], None], timeout_s: float) -> None:
        """Waits up to ``timeout_s`` for answers and passes each on."""
        for key, _ in self._selector.select(max(0.0, timeout_s)):
            member: Member = key.data
            member.read()
            while (body := member.pop()) is not None:
                on_answer(member, body)

    def close(self) -> None:
        """Ends the watching, not the connections."""
        self._selector.close()
