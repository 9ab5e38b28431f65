import pytest

from pyrklog.config.entry import ConfigEntry, OptionType, Source, Synonym
from pyrklog.errors import ApiError, ErrorCode
from pyrklog.handlers.service import (
    OP_APPEND,
    OP_DELETE,
    OP_SET,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    AlteredConfigs,
    ConfigAlteration,
    ConfigResource,
    DescribedConfigs,
)
from pyrklog.protocol.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalConfig,
)
from tests.unit.handlers.fake_service import FakeService, ask

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
TOPIC = ConfigResource(RESOURCE_TOPIC, "a")
BROKER = ConfigResource(RESOURCE_BROKER, "1")
RETENTION = ConfigEntry(
    "retention.ms",
    "5",
    False,
    Source.TOPIC,
    False,
    [
        Synonym("retention.ms", "5", Source.TOPIC),
        Synonym("log.retention.ms", "9", Source.DEFAULT),
    ],
    OptionType.LONG,
    "How long records are kept.",
)
PASSWORD = ConfigEntry(
    "p", "s3cret", True, 4, True, [Synonym("p", "s3cret", 4)], OptionType.PASSWORD, None
)


async def test_a_resource_that_is_given_again_and_again_is_described_once() -> None:
    fake = FakeService()
    resources = [
        DescribeConfigsResource(RESOURCE_TOPIC, "a", ["retention.ms"]),
        DescribeConfigsResource(RESOURCE_TOPIC, "b", ["x"]),
        *[DescribeConfigsResource(RESOURCE_TOPIC, "a", ["y", "retention.ms"])] * 1000,
        DescribeConfigsResource(RESOURCE_TOPIC, "b"),
    ]
    await ask(fake, DESCRIBE, 4, DescribeConfigsRequest(resources))
    other = ConfigResource(RESOURCE_TOPIC, "b")
    assert fake.asked("describe_configs") == [(TOPIC, {"retention.ms", "y"}), (other, None)]


@pytest.mark.parametrize("keys", [None, [], ["retention.ms", "nope"]])
async def test_null_and_an_empty_list_ask_for_all_options(keys: list[str] | None) -> None:
    fake = FakeService()
    resources = [DescribeConfigsResource(RESOURCE_TOPIC, "a", keys)]
    await ask(fake, DESCRIBE, 4, DescribeConfigsRequest(resources))
    assert fake.asked("describe_configs") == [(TOPIC, set(keys or ()) or None)]


async def test_an_unknown_resource_type_fails_the_whole_request() -> None:
    fake = FakeService()
    resources = [
        DescribeConfigsResource(RESOURCE_TOPIC, "a"),
        DescribeConfigsResource(77, "x"),
    ]
    response = await ask(fake, DESCRIBE, 4, DescribeConfigsRequest(resources))
    assert [(r.resource_name, r.error_code) for r in response.results] == [("a", 42), ("x", 42)]
    assert fake.calls == []


async def test_options_come_with_source_type_synonyms_and_documentation() -> None:
    fake = FakeService(
        describe_configs=[DescribedConfigs(TOPIC, ErrorCode.NONE, None, [RETENTION])]
    )
    request = DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, "a")], True, True)
    response = await ask(fake, DESCRIBE, 4, request)
    (result,) = response.results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, 2, "a")
    (option,) = result.configs
    assert (option.name, option.value, option.read_only) == ("retention.ms", "5", False)
    assert (option.config_source, option.config_type) == (Source.TOPIC, OptionType.LONG)
    assert option.documentation == "How long records are kept."
    synonyms = [(one.name, one.value, one.source) for one in option.synonyms]
    assert synonyms == [("retention.ms", "5", 1), ("log.retention.ms", "9", 5)]


async def test_synonyms_and_documentation_come_only_where_asked_for() -> None:
    fake = FakeService(
        describe_configs=[DescribedConfigs(TOPIC, ErrorCode.NONE, None, [RETENTION])]
    )
    request = DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, "a")])
    (result,) = (await ask(fake, DESCRIBE, 3, request)).results
    assert (result.configs[0].synonyms, result.configs[0].documentation) == ([], None)


@pytest.mark.parametrize(("source", "is_default"), [(Source.TOPIC, False), (Source.DEFAULT, True)])
async def test_version_0_tells_defaults_by_a_flag(source: int, is_default: bool) -> None:
    described = DescribedConfigs(TOPIC, ErrorCode.NONE, None, [RETENTION._replace(source=source)])
    request = DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, "a")])
    (result,) = (await ask(FakeService(describe_configs=[described]), DESCRIBE, 0, request)).results
    assert result.configs[0].is_default is is_default


