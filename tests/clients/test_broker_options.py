"""The broker options, and those that change at run time, compared with Kafka's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from pyrklog.config.broker import OPTIONS
from pyrklog.config.dynamic import DYNAMIC_WITHOUT_EFFECT, OF_EACH_LISTENER, PER_LISTENER_ONLY
from pyrklog.config.entry import OptionType
from pyrklog.config.known import JVM_ONLY, WITHOUT_EFFECT
from pyrklog.config.option import READ_ONLY
from tests.support import jvm

JARS = Path(__file__).parents[2] / ".cache" / "kafka"


class Documented(NamedTuple):
    kind: str
    mode: str


@pytest.fixture(scope="module")
def documented() -> dict[str, Documented]:
    """The table that Kafka prints for its own documentation."""
    command = [jvm.java(), "-cp", f"{JARS}/*", "kafka.server.KafkaConfig"]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pattern = r'id="brokerconfigs_([^"]+)".*?Type:</th><td>(\w+).*?Update Mode:</th><td>([\w-]+)'
    found = {name: Documented(*rest) for name, *rest in re.findall(pattern, page, re.DOTALL)}
    assert len(found) > 300
    return found


def test_all_of_kafkas_options_are_known(documented: dict[str, Documented]) -> None:
    assert documented.keys() <= OPTIONS.keys() | WITHOUT_EFFECT | JVM_ONLY


def test_options_without_effect_are_dynamic_where_kafkas_are(
    documented: dict[str, Documented],
) -> None:
    ours = {name: option.update_mode for name, option in DYNAMIC_WITHOUT_EFFECT.items()}
    theirs = {
        name: found.mode
        for name, found in documented.items()
        if name in WITHOUT_EFFECT | JVM_ONLY and found.mode != READ_ONLY
    }
    assert ours == theirs
    for name, option in DYNAMIC_WITHOUT_EFFECT.items():
        kind = "class" if option.type == OptionType.CLASS else option.type_name
        assert kind == documented[name].kind, name
    assert ours.keys() >= PER_LISTENER_ONLY


def test_options_with_effect_are_dynamic_where_kafkas_are(
    documented: dict[str, Documented],
) -> None:
    """Except the listeners, which are bound and registered at a start."""
    ours = {name: option.update_mode for name, option in OPTIONS.items() if name in documented}
    theirs = {name: documented[name].mode for name in ours}
    assert {name for name, mode in ours.items() if mode != theirs[name]} == {
        "advertised.listeners",
        "listener.security.protocol.map",
        "listeners",
    }
    prefixed = {name: documented[name] for name in OF_EACH_LISTENER}
    assert prefixed == dict.fromkeys(OF_EACH_LISTENER, Documented("int", "cluster-wide"))
