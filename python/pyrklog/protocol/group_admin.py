"""ListGroups (filters: KIP-518, KIP-848), DescribeGroups, DeleteGroups (KIP-229)."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.cluster import OPERATIONS_NOT_ASKED
from pyrklog.protocol.fields import Bool, Bytes, Int16, Int32, Message, Str, empty_list, since


class ListGroupsRequest(Message):
    """An empty filter passes everything; filters ignore case."""

    states_filter: Annotated[list[Str], since(4)] = empty_list()
    types_filter: Annotated[list[Str], since(5)] = empty_list()


class ListedGroup(Message):
    group_id: Str
    protocol_type: Str
    group_state: Annotated[Str, since(4)] = ""
    group_type: Annotated[Str, since(5)] = ""


class ListGroupsResponse(Message):
    """The groups of this coordinator."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListedGroup] = empty_list()


class DescribeGroupsRequest(Message):
    groups: list[Str]
    include_authorized_operations: Annotated[Bool, since(3)] = False


class DescribedGroupMember(Message):
    """Metadata and assignment are filled while the group is stable."""

    member_id: Str
    group_instance_id: Annotated[Str | None, since(4)] = None
    client_id: Str = ""
    client_host: Str = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Message):
    """``protocol_data`` is the protocol's name."""

    error_code: Int16
    group_id: Str
    group_state: Str = ""
    protocol_type: Str = ""
    protocol_data: Str = ""
    members: list[DescribedGroupMember] = empty_list()
    authorized_operations: Annotated[Int32, since(3)] = OPERATIONS_NOT_ASKED


class DescribeGroupsResponse(Message):
    """In the order asked."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    groups: list[DescribedGroup] = empty_list()


class DeleteGroupsRequest(Message):
    groups_names: list[Str]


class DeletableGroupResult(Message):
    group_id: Str
    error_code: Int16 = 0


class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = empty_list()


DESCRIBE_GROUPS = Api(
    15, DescribeGroupsRequest, DescribeGroupsResponse, versions=(0, 5), flexible_since=5
)
LIST_GROUPS = Api(16, ListGroupsRequest, ListGroupsResponse, versions=(0, 5), flexible_since=3)
DELETE_GROUPS = Api(
    42, DeleteGroupsRequest, DeleteGroupsResponse, versions=(0, 2), flexible_since=2
)
