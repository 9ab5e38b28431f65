"""What a broker's answer about an option says."""

from typing import Any, cast

import pytest

from pyrklog.cli.cluster_requests import ClusterRequests, NotServedError
from pyrklog.cli.config_cluster import ConfigAdmin, Entry, entry_of
from pyrklog.cli.config_kinds import Kind
from pyrklog.cli.failures import CliError
from pyrklog.config.entry import Source
from pyrklog.protocol.api import Api
from pyrklog.protocol.configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from pyrklog.protocol.metadata import MetadataResponse
from pyrklog.protocol.telemetry import ClientMetricsResource, ListClientMetricsResourcesResponse


class Subscriptions:
    """Stands for :class:`ClusterRequests` of a cluster with these; None: it cannot list them."""

    def __init__(self, names: list[str] | None) -> None:
        self._names = names

    def metadata(self, _topics: object) -> MetadataResponse:
        return MetadataResponse(0, [], "c", 1, [])

    def ask_any(self, api: Api[Any, Any], _request: object) -> ListClientMetricsResourcesResponse:
        if self._names is None:
            raise NotServedError(api.name, "the broker")
        named = [ClientMetricsResource(name) for name in self._names]
        return ListClientMetricsResourcesResponse(0, 0, named)


def config_admin(kind: Kind, names: list[str] | None) -> ConfigAdmin:
    return ConfigAdmin(cast("ClusterRequests", Subscriptions(names)), kind)


@pytest.mark.parametrize(
    ("names", "fix"),
    [
        (["latencies"], "did you mean latencies?"),
        ([], "`pyrklog config describe client-metrics` shows all there are"),
    ],
)
def test_a_subscription_that_does_not_exist_is_refused(names: list[str], fix: str) -> None:
    with pytest.raises(CliError) as caught:
        config_admin(Kind.CLIENT_METRICS, names).refuse_missing(["latencie"])
    assert caught.value.text() == (
        f"error[PK67]: there is no subscription latencie to client metrics\n  fix: {fix}"
    )
    assert caught.value.code == 4


def test_other_names_are_left_to_the_broker() -> None:
    config_admin(Kind.CLIENT_METRICS, ["latencies"]).refuse_missing(["latencies"])
    config_admin(Kind.CLIENT_METRICS, None).refuse_missing(["nosuch"])
    config_admin(Kind.TOPIC, []).refuse_missing(["nosuch"])


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