async def test_a_sensitive_value_never_leaves() -> None:
    fake = FakeService(
        describe_configs=[DescribedConfigs(BROKER, ErrorCode.NONE, None, [PASSWORD])]
    )
    request = DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_BROKER, "1")], True)
    (result,) = (await ask(fake, DESCRIBE, 2, request)).results
    (option,) = result.configs
    assert (option.value, option.is_sensitive, option.synonyms[0].value) == (None, True, None)


async def test_errors_stand_beside_results() -> None:
    fake = FakeService(
        describe_configs=[
            DescribedConfigs(TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone", []),
            DescribedConfigs(BROKER, ErrorCode.NONE, None, []),
        ]
    )
    resources = [
        DescribeConfigsResource(RESOURCE_TOPIC, "a"),
        DescribeConfigsResource(RESOURCE_BROKER, "1"),
    ]
    response = await ask(fake, DESCRIBE, 1, DescribeConfigsRequest(resources))
    shown = [(r.error_code, r.error_message, r.resource_type) for r in response.results]
    assert shown == [(3, "gone", 2), (0, None, 4)]


async def test_single_options_are_altered() -> None:
    done = [
        AlteredConfigs(TOPIC, ErrorCode.NONE),
        AlteredConfigs(BROKER, ErrorCode.INVALID_CONFIG, "no such option"),
    ]
    fake = FakeService(incremental_alter_configs=done)
    request = IncrementalAlterConfigsRequest(
        [
            IncrementalAlterConfigsResource(
                RESOURCE_TOPIC,
                "a",
                [
                    IncrementalConfig("retention.ms", OP_SET, "1"),
                    IncrementalConfig("segment.ms", OP_DELETE, None),
                    IncrementalConfig("cleanup.policy", OP_APPEND, "compact"),
                ],
            ),
            IncrementalAlterConfigsResource(RESOURCE_BROKER, "1", []),
        ],
        True,
    )
    response = await ask(fake, INCREMENTAL, 1, request)
    changes = [
        ConfigAlteration(OP_SET, "retention.ms", "1"),
        ConfigAlteration(OP_DELETE, "segment.ms", None),
        ConfigAlteration(OP_APPEND, "cleanup.policy", "compact"),
    ]
    assert fake.asked("incremental_alter_configs") == [(TOPIC, changes), (BROKER, [])]
    assert fake.options("incremental_alter_configs") == {"validate_only": True}
    shown = [(r.error_code, r.error_message, r.resource_name) for r in response.responses]
    assert shown == [(0, None, "a"), (40, "no such option", "1")]


async def test_all_options_are_replaced() -> None:
    fake = FakeService(alter_configs=[AlteredConfigs(TOPIC, ErrorCode.NONE)])
    options = [AlterableConfig("retention.ms", "1"), AlterableConfig("segment.ms", None)]
    request = AlterConfigsRequest([AlterConfigsResource(RESOURCE_TOPIC, "a", options)])
    response = await ask(fake, ALTER, 2, request)
    wanted = {"retention.ms": "1", "segment.ms": None}
    assert fake.asked("alter_configs") == [(TOPIC, wanted)]
    assert [r.error_code for r in response.responses] == [0]


async def test_an_option_named_twice_is_refused_and_the_others_are_done() -> None:
    fake = FakeService(alter_configs=[AlteredConfigs(BROKER, ErrorCode.NONE)])
    twice = [AlterableConfig("retention.ms", "1"), AlterableConfig("retention.ms", "2")]
    resources = [
        AlterConfigsResource(RESOURCE_TOPIC, "a", twice),
        AlterConfigsResource(RESOURCE_BROKER, "1", []),
    ]
    response = await ask(fake, ALTER, 0, AlterConfigsRequest(resources))
    assert fake.asked("alter_configs") == [(BROKER, {})]
    shown = {(r.resource_name, r.error_code) for r in response.responses}
    assert shown == {("a", 42), ("1", 0)}


async def test_not_the_controller_is_said_of_each_resource() -> None:
    fake = FakeService(alter_configs=ApiError(ErrorCode.NOT_CONTROLLER, "Ask broker 2."))
    resources = [AlterConfigsResource(RESOURCE_TOPIC, name, []) for name in ("a", "b")]
    response = await ask(fake, ALTER, 1, AlterConfigsRequest(resources))
    shown = [(r.resource_name, r.error_code, r.error_message) for r in response.responses]
    assert shown == [("a", 41, "Ask broker 2."), ("b", 41, "Ask broker 2.")]
