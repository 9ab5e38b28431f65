"""Dashboards: every query reads what brokers have, and Grafana finds its way."""

import json
import re
from typing import Any

import pytest

from pyrklog.deploy.dashboards import DASHBOARDS
from pyrklog.deploy.grafana import GRID_WIDTH, Dashboard, as_json
from tests.unit.deploy.promql import KNOWN, labels_of, wrong_with

NAMES = [one.name for one in DASHBOARDS]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def made(dashboard: Dashboard) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(as_json(dashboard))
    return found


def queries() -> list[tuple[str, str, str]]:
    """Dashboard, expression, legend."""
    return [
        (dashboard.name, target["expr"], target["legendFormat"])
        for dashboard in DASHBOARDS
        for panel in made(dashboard)["panels"]
        for target in panel.get("targets", [])
    ]


@pytest.mark.parametrize(("dashboard", "expr", "legend"), queries())
def test_a_query_reads_what_brokers_have(dashboard: str, expr: str, legend: str) -> None:
    # Grafana puts a time and names in.
    plain = expr.replace("$__rate_interval", "1m").replace("$", "")
    assert wrong_with(plain) == []
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= labels_of(plain)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=NAMES)
def test_a_query_uses_the_variables_that_there_are(dashboard: Dashboard) -> None:
    found = made(dashboard)
    known = {one["name"] for one in found["templating"]["list"]}
    assert "datasource" in known
    panels = json.dumps(found["panels"])
    used = set(re.findall(r"\$\{?(\w+)", panels)) - {"__rate_interval", "__all"}
    assert used == known, "each is used, and there are no others"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=NAMES)
def test_variables_are_asked_for_by_labels_that_there_are(dashboard: Dashboard) -> None:
    for one in dashboard.variables:
        query, _, label = one.query.rpartition(", ")
        assert wrong_with(query.replace("$", "")) == []
        assert label in KNOWN[query.partition("{")[0]]
        assert label == {"group": "consumergroup"}.get(one.name, one.name)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=NAMES)
def test_everything_is_asked_of_the_chosen_source(dashboard: Dashboard) -> None:
    found = made(dashboard)
    (source,) = [one for one in found["templating"]["list"] if one["type"] == "datasource"]
    assert (source["name"], source["query"]) == ("datasource", "prometheus")
    sources = [one["datasource"] for one in found["panels"] if one["type"] != "row"]
    sources += [
        target["datasource"] for one in found["panels"] for target in one.get("targets", [])
    ]
    sources += [one["datasource"] for one in found["templating"]["list"] if one["type"] == "query"]
    assert all(one == SOURCE for one in sources)


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=NAMES)
def test_panels_do_not_overlap_and_have_numbers_of_their_own(dashboard: Dashboard) -> None:
    panels = made(dashboard)["panels"]
    assert [one["id"] for one in panels] == list(range(1, len(panels) + 1))
    taken: set[tuple[int, int]] = set()
    for one in panels:
        place = one["gridPos"]
        assert place["x"] + place["w"] <= GRID_WIDTH
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, one["title"]
        taken |= cells


def test_dashboards_are_told_apart() -> None:
    found = [made(one) for one in DASHBOARDS]
    assert len({one["uid"] for one in found}) == len({one["title"] for one in found}) == len(found)
    assert all(re.fullmatch(r"[a-z-]{1,40}", one["uid"]) for one in found)


def test_a_partition_without_a_commit_adds_no_lag() -> None:
    """Its committed offset is told as -1."""
    committed = re.compile(r"kafka_consumergroup_current_offset\{[^}]*\}( >= 0)?")
    found = [match[1] for _, expr, _ in queries() for match in committed.finditer(expr)]
    assert found
    assert set(found) == {" >= 0"}
