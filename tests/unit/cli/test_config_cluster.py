"""What a broker's answer about an option says."""

import pytest

from pyrklog.cli.config_cluster import Entry, entry_of
from pyrklog.cli.config_kinds import Kind
from pyrklog.config.entry import Source
from pyrklog.protocol.configs import DescribeConfigsResourceResult, DescribeConfigsSynonym

HOURS = ("log.retention.hours", "168", Source.DEFAULT)


def told(kind: Kind, name: str, value: str | None, *synonyms: tuple[str, str, int]) -> Entry:
    """The first synonym counts."""
    answer = DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=False,
        config_source=synonyms[0][2],
        synonyms=[DescribeConfigsSynonym(*one) for one in synonyms],
    )
    return entry_of(kind, "t" if kind is Kind.TOPIC else "1", answer)


@pytest.mark.parametrize(
    ("weaker", "default"),
    [
        ([HOURS], "604800000"),
        ([("log.retention.minutes", "3", Source.STATIC_BROKER), HOURS], "180000"),
        ([("log.retention.hours", "-1", Source.STATIC_BROKER), HOURS], "-1"),
        ([("log.retention.ms", "7", Source.DYNAMIC_DEFAULT_BROKER), HOURS], "7"),
    ],
)
def test_a_topics_default_is_what_an_unset_one_gets(
    weaker: list[tuple[str, str, int]], default: str
) -> None:
    name = "retention.ms"
    found = told(Kind.TOPIC, name, "5", (name, "5", Source.TOPIC), *weaker)
    assert (found.value, found.source, found.default) == ("5", "topic", default)
    assert found.item()["default"] == default
    assert found.unset == default
    unset = told(Kind.TOPIC, name, default, *weaker)
    assert (unset.value, unset.default) == (default, default)


def test_without_synonyms_it_is_kafkas() -> None:
    found = told(Kind.TOPIC, "retention.ms", "5", ("retention.ms", "5", Source.TOPIC))
    assert (found.default, found.unset) == ("604800000", None)


def test_a_brokers_default_is_what_nobody_set() -> None:
    name, static = "log.retention.minutes", Source.STATIC_BROKER
    set_for_all = (name, "9", Source.DYNAMIC_DEFAULT_BROKER)
    found = told(Kind.BROKER, name, "9", set_for_all, (name, "8", static), HOURS)
    assert (found.value, found.default) == ("9", "10080")
