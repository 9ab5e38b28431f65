"""ApiVersions 0 (KIP-35), as a client asks before other requests. Rust serves it."""

from pyrklog.protocol.api import NEVER_FLEXIBLE, Api
from pyrklog.protocol.fields import Int16, Message, empty_list


class ApiVersionsRequest(Message):
    """Empty before version 3."""


class ApiVersion(Message):
    """The versions of one API that a broker serves, inclusive."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class ApiVersionsResponse(Message):
    error_code: Int16
    api_keys: list[ApiVersion] = empty_list()


API_VERSIONS = Api(
    18, ApiVersionsRequest, ApiVersionsResponse, versions=(0, 0), flexible_since=NEVER_FLEXIBLE
)
