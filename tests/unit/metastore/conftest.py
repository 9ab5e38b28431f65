"""Stores for the tests of the metadata store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pyrklog.metastore.embedded import EmbeddedStore, open_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    """An open embedded store in a directory of its own."""
    opened = await open_store(tmp_path / "meta")
    yield opened
    await opened.close()
