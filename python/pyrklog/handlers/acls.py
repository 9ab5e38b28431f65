"""DescribeAcls, CreateAcls, DeleteAcls: what Kafka answers without an authorizer (``AclApis``).

MirrorMaker 2 copies a cluster's ACLs, and goes on without them only upon this error.
"""

from pyrklog.handlers.context import Context
from pyrklog.protocol.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from pyrklog.protocol.errors import ErrorCode

_DISABLED = ErrorCode.SECURITY_DISABLED


async def describe_acls(_context: Context, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=_DISABLED, error_message="No Authorizer is configured on the broker"
    )


async def create_acls(_context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    return create_acls_error(request, _DISABLED, "No Authorizer is configured.")


def create_acls_error(
    request: CreateAclsRequest, code: ErrorCode, message: str | None
) -> CreateAclsResponse:
    refused = AclCreationResult(code, message)
    return CreateAclsResponse(results=[refused] * len(request.creations))


async def delete_acls(_context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    return delete_acls_error(request, _DISABLED, "No Authorizer is configured.")


def delete_acls_error(
    request: DeleteAclsRequest, code: ErrorCode, message: str | None
) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(code, message)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
