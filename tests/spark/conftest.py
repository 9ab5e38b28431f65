"""Fixtures of the tests of ``format("pyrklog")``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import changing_table
from tests.support.postgres import PostgresServer
from tests.support.postgres_reading import PLANES, Database
from tests.support.spark import session_without_jars, stop_session_without_jars


@pytest.fixture(scope="session")
def _stopped_at_the_end() -> Iterator[None]:
    yield
    stop_session_without_jars()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, _stopped_at_the_end: None) -> Any:
    """A session that knows our source, the same in all files of a process."""
    return session_without_jars(tmp_path_factory.mktemp("warehouse"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One for all tests, each with its own database."""
    with PostgresServer() as running:
        yield running


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    """A new one."""
    found = Database(postgres)
    yield found
    found.connection.close()


@pytest.fixture
def planes(database: Database) -> Database:
    """With a table of that name."""
    changing_table.create(database.connection, PLANES)
    return database
