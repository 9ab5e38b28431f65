"""FindCoordinator (KIP-98, KIP-699)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int8, Int16, Int32, Message, Str, empty_list, since, until

NO_NODE_ID = -1
NO_PORT = -1
KEY_GROUP = 0
KEY_TRANSACTION = 1


class FindCoordinatorRequest(Message):
    """``key`` before version 4, ``coordinator_keys`` since."""

    key: Annotated[Str, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = KEY_GROUP
    coordinator_keys: Annotated[list[Str], since(4)] = empty_list()


class Coordinator(Message):
    key: Str
    node_id: Int32 = NO_NODE_ID
    host: Str = ""
    port: Int32 = NO_PORT
    error_code: Int16 = 0
    error_message: Str | None = None


class FindCoordinatorResponse(Message):
    """The fields of one coordinator before version 4, a list since."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[Str | None, since(1, until=3)] = None
    node_id: Annotated[Int32, until(3)] = NO_NODE_ID
    host: Annotated[Str, until(3)] = ""
    port: Annotated[Int32, until(3)] = NO_PORT
    coordinators: Annotated[list[Coordinator], since(4)] = empty_list()


FIND_COORDINATOR = Api(
    10, FindCoordinatorRequest, FindCoordinatorResponse, versions=(0, 6), flexible_since=3
)
