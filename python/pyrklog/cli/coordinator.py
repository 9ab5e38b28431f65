"""Requests to a group's coordinator that confluent-kafka does not offer.

They have no authentication or encryption; commands refuse such settings.
"""

import time
from typing import Any, Self, TypeVar

from pyrklog.base.problems import Problem
from pyrklog.cli.bootstrap import addresses
from pyrklog.cli.broker_connection import BrokerConnection
from pyrklog.cli.cluster_requests import plain_only
from pyrklog.cli.connection import Connection
from pyrklog.cli.failures import CliError
from pyrklog.groups.partitioner import OFFSETS_TOPIC
from pyrklog.protocol.api import Api
from pyrklog.protocol.coordinators import FIND_COORDINATOR, FindCoordinatorRequest
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.fields import Message
from pyrklog.protocol.groups import LEAVE_GROUP, LeaveGroupRequest, MemberIdentity
from pyrklog.protocol.offsets import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

RETRY_PAUSE_S = 0.1
_RETRIED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
# The last inflexible versions; current brokers all serve one of them.
_FIND_VERSION, _LEAVE_VERSION, _DELETE_VERSION = 2, 3, 0

Req = TypeVar("Req", bound=Message)
Resp = TypeVar("Resp", bound=Message)


def no_coordinator(connection: Connection, group: str) -> CliError | None:
    """Why the group has no coordinator now; None if it has one, or if unknown."""
    try:
        with CoordinatorConnection(connection, group) as coordinator:
            code = coordinator.look()
    except (CliError, OSError):
        return None
    if code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return None
    return CliError(
        Problem.NO_COORDINATOR,
        f"group {group} has no coordinator: there is no {OFFSETS_TOPIC}, or nobody leads it",
        "that topic needs as many brokers as offsets.topic.replication.factor says, 3 in a cluster "
        "unless it is set: start more, or set it",
    )


class CoordinatorConnection:
    def __init__(self, connection: Connection, group: str) -> None:
        self._settings = connection.settings
        self._group = group
        self._deadline = time.monotonic() + connection.settings.timeout_s
        self._broker: BrokerConnection | None = None
        if connection.settings.security_protocol != "plaintext":
            raise plain_only(connection.settings, "kafka-consumer-groups.sh")

    def remove_members(self, members: list[tuple[str, str | None]]) -> dict[str, ErrorCode]:
        """Removes members (id, instance id); returns an error code for each member id."""
        request = LeaveGroupRequest(
            group_id=self._group,
            members=[MemberIdentity(member_id, instance) for member_id, instance in members],
        )
        response = self._call(LEAVE_GROUP, _LEAVE_VERSION, request)
        return {one.member_id: ErrorCode(one.error_code) for one in response.members}

    def delete_offsets(self, places: dict[str, list[int]]) -> dict[tuple[str, int], ErrorCode]:
        """Returns a code for each offset. Raises :class:`CliError` if the group refuses."""
        request = OffsetDeleteRequest(
            group_id=self._group,
            topics=[
                OffsetDeleteRequestTopic(
                    topic, [OffsetDeleteRequestPartition(index) for index in partitions]
                )
                for topic, partitions in places.items()
            ],
        )
        response = self._call(OFFSET_DELETE, _DELETE_VERSION, request)
        return {
            (topic.name, one.partition_index): ErrorCode(one.error_code)
            for topic in response.topics
            for one in topic.partitions
        }

    def _call(self, api: Api[Req, Resp], version: int, request: Req) -> Any:
        """Asks the coordinator; retries while it moves or loads."""
        while True:
            try:
                if self._broker is None:
                    self._find()
                response: Any = self._exchange(api, version, request)
            except OSError as error:
                self.close()
                raise CliError(
                    Problem.BROKER_AWAY, f"the coordinator of group {self._group}: {error}"
                ) from None
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                return response
            if code not in _RETRIED or time.monotonic() > self._deadline:
                raise refusal(self._group, code)
            self.close()
            time.sleep(RETRY_PAUSE_S)

    def look(self) -> ErrorCode:
        """Asks a bootstrap broker once for the coordinator. Raises OSError."""
        self._connect_to_any()
        return ErrorCode(self._ask_for_it().error_code)

    def _ask_for_it(self) -> Any:
        asked = FindCoordinatorRequest(key=self._group)
        return self._exchange(FIND_COORDINATOR, _FIND_VERSION, asked)

    def _find(self) -> None:
        self._connect_to_any()
        while True:
            found = self._ask_for_it()
            code = ErrorCode(found.error_code)
            if code is ErrorCode.NONE:
                self.close()
                self._connect((found.host, found.port))
                return
            if code not in _RETRIED or time.monotonic() > self._deadline:
                raise refusal(self._group, code)
            time.sleep(RETRY_PAUSE_S)

    def _connect_to_any(self) -> None:
        errors: list[OSError] = []
        for address in addresses(self._settings.bootstrap):
            try:
                self._connect(address)
                break
            except OSError as error:
                errors.append(error)
        else:
            raise errors[-1]

    def _connect(self, address: tuple[str, int]) -> None:
        left_s = max(0.1, self._deadline - time.monotonic())
        self._broker = BrokerConnection(address, left_s)

    def _exchange(self, api: Api[Req, Resp], version: int, request: Req) -> Resp:
        assert self._broker is not None
        return self._broker.ask(api, version, request)

    def close(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refusal(group: str, code: ErrorCode) -> CliError:
    match code:
        case ErrorCode.GROUP_ID_NOT_FOUND:
            return CliError(Problem.GROUP_NOT_FOUND, f"group {group} does not exist")
        case ErrorCode.NON_EMPTY_GROUP | ErrorCode.UNKNOWN_MEMBER_ID:
            return CliError(Problem.GROUP_ACTIVE, f"group {group} has members", "stop them first")
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return CliError(Problem.NOT_AUTHORIZED, f"group {group}: not authorized")
    return CliError(Problem.BROKER_REFUSED, f"group {group}: {code.name}")
