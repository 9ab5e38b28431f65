"""Fixtures of the tests of ``format("pyrklog")``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.spark import session_without_jars, stop_session_without_jars


@pytest.fixture(scope="session")
def _stopped_at_the_end() -> Iterator[None]:
    yield
    stop_session_without_jars()


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, _stopped_at_the_end: None) -> Any:
    """A session that knows our source, the same in all files of a process."""
    return session_without_jars(tmp_path_factory.mktemp("warehouse"))
