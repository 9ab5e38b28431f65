from collections.abc import Iterator

import pytest

from tests.support.commands import Run, runner
from tests.support.feature_claims import Claims, OtherTools
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_tools import KafkaTools


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one Apache Kafka for all tests that only need any."""
    with KafkaBroker(tmp_path_factory.mktemp("apache") / "kafka") as kafka:
        yield kafka.bootstrap


@pytest.fixture(params=["pyrklog", pytest.param("kafka", marks=pytest.mark.jvm)])
def either(request: pytest.FixtureRequest) -> str:
    """The address of our broker, and of Apache Kafka."""
    if request.param == "kafka":
        found: str = request.getfixturevalue("apache_kafka")
        return found
    ours: str = request.getfixturevalue("broker").bootstrap
    return ours


@pytest.fixture
def run(either: str) -> Run:
    return runner(either)


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    """Apache Kafka's tools, in one virtual machine."""
    with KafkaTools(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture(scope="session")
def others(tools: KafkaTools) -> OtherTools:
    """What the tools of the feature table can do, by their own words."""
    return OtherTools(tools)


@pytest.fixture
def claim(request: pytest.FixtureRequest) -> Iterator[Claims]:
    """For the test of a row of the feature table, which has the row's name."""
    failed = request.session.testsfailed
    claims = Claims(request.node.originalname.removeprefix("test_"))
    yield claims
    assert claims.is_made or request.session.testsfailed > failed, "nothing is claimed"
