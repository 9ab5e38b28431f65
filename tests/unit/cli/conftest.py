"""Nothing that other runs have kept of clusters changes what a command tells here."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"{os.devnull}/cache")
