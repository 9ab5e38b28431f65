"""Spark's filters as conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql import datasource as spark

from pyrklog.spark.conditions import Condition, Operator

_OPERATORS: dict[type[spark.Filter], Operator] = {
    spark.EqualTo: Operator.EQUAL,
    # Differs from EqualTo for null columns alone; topic, partition, offset and time are not null.
    spark.EqualNullSafe: Operator.EQUAL,
    spark.LessThan: Operator.LESS,
    spark.LessThanOrEqual: Operator.LESS_OR_EQUAL,
    spark.GreaterThan: Operator.GREATER,
    spark.GreaterThanOrEqual: Operator.GREATER_OR_EQUAL,
    spark.In: Operator.IN,
    spark.StringStartsWith: Operator.STARTS_WITH,
    spark.StringEndsWith: Operator.ENDS_WITH,
    spark.StringContains: Operator.CONTAINS,
    spark.IsNull: Operator.IS_NULL,
    spark.IsNotNull: Operator.IS_NOT_NULL,
}


def conditions(filters: Iterable[spark.Filter]) -> Iterator[Condition]:
    """Of those that are understood: on a column itself, not on a part of it."""
    for one in filters:
        is_negated = isinstance(one, spark.Not)
        bare = one.child if isinstance(one, spark.Not) else one
        operator = _OPERATORS.get(type(bare))
        path: tuple[str, ...] = getattr(bare, "attribute", ())
        if operator is None or len(path) != 1:
            continue
        value: object = getattr(bare, "value", None)
        # Spark's In has a list where it comes from a variant.
        value = tuple(value) if operator is Operator.IN and isinstance(value, list) else value
        yield Condition(path[0], operator, value, is_negated)
