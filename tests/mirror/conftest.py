"""Two brokers that the tests of a module share, and a mirror from one to the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyrklog.testing import TestBroker
from tests.support.mirroring import Pair


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("brokers")
    with TestBroker(folder / "east") as east, TestBroker(folder / "west") as west:
        yield east.bootstrap, west.bootstrap


@pytest.fixture
def pair(brokers: tuple[str, str], topic: str) -> Pair:
    return Pair(*brokers, topic)
