"""DescribeAcls, CreateAcls, DeleteAcls (KIP-140, KIP-290). Types, operations and permissions are
Kafka's codes."""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Int8, Int16, Int32, Message, Str, empty_list, since

LITERAL = 3
"""The pattern type of versions without one."""


class AclFilter(Message):
    """Null names match all."""

    resource_type_filter: Int8
    resource_name_filter: Str | None
    pattern_type_filter: Annotated[Int8, since(1)] = LITERAL
    principal_filter: Str | None = None
    host_filter: Str | None = None
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsRequest(AclFilter):
    """What is to be described."""


class AclDescription(Message):
    principal: Str
    host: Str
    operation: Int8
    permission_type: Int8


class DescribeAclsResource(Message):
    resource_type: Int8
    resource_name: Str
    pattern_type: Annotated[Int8, since(1)] = LITERAL
    acls: list[AclDescription] = empty_list()


class DescribeAclsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Str | None = None
    resources: list[DescribeAclsResource] = empty_list()


class AclCreation(Message):
    resource_type: Int8
    resource_name: Str
    resource_pattern_type: Annotated[Int8, since(1)] = LITERAL
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Message):
    creations: list[AclCreation]


class AclCreationResult(Message):
    error_code: Int16 = 0
    error_message: Str | None = None


class CreateAclsResponse(Message):
    """One result for each creation, in order."""

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = empty_list()


class DeleteAclsRequest(Message):
    filters: list[AclFilter]


class DeleteAclsMatchingAcl(Message):
    error_code: Int16
    error_message: Str | None
    resource_type: Int8
    resource_name: Str
    pattern_type: Annotated[Int8, since(1)] = LITERAL
    principal: Str = ""
    host: Str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Message):
    error_code: Int16 = 0
    error_message: Str | None = None
    matching_acls: list[DeleteAclsMatchingAcl] = empty_list()


class DeleteAclsResponse(Message):
    """One result for each filter, in order."""

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = empty_list()


DESCRIBE_ACLS = Api(
    29, DescribeAclsRequest, DescribeAclsResponse, versions=(0, 3), flexible_since=2
)
CREATE_ACLS = Api(30, CreateAclsRequest, CreateAclsResponse, versions=(0, 3), flexible_since=2)
DELETE_ACLS = Api(31, DeleteAclsRequest, DeleteAclsResponse, versions=(0, 3), flexible_since=2)
