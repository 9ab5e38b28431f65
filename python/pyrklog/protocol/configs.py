"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs (KIP-133, 226, 339, 569).

:mod:`pyrklog.handlers.service` names the numbers of resource types, sources, value types and
operations.
"""

from typing import Annotated

from pyrklog.protocol.api import Api
from pyrklog.protocol.fields import Bool, Int8, Int16, Int32, Message, Str, empty_list, since, until


class DescribeConfigsResource(Message):
    """``configuration_keys`` null or empty: all options."""

    resource_type: Int8
    resource_name: Str
    configuration_keys: list[Str] | None = None


class DescribeConfigsRequest(Message):
    resources: list[DescribeConfigsResource]
    include_synonyms: Annotated[Bool, since(1)] = False
    include_documentation: Annotated[Bool, since(3)] = False


class DescribeConfigsSynonym(Message):
    """Another place that sets the option; nearest first."""

    name: Str
    value: Str | None
    source: Int8


class DescribeConfigsResourceResult(Message):
    """One option; the value of a sensitive one is null."""

    name: Str
    value: Str | None
    read_only: Bool
    is_default: Annotated[Bool, until(0)] = False
    config_source: Annotated[Int8, since(1)] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[list[DescribeConfigsSynonym], since(1)] = empty_list()
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[Str | None, since(3)] = None


class DescribeConfigsResult(Message):
    error_code: Int16
    error_message: Str | None
    resource_type: Int8
    resource_name: Str
    configs: list[DescribeConfigsResourceResult] = empty_list()


class DescribeConfigsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = empty_list()


class AlterableConfig(Message):
    name: Str
    value: Str | None


class AlterConfigsResource(Message):
    """All dynamic options of the resource: those not named are reset."""

    resource_type: Int8
    resource_name: Str
    configs: list[AlterableConfig]


class AlterConfigsRequest(Message):
    resources: list[AlterConfigsResource]
    validate_only: Bool = False


class IncrementalConfig(Message):
    name: Str
    config_operation: Int8
    value: Str | None


class IncrementalAlterConfigsResource(Message):
    """Options not named stay."""

    resource_type: Int8
    resource_name: Str
    configs: list[IncrementalConfig]


class IncrementalAlterConfigsRequest(Message):
    resources: list[IncrementalAlterConfigsResource]
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    error_code: Int16
    error_message: Str | None
    resource_type: Int8
    resource_name: Str


class AlterConfigsResponse(Message):
    """Also the response of IncrementalAlterConfigs."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = empty_list()


DESCRIBE_CONFIGS = Api(
    32, DescribeConfigsRequest, DescribeConfigsResponse, versions=(0, 4), flexible_since=4
)
ALTER_CONFIGS = Api(
    33, AlterConfigsRequest, AlterConfigsResponse, versions=(0, 2), flexible_since=2
)
INCREMENTAL_ALTER_CONFIGS = Api(
    44, IncrementalAlterConfigsRequest, AlterConfigsResponse, versions=(0, 1), flexible_since=1
)
