"""What a change of options makes of the options there are. Pure; raises :class:`ApiError`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pyrklog.config.broker import OPTIONS, is_dynamic
from pyrklog.config.option import InvalidValueError, Option
from pyrklog.config.topic import TOPIC_OPTIONS, check_topic_options
from pyrklog.controller.service import (
    OP_APPEND,
    OP_DELETE,
    OP_SET,
    OP_SUBTRACT,
    TYPE_LIST,
    ConfigAlteration,
)
from pyrklog.errors import ApiError, ErrorCode

OptionOf = Callable[[str], Option | None]
DefaultOf = Callable[[str], str | None]


def topic_option(name: str) -> Option | None:
    """The topic option of this name."""
    known = TOPIC_OPTIONS.get(name)
    return known.option if known else None


def apply_incremental(
    current: Mapping[str, str],
    alterations: Sequence[ConfigAlteration],
    option_of: OptionOf,
    default_of: DefaultOf,
) -> dict[str, str]:
    """The options after the operations (KIP-339); what is not named stays."""
    names = [item.name for item in alterations]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    changed = dict(current)
    for operation, name, value in alterations:
        if operation not in (OP_SET, OP_DELETE, OP_APPEND, OP_SUBTRACT):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation} for {name}"
            )
        if operation == OP_DELETE:
            changed.pop(name, None)
            continue
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        if operation == OP_SET:
            changed[name] = value
            continue
        option = option_of(name)
        if option is None or option.type != TYPE_LIST:
            verb = "append" if operation == OP_APPEND else "subtract"
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Config value {verb} is not allowed for config key: {name}",
            )
        before = _items(changed.get(name, default_of(name) or ""))
        changed[name] = ",".join(_combine(operation, before, _items(value)))
    return changed


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _combine(operation: int, before: Sequence[str], items: Collection[str]) -> list[str]:
    if operation == OP_SUBTRACT:
        return [item for item in before if item not in items]
    return [*before, *(item for item in items if item not in before)]


def replacement(options: Mapping[str, str | None]) -> dict[str, str]:
    """The options of AlterConfigs: what is not named goes back to its default."""
    found = {}
    for name, value in options.items():
        if value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        found[name] = value
    return found


def check_topic(options: Mapping[str, str]) -> None:
    """Names and values of a topic's options."""
    try:
        check_topic_options(options)
    except InvalidValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def check_broker(options: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Names and values of a broker's run-time options."""
    for name, value in options.items():
        option = OPTIONS.get(name)
        if before.get(name) == value:
            continue
        if option is None:
            from pyrklog.config.load import nearest

            near = nearest(name, list(OPTIONS))
            hint = f"; did you mean {near}?" if near else "."
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown broker option {name}{hint}")
        if not is_dynamic(name):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: Set({name})"
            )
        try:
            option.parse(value)
        except InvalidValueError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
