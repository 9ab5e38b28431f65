"""ListGroups, DescribeGroups, DeleteGroups."""

from pyrklog.groups.group_manager import CLASSIC
from pyrklog.groups.messages import GroupDescription
from pyrklog.handlers.context import Context, step
from pyrklog.protocol.cluster import OPERATIONS_NOT_ASKED
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

READ, DELETE, DESCRIBE = 3, 6, 8
GROUP_OPERATIONS = sum(1 << operation for operation in (READ, DELETE, DESCRIBE))
"""All operations on a group, as bits (KIP-430); without ACLs, everyone may do all."""


async def list_groups(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    error, groups = context.groups.manager.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(
        error_code=error,
        groups=[ListedGroup(one.group_id, one.protocol_type, one.state, CLASSIC) for one in groups],
    )


async def describe_groups(
    context: Context, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Each group once; a missing one is dead."""
    asked = request.include_authorized_operations
    groups = []
    for count, name in enumerate(dict.fromkeys(request.groups), 1):
        groups.append(
            _described(context.groups.manager.describe_group(name), with_operations=asked)
        )
        await step(count)
    return DescribeGroupsResponse(groups=groups)


def describe_groups_error(
    request: DescribeGroupsRequest, code: ErrorCode, _message: str | None
) -> DescribeGroupsResponse:
    names = dict.fromkeys(request.groups)
    return DescribeGroupsResponse(groups=[DescribedGroup(code, name) for name in names])


def _described(group: GroupDescription, *, with_operations: bool) -> DescribedGroup:
    shown = with_operations and group.error is ErrorCode.NONE
    return DescribedGroup(
        error_code=group.error,
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                member_metadata=one.metadata,
                member_assignment=one.assignment,
            )
            for one in group.members
        ],
        authorized_operations=GROUP_OPERATIONS if shown else OPERATIONS_NOT_ASKED,
    )


async def delete_groups(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """A name given twice gets one result, as in Kafka."""
    results = []
    for count, name in enumerate(dict.fromkeys(request.groups_names), 1):
        results.append(DeletableGroupResult(name, await context.groups.delete_group(name)))
        await step(count)
    return DeleteGroupsResponse(results=results)


def delete_groups_error(
    request: DeleteGroupsRequest, code: ErrorCode, _message: str | None
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(name, code) for name in dict.fromkeys(request.groups_names)]
    )
