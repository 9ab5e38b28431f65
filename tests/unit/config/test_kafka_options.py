"""Our options beside the definitions of Apache Kafka 3.9.1.

``kafka_options.json`` is what
``java -cp '.cache/kafka/*' tests/support/KafkaOptions.java`` prints.
"""

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from pyrklog.config.broker import OPTIONS
from pyrklog.config.dynamic import DYNAMIC_WITHOUT_EFFECT
from pyrklog.config.kafka_only import DEFAULTS, KAFKA_ONLY
from pyrklog.config.known import JVM_ONLY, WITHOUT_EFFECT
from pyrklog.config.option import InvalidValueError, Option
from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME

FOUND: dict[str, Any] = json.loads(Path(__file__).with_name("kafka_options.json").read_text())
BROKER, TOPIC, PROBES = FOUND["broker"], FOUND["topic"], FOUND["probes"]
SKIPPED = Path(__file__).parents[3] / "docs" / "skipped.md"

OF_A_START = {"advertised.listeners", "listener.security.protocol.map", "listeners"}
"""Kafka changes them at run time; here they are bound and registered at a start (skipped.md)."""


def skipped() -> list[str]:
    """Names and patterns of options in skipped.md, without the parts about other things."""
    text = SKIPPED.read_text()
    return re.findall(r"`([a-z*][a-zA-Z0-9.*]+)`", text)


def is_skipped(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in skipped())


def test_all_of_kafkas_options_are_known() -> None:
    assert BROKER.keys() <= OPTIONS.keys() | WITHOUT_EFFECT | JVM_ONLY
    assert TOPIC.keys() == TOPIC_OPTIONS_BY_NAME.keys() - {"pyrklog.adopted.unconfirmed"}


def test_what_has_no_effect_is_in_the_docs() -> None:
    without = {name for name in BROKER if name not in OPTIONS or not OPTIONS[name].effective}
    without |= {name for name in TOPIC if not TOPIC_OPTIONS_BY_NAME[name].option.effective}
    assert [name for name in sorted(without) if not is_skipped(name)] == []


def test_broker_options_change_when_kafkas_do() -> None:
    ours = {name: option.update_mode for name, option in OPTIONS.items() if name in BROKER}
    ours |= {name: option.update_mode for name, option in DYNAMIC_WITHOUT_EFFECT.items()}
    theirs = {name: found["mode"] for name, found in BROKER.items()}
    assert ours.keys() >= {name for name, mode in theirs.items() if mode != "read-only"}
    assert {name for name, mode in ours.items() if theirs[name] != mode} == OF_A_START


@pytest.mark.parametrize("name", sorted(TOPIC))
def test_a_topic_option_has_kafkas_type_default_and_fallback(name: str) -> None:
    ours, theirs = TOPIC_OPTIONS_BY_NAME[name], TOPIC[name]
    assert ours.option.type.name == theirs["type"]
    assert ours.option.format(ours.option.default) == theirs["default"]
    # Kafka has a list where its first name is not this one.
    first = ours.fallbacks[0].name if ours.fallbacks else None
    assert first == theirs["broker"]


@pytest.mark.parametrize("name", sorted(TOPIC))
def test_a_wrong_value_of_a_topic_option_is_refused_in_kafkas_words(name: str) -> None:
    ours, theirs = refused(TOPIC_OPTIONS_BY_NAME[name].option), TOPIC[name]["refused"]
    assert ours == theirs


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() & BROKER.keys()))
def test_a_broker_option_has_kafkas_type(name: str) -> None:
    assert OPTIONS[name].type.name == BROKER[name]["type"]


def test_options_without_effect_have_kafkas_types_and_defaults() -> None:
    names = WITHOUT_EFFECT | JVM_ONLY
    assert KAFKA_ONLY.keys() >= names & BROKER.keys()
    theirs = {
        name: (BROKER[name]["type"], BROKER[name].get("default")) for name in names & BROKER.keys()
    }
    ours = {name: (KAFKA_ONLY[name].type.name, DEFAULTS.get(name)) for name in theirs}
    assert ours == theirs


def refused(option: Option) -> dict[str, str]:
    """What is said of the probes."""
    found = {}
    for probe in PROBES:
        try:
            option.parse(probe)
        except InvalidValueError as error:
            found[probe] = str(error)
    return found
