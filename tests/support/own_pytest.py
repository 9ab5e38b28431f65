"""Runs of pytest of their own, with the plug-in of ``pyrklog.testing``."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
SEND = """
from confluent_kafka import Producer


def send(bootstrap, topic, *values):
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0})
    errors = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    return [None if error is None else error.name() for error in errors]
"""


class OwnPytest:
    """Runs pytest with the plug-in, and no other that is not named."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        paths = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS"):
            monkeypatch.delenv(name, raising=False)
        pytester.makepyfile(sending=SEND)

    def __call__(self, source: str, *arguments: str) -> pytest.RunResult:
        self._pytester.makepyfile(test_it=f"from sending import send\n{dedent(source)}")
        return self._pytester.runpytest_subprocess(
            "-p", "pyrklog.testing.plugin", "-W", "error", *arguments, timeout=200
        )
