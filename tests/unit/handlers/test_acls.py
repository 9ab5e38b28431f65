"""ACLs without an authorizer: what MirrorMaker 2 and Kafka's tools are told."""

import pytest

from pyrklog.errors import ErrorCode
from pyrklog.protocol.acls import (
    AclCreation,
    AclFilter,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from tests.unit.handlers.fake_service import FakeService, ask

VERSIONS = [0, 1, 2, 3]
DESCRIBE, CREATE, DELETE = 29, 30, 31
DISABLED = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_acls_are_described(version: int) -> None:
    answer = await ask(FakeService(), DESCRIBE, version, DescribeAclsRequest(1, None))
    told = (answer.error_code, answer.error_message, answer.resources)
    assert told == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
        [],
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_creation_is_refused(version: int) -> None:
    creation = AclCreation(2, "t", principal="User:a", host="*", operation=3, permission_type=3)
    answer = await ask(FakeService(), CREATE, version, CreateAclsRequest([creation] * 2))
    assert [(one.error_code, one.error_message) for one in answer.results] == [DISABLED] * 2
    assert (await ask(FakeService(), CREATE, version, CreateAclsRequest([]))).results == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_filter_is_refused(version: int) -> None:
    request = DeleteAclsRequest([AclFilter(2, None), AclFilter(2, "t")])
    answer = await ask(FakeService(), DELETE, version, request)
    told = [(one.error_code, one.error_message) for one in answer.filter_results]
    assert told == [DISABLED] * 2
    assert [one.matching_acls for one in answer.filter_results] == [[], []]
