"""What an option means here: from the tables of :mod:`pyrklog.config`, without a broker."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.output import columns
from pyrklog.config.broker import OPTIONS
from pyrklog.config.dynamic import dynamic_without_effect, listener_option
from pyrklog.config.kafka_only import DEFAULTS as KAFKA_DEFAULTS
from pyrklog.config.kafka_only import KAFKA_ONLY
from pyrklog.config.known import JVM_ONLY, PREFIXES, WITHOUT_EFFECT
from pyrklog.config.load import REFUSED_OPTIONS
from pyrklog.config.log_options import TOPIC_OPTIONS, TopicOption
from pyrklog.config.option import READ_ONLY, Option
from pyrklog.config.topic import OWN_PREFIX, TOPIC_OPTIONS_BY_NAME

COLUMNS = columns(
    "name OPTION, kind, type, default, changes, effect, valid*, documentation*, kafka*"
)
_EFFECT = "as documented"
_NO_EFFECT = "none: accepted, stored and shown"
_JVM = "none: accepted; it concerns Java's virtual machine"
_LACKING = "none: accepted; pyrklog lacks its feature"
_SIMILAR_MAX = 3

_TOPICS_OF: Mapping[str, str] = {
    fallback.name: topic.option.name for topic in TOPIC_OPTIONS for fallback in topic.fallbacks
}
"""Broker option -> the topic option that it is a default of."""


def explain(names: Iterable[str]) -> list[dict[str, Any]]:
    """An item for each option; two if topics and brokers have it. Raises :class:`CliError` for an
    unknown one."""
    return [item for name in dict.fromkeys(names) for item in _explain(name)]


def is_known(name: str) -> bool:
    return bool(_found(name))


def _explain(name: str) -> list[dict[str, Any]]:
    found = _found(name)
    if found:
        return found
    raise CliError(
        Problem.OPTION_NOT_FOUND, f"neither Kafka 3.9 nor pyrklog has an option {name}", _like(name)
    )


def _found(name: str) -> list[dict[str, Any]]:
    items = []
    topic = TOPIC_OPTIONS_BY_NAME.get(name)
    if topic is not None:
        items.append(_topic(topic))
    broker = OPTIONS.get(name) or listener_option(name)
    if broker is not None:
        items.append(_broker(broker))
    if items:
        return items
    changed = dynamic_without_effect(name)
    if name in JVM_ONLY or name in WITHOUT_EFFECT or name in REFUSED_OPTIONS or changed is not None:
        return [_without_effect(name, changed)]
    return [_without_effect(name, None)] if name.startswith(PREFIXES) else []


def _like(name: str) -> str:
    from difflib import get_close_matches

    known = sorted({*TOPIC_OPTIONS_BY_NAME, *OPTIONS, *JVM_ONLY, *WITHOUT_EFFECT})
    near = get_close_matches(name, known, n=_SIMILAR_MAX, cutoff=0.7)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return "see `pyrklog config describe topic NAME`, or `broker N`"


def _topic(topic: TopicOption) -> dict[str, Any]:
    return {
        **_item("topic", topic.option),
        "changes": "at run time",
        "defaults_from": [fallback.name for fallback in topic.fallbacks],
        "default_of": None,
    }


def _broker(option: Option) -> dict[str, Any]:
    return {
        **_item("broker", option),
        "changes": _changes(option),
        "defaults_from": [],
        "default_of": _TOPICS_OF.get(option.name),
    }


def _item(kind: str, option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "kind": kind,
        "type": option.type_name,
        "default": option.format(option.default),
        "valid": option.valid_values,
        "documentation": option.documentation,
        "effect": _EFFECT if option.effective else _NO_EFFECT,
        "kafka": option.in_kafka
        or ("Unknown to it." if option.name.startswith(OWN_PREFIX) else ""),
    }


def _without_effect(name: str, option: Option | None) -> dict[str, Any]:
    of_kafka = option or KAFKA_ONLY.get(name)
    default = None if option is None else option.format(option.default)
    return {
        "name": name,
        "kind": "broker",
        "type": "unknown" if of_kafka is None else of_kafka.type_name,
        "default": KAFKA_DEFAULTS.get(name) if default is None else default,
        "valid": "",
        "documentation": "",
        "effect": _effect(name),
        "kafka": "",
        "changes": "at start" if option is None else _changes(option),
        "defaults_from": [],
        "default_of": None,
    }


def _effect(name: str) -> str:
    if name in REFUSED_OPTIONS:
        return f"refused: {REFUSED_OPTIONS[name]}"
    return _JVM if name in JVM_ONLY else _LACKING


def _changes(option: Option) -> str:
    if option.update_mode == READ_ONLY:
        return "at start"
    scope = "" if option.update_mode == "per-broker" else ", for one broker or all"
    return f"{'at the next start' if option.at_start else 'at run time'}{scope}"


def pages(items: Sequence[Mapping[str, Any]]) -> str:
    """A few lines for each option."""
    return "\n".join(_page(item) for item in items)


def _page(item: Mapping[str, Any]) -> str:
    lines = [f"{item['name']} · {item['kind']} · {item['type']}"]
    if item["documentation"]:
        lines.append(f"  {item['documentation']}")
    default = "-" if item["default"] is None else item["default"] or '""'
    if item["defaults_from"]:
        default += f", or of the broker: {', '.join(item['defaults_from'])}"
    rows = [
        ("default", default),
        ("valid", item["valid"]),
        ("changes", item["changes"]),
        ("topics", item["default_of"] and f"default of {item['default_of']}"),
        ("effect", "" if item["effect"] == _EFFECT else item["effect"]),
        ("kafka", item["kafka"]),
    ]
    lines += [f"  {name:<9} {text}" for name, text in rows if text]
    return "".join(f"{line}\n" for line in lines)
