from collections.abc import Iterator
from pathlib import Path

import pytest

from pyrklog.testing import TestBroker


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    """A broker with a door for faults, of a module's tests."""
    with TestBroker(tmp_path_factory.mktemp("shared") / "data", faults=True) as running:
        yield running


@pytest.fixture
def door(shared: TestBroker) -> Iterator[TestBroker]:
    """The same, without faults that an earlier test left."""
    yield shared
    shared.clear_faults()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[TestBroker]:
    """A broker of a test's own, with a door."""
    with TestBroker(tmp_path / "own", faults=True) as running:
        yield running
