"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs."""

from collections.abc import Iterable, Sequence, Set

from pyrklog.config.entry import ConfigEntry, Source
from pyrklog.handlers.context import Context
from pyrklog.handlers.service import (
    AlteredConfigs,
    ConfigAlteration,
    ConfigResource,
    DescribedConfigs,
)
from pyrklog.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from pyrklog.protocol.errors import ApiError, ErrorCode

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
RESOURCE_TYPES = frozenset((TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP))
"""Kafka's types; the control plane knows those that exist here."""


async def describe_configs(
    context: Context, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Options of topics and brokers. Null and empty lists of names mean all. A resource given
    several times is described once, with all names asked.

    As in Kafka, a resource type that the protocol lacks fails the whole request.
    """
    for one in request.resources:
        if one.resource_type not in RESOURCE_TYPES:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Resource type {one.resource_type} is unknown."
            )
    described = await context.service.describe_configs(
        list(_wanted(request).items()),
    )
    return DescribeConfigsResponse(results=[_described(one, request) for one in described])


def _wanted(request: DescribeConfigsRequest) -> dict[ConfigResource, Set[str] | None]:
    """Resources and option names; None: all."""
    wanted: dict[ConfigResource, dict[str, None] | None] = {}
    for one in request.resources:
        resource = ConfigResource(one.resource_type, one.resource_name)
        names = wanted.setdefault(resource, {})
        if not one.configuration_keys:
            wanted[resource] = None
        elif names is not None:
            names.update(dict.fromkeys(one.configuration_keys))
    return {resource: None if names is None else names.keys() for resource, names in wanted.items()}


def describe_configs_error(
    request: DescribeConfigsRequest, code: ErrorCode, message: str | None
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(code, message, resource.type, resource.name)
            for resource in _wanted(request)
        ]
    )


def _described(
    described: DescribedConfigs, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=described.error,
        error_message=described.message if described.error else None,
        resource_type=described.resource.type,
        resource_name=described.resource.name,
        configs=[_option(entry, request) for entry in described.entries],
    )


def _option(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        is_default=entry.source == Source.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(one.name, None if entry.sensitive else one.value, one.source)
            for one in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


async def incremental_alter_configs(
    context: Context, request: IncrementalAlterConfigsRequest
) -> AlterConfigsResponse:
    """Sets, resets, appends to or subtracts from single options."""
    altered = await context.service.incremental_alter_configs(
        [
            (
                ConfigResource(resource.resource_type, resource.resource_name),
                [
                    ConfigAlteration(one.config_operation, one.name, one.value)
                    for one in resource.configs
                ],
            )
            for resource in request.resources
        ],
        validate_only=request.validate_only,
    )
    return _altered(altered)


def incremental_alter_configs_error(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str | None
) -> AlterConfigsResponse:
    return _all_failed(request.resources, code, message)


async def alter_configs(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replaces all options of each resource: those not named are reset."""
    repeating = [one for one in request.resources if _repeats(one.configs)]
    accepted = [one for one in request.resources if not _repeats(one.configs)]
    altered = await context.service.alter_configs(
        [
            (
                ConfigResource(one.resource_type, one.resource_name),
                {option.name: option.value for option in one.configs},
            )
            for one in accepted
        ],
        validate_only=request.validate_only,
    )
    response = _altered(altered)
    message = "Error due to duplicate config keys"
    refused = _all_failed(repeating, ErrorCode.INVALID_REQUEST, message)
    response.responses += refused.responses
    return response


def alter_configs_error(
    request: AlterConfigsRequest, code: ErrorCode, message: str | None
) -> AlterConfigsResponse:
    return _all_failed(request.resources, code, message)


def _repeats(options: list[AlterableConfig]) -> bool:
    return len({option.name for option in options}) != len(options)


def _altered(altered: Sequence[AlteredConfigs]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=one.error,
                error_message=one.message if one.error else None,
                resource_type=one.resource.type,
                resource_name=one.resource.name,
            )
            for one in altered
        ]
    )


def _all_failed(
    resources: Iterable[AlterConfigsResource | IncrementalAlterConfigsResource],
    code: ErrorCode,
    message: str | None,
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(code, message, one.resource_type, one.resource_name)
            for one in resources
        ]
    )
