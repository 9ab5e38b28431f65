"""DescribeAcls, CreateAcls, DeleteAcls on a broker without an authorizer."""

from typing import Any

from tests.parity.definitions import Counted
from tests.parity.rows import Row, Scenario, in_versions

TOPIC, LITERAL, READ, ALLOW, ANY = 2, 3, 3, 3, 1


def described(name: str, version: int = 2, **more: Any) -> Row:
    wanted = {
        "resourceTypeFilter": TOPIC,
        "resourceNameFilter": "acl",
        "patternTypeFilter": LITERAL,
        "principalFilter": None,
        "hostFilter": None,
        "operation": ANY,
        "permissionType": ANY,
    }
    return Row(name, "DescribeAcls", version, wanted | more)


def created(name: str, count: int, version: int = 2) -> Row:
    one = {
        "resourceType": TOPIC,
        "resourceName": "acl",
        "resourcePatternType": LITERAL,
        "principal": "User:someone",
        "host": "*",
        "operation": READ,
        "permissionType": ALLOW,
    }
    return Row(name, "CreateAcls", version, {"creations": [one] * count})


def deleted(name: str, count: int, version: int = 2) -> Row:
    one = {
        "resourceTypeFilter": TOPIC,
        "resourceNameFilter": "acl",
        "patternTypeFilter": LITERAL,
        "principalFilter": None,
        "hostFilter": None,
        "operation": ANY,
        "permissionType": ANY,
    }
    return Row(name, "DeleteAcls", version, {"filters": [one] * count})


WITHOUT_AUTHORIZER = Scenario(
    "without an authorizer",
    [
        *in_versions((1, 2, 3), lambda v: described("a topic's", version=v)),
        described("of any name", resourceNameFilter=None),
        *in_versions((1, 2, 3), lambda v: created("one", 1, version=v)),
        created("two", 2),
        created("none", 0),
        *in_versions((1, 2, 3), lambda v: deleted("one filter", 1, version=v)),
        deleted("two filters", 2),
        deleted("no filters", 0),
        Row("huge count of creations", "CreateAcls", 1, {"creations": Counted(2**31 - 2)}),
        Row("huge count of filters", "DeleteAcls", 1, {"filters": Counted(2**31 - 2)}),
    ],
)
SCENARIOS = (WITHOUT_AUTHORIZER,)
