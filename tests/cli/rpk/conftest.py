"""Fixtures of the tests of rpk: the program, its help, Redpanda's admin API, which is not there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rpk import AdminApi, Commands, Rpk, RpkClaims


@pytest.fixture
def alone(tmp_path: Path) -> Rpk:
    """It is told no address."""
    return Rpk(tmp_path)


@pytest.fixture
def admin() -> Iterator[AdminApi]:
    with AdminApi() as running:
        yield running


@pytest.fixture
def rpk(tmp_path: Path, either: str, admin: AdminApi) -> Rpk:
    """At a broker of ours, and at Apache Kafka."""
    return Rpk(tmp_path, f"brokers={either}", f"admin.hosts={admin.address}")


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(Rpk(tmp_path_factory.mktemp("rpk")))


@pytest.fixture
def claim(request: pytest.FixtureRequest) -> Iterator[RpkClaims]:
    """For the test of a row of the feature table, which has the row's name."""
    failed = request.session.testsfailed
    claims = RpkClaims(request.node.originalname.removeprefix("test_"))
    yield claims
    assert claims.is_made or request.session.testsfailed > failed, "nothing is claimed"
