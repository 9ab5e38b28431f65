"""Conditions of a query on single columns, and what they say of a value that is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Operator(Enum):
    """``IN`` has a tuple of values; ``IS_NULL`` and ``IS_NOT_NULL`` have none."""

    EQUAL = "="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    IN = "in"
    STARTS_WITH = "starts with"
    ENDS_WITH = "ends with"
    CONTAINS = "contains"
    IS_NULL = "is null"
    IS_NOT_NULL = "is not null"


@dataclass(frozen=True)
class Condition:
    """Of one column; ``is_negated`` turns the operator's answer round, but for nulls."""

    column: str
    operator: Operator
    value: object = None
    is_negated: bool = False


_TESTS: dict[Operator, Callable[..., bool]] = {
    Operator.EQUAL: lambda known, value: known == value,
    Operator.LESS: lambda known, value: known < value,
    Operator.LESS_OR_EQUAL: lambda known, value: known <= value,
    Operator.GREATER: lambda known, value: known > value,
    Operator.GREATER_OR_EQUAL: lambda known, value: known >= value,
    Operator.STARTS_WITH: lambda known, value: known.startswith(value),
    Operator.ENDS_WITH: lambda known, value: known.endswith(value),
    Operator.CONTAINS: lambda known, value: value in known,
}
_OF_TEXT = frozenset({Operator.STARTS_WITH, Operator.ENDS_WITH, Operator.CONTAINS})


def may_hold(condition: Condition, known: str | int) -> bool:
    """False if a row whose column is ``known`` cannot satisfy the condition. True where that cannot
    be told: of values of another type, and of nulls among them."""
    operator, value = condition.operator, condition.value
    if operator is Operator.IS_NULL or operator is Operator.IS_NOT_NULL:
        return (operator is Operator.IS_NOT_NULL) is not condition.is_negated
    if operator is Operator.IN:
        found = _is_among(known, value)
        return True if found is None else found is not condition.is_negated
    if type(value) is not type(known) or (operator in _OF_TEXT and not isinstance(known, str)):
        return True
    return _TESTS[operator](known, value) is not condition.is_negated


def _is_among(known: str | int, values: object) -> bool | None:
    """None if that cannot be told."""
    if not isinstance(values, tuple) or any(type(one) is not type(known) for one in values):
        return None
    return known in values
