"""Options of client metrics (KIP-714): a resource of the type CLIENT_METRICS is a subscription.

:mod:`pyrklog.telemetry.subscriptions` checks and reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from pyrklog.config.entry import ConfigEntry, Source, Synonym
from pyrklog.config.option import InvalidValueError, Option, integer, items

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
INTERVAL_MS_DEFAULT = 300_000
INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
ALL_METRICS = "*"

OPTIONS: Mapping[str, Option] = {
    option.name: option
    for option in (
        items(METRICS, ()).described(
            f"Beginnings of the names of metrics that clients push; {ALL_METRICS} = all of them."
        ),
        integer(INTERVAL_MS, INTERVAL_MS_DEFAULT).described(
            "Milliseconds between two pushes of a client. Of several subscriptions that match a "
            "client the shortest counts."
        ),
        items(MATCH, ()).described(
            "Which clients: ATTRIBUTE=PATTERN, all of which must match; none = all clients. A "
            "pattern is a regular expression for the whole value of the attribute."
        ),
    )
}


def describe_client_metrics(given: Mapping[str, str], names: Set[str] | None) -> list[ConfigEntry]:
    """A subscription's options in DescribeConfigs, with the defaults of those that are not set, as
    in Kafka 4; Kafka 3.9 names only those that are set. Where it does not exist, none are."""
    entries = []
    for name, option in OPTIONS.items():
        if names is not None and name not in names:
            continue
        synonyms = []
        value = option.format(option.default)
        if name in given:
            value = _as_read(option, given[name])
            synonyms.append(Synonym(name, value, Source.CLIENT_METRICS))
        entries.append(option.entry(value, synonyms, read_only=False))
    return entries


def _as_read(option: Option, text: str) -> str | None:
    """Formatted after it was parsed; unreadable text stays as it is."""
    try:
        return option.format(option.parse(text))
    except InvalidValueError:
        return text
