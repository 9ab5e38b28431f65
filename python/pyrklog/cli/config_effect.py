"""What a change of an option does in pyrklog, where that is not: at once. Pure."""

from collections.abc import Iterable

from pyrklog.cli.config_kinds import Kind
from pyrklog.config import client_metrics
from pyrklog.config.broker import OPTIONS
from pyrklog.config.dynamic import dynamic_without_effect, listener_option
from pyrklog.config.kafka_only import DEFAULTS
from pyrklog.config.option import Option
from pyrklog.config.topic import TOPIC_OPTIONS_BY_NAME

AT_START = "from the next start"
NO_EFFECT = "without effect in pyrklog"


def remarks(kind: Kind, names: Iterable[str]) -> dict[str, str]:
    """Remarks for people, by option; none for those that act at once, and unknown ones."""
    found = {name: _remark(_option(kind, name)) for name in names}
    return {name: remark for name, remark in found.items() if remark}


def _option(kind: Kind, name: str) -> Option | None:
    if kind is Kind.TOPIC:
        known = TOPIC_OPTIONS_BY_NAME.get(name)
        return None if known is None else known.option
    if kind is Kind.BROKER:
        return broker_option(name)
    if kind is Kind.BROKER_LOGGERS:
        return None
    return client_metrics.OPTIONS.get(name)


def default_of(kind: Kind, name: str) -> str | None:
    """The default of the option's definition; None for an unknown option, or without one."""
    option = _option(kind, name)
    if option is None:
        return None
    return DEFAULTS.get(name) if option.default is None else option.format(option.default)


def broker_option(name: str) -> Option | None:
    """One that brokers have, or that they take and keep."""
    return OPTIONS.get(name) or listener_option(name) or dynamic_without_effect(name)


def _remark(option: Option | None) -> str:
    if option is None:
        return ""
    if not option.effective:
        return NO_EFFECT
    return AT_START if option.at_start else ""
