"""The shipped alerts and dashboards, by a real Prometheus at a real cluster under load.

`make test-alerts`, about an hour. First ``SERVICE_SECONDS`` (600) without a fault: no alert fires,
and every query of the dashboards has data. Then one fault after another: its alerts fire, no others
do, and they end once it is undone. Durations of the rules are shortened (:mod:`.durations`); what
they look at is what the brokers tell, and no metric is made up.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service import load
from tests.service.durations import longest_silence_s
from tests.service.fault_table import FAULTS
from tests.service.faults import Fault
from tests.service.grafana_model import (
    MAY_BE_EMPTY,
    NEEDS_A_FAULT,
    PanelQuery,
    expanded,
    wrong_with,
)
from tests.service.watched import Watched, watched_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.jvm

SECONDS = float(os.environ.get("SERVICE_SECONDS", "600"))
FIRES_S = 240.0
"""A minute until a broker looks at a disk, the longest `for` of two minutes, and a busy machine."""
FAULT_S = 900.0
SILENT_S_MAX = 2
"""A scrape has a second. On a busy machine one is late, and the next may be."""
DETAIL_S = 180.0
"""A query of the dashboards looks at growth from minute to minute."""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched_cluster(tmp_path_factory.mktemp("service")) as made:
        yield made


def dashboards(watched: Watched) -> list[dict[str, Any]]:
    """The shipped files."""
    paths = sorted(watched.folder.glob("*.json"))
    assert paths
    return [json.loads(Path(path).read_text()) for path in paths]


@pytest.mark.timeout(SECONDS + FAULT_S)
def test_nothing_fires_under_load(watched: Watched) -> None:
    watched.settle()
    rules = watched.prometheus.rules()
    assert rules
    acknowledged, read = watched.load.acknowledged, watched.load.read
    begun = time.time()
    watched.goes_on(SECONDS)
    assert watched.prometheus.fired(begun) == set(), watched.prometheus.seen(begun)
    failed = [one for one in watched.prometheus.rules().values() if one["health"] != "ok"]
    assert not failed
    silences = {
        labels["instance"]: longest_silence_s(values)
        for labels, values in watched.prometheus.between('up{job="pyrklog"}', begun)
    }
    assert set(silences) == set(watched.targets)
    assert max(silences.values()) <= SILENT_S_MAX, silences
    assert watched.load.acknowledged > acknowledged
    assert watched.load.read > read


@pytest.mark.timeout(FAULT_S)
def test_dashboards_are_valid_and_their_queries_have_data(watched: Watched) -> None:
    asked: list[PanelQuery] = []
    for dashboard in dashboards(watched):
        assert wrong_with(dashboard) == []
        asked += expanded(dashboard, watched.prometheus.label_values)
    without: list[PanelQuery] = []

    def have_data() -> bool:
        """Those that are by nature empty are asked, too: they must be PromQL."""
        without[:] = [one for one in asked if not watched.prometheus.has_data(one.expr)]
        return {(one.dashboard, one.panel) for one in without} <= empty

    empty = NEEDS_A_FAULT.keys() | MAY_BE_EMPTY.keys()
    wait_until(have_data, lambda: f"no data: {without}", DETAIL_S)
    panels = {(one.dashboard, one.panel) for one in without}
    assert panels - MAY_BE_EMPTY.keys() == NEEDS_A_FAULT.keys()


@pytest.mark.timeout(FAULT_S)
@pytest.mark.parametrize("fault", FAULTS, ids=[one.name for one in FAULTS])
def test_a_fault_raises_its_alerts_and_no_others(watched: Watched, fault: Fault) -> None:
    prometheus = watched.prometheus
    watched.settle()
    begun = time.time()
    with fault.make(watched):
        wait_until(
            lambda: fault.fires <= prometheus.fired(begun),
            lambda: f"missing {fault.fires - prometheus.fired(begun)}; {prometheus.seen(begun)}",
            FIRES_S,
        )
    watched.settle()
    watched.load.check()
    others = prometheus.fired(begun) - fault.fires - fault.may
    assert not others, prometheus.seen(begun)


def test_the_load_goes_on_at_the_end(watched: Watched) -> None:
    watched.settle()
    before = watched.load.acknowledged
    wait_until(lambda: watched.load.acknowledged > before, f"nothing goes to {load.TOPIC}")
