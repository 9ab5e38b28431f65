from collections.abc import Iterator

import pytest

from tests.support.commands import Run, runner
from tests.support.kafka_broker import KafkaBroker


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
