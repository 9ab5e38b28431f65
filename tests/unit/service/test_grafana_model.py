"""What the check of dashboards refuses, and the queries that are asked."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pyrklog.deploy.dashboards import DASHBOARDS
from pyrklog.deploy.grafana import as_json
from tests.service.grafana_model import (
    NEEDS_A_FAULT,
    LabelValues,
    PanelQuery,
    expanded,
    wrong_with,
)

SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def small() -> dict[str, Any]:
    panel = {
        "id": 2,
        "type": "stat",
        "title": "Up",
        "gridPos": {"x": 0, "y": 1, "w": 4, "h": 4},
        "datasource": SOURCE,
        "targets": [
            {
                "refId": "A",
                "datasource": SOURCE,
                "expr": 'rate(up{job="$job", instance=~"${instance}"}[$__rate_interval])',
            }
        ],
        "fieldConfig": {"defaults": {"unit": "short"}},
    }
    row = {"id": 1, "type": "row", "title": "All", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 1}}
    return {
        "uid": "small",
        "title": "Small",
        "schemaVersion": 38,
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                variable("job", "label_values(build, job)"),
                {
                    **variable("instance", 'label_values(build{job="$job"}, instance)'),
                    "includeAll": True,
                    "allValue": ".*",
                },
            ]
        },
        "panels": [row, panel],
    }


def variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "includeAll": False,
    }


def variables(board: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = board["templating"]["list"]
    return found


def test_a_good_one_has_nothing_wrong() -> None:
    assert wrong_with(small()) == []


@pytest.mark.parametrize("one", DASHBOARDS, ids=[one.name for one in DASHBOARDS])
def test_the_shipped_ones_have_nothing_wrong(one: Any) -> None:
    assert wrong_with(json.loads(as_json(one))) == []


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda board: board.update(uid="a b"), "is no name"),
        (lambda board: board.update(uid="x" * 41), "longer than 40"),
        (lambda board: board.update(id=7), "another Grafana's"),
        (lambda board: board.pop("title"), "no title"),
        (lambda board: board.update(schemaVersion="38"), "schemaVersion"),
        (lambda board: board.pop("time"), "no range of time"),
        (lambda board: board.update(panels=[]), "no panels"),
        (lambda board: variables(board).pop(0), "no variable chooses the data source"),
        (lambda board: variables(board).reverse(), "not chosen before"),
        (lambda board: variables(board)[0].update(query="loki"), "offers no Prometheus"),
        (lambda board: variables(board)[1].update(name="j"), "no variable job"),
        (lambda board: variables(board)[1].update(datasource=None), "does not ask the chosen"),
        (lambda board: variables(board)[1]["query"].update(query="build"), "asks 'build'"),
        (lambda board: variables(board)[2].pop("allValue"), "no value for All"),
        (lambda board: board["panels"][1].update(id=1), "ids are [1, 1]"),
        (lambda board: board["panels"][1].update(type="graph"), "type 'graph'"),
        (lambda board: board["panels"][1]["gridPos"].update(y=0), "lies over"),
        (lambda board: board["panels"][1]["gridPos"].update(x=21), "outside of 24 columns"),
        (lambda board: board["panels"][1]["gridPos"].pop("h"), "gridPos"),
        (lambda board: board["panels"][1].update(datasource="default"), "does not ask the chosen"),
        (lambda board: board["panels"][1]["targets"][0].pop("refId"), "its queries are named"),
        (lambda board: board["panels"][1]["targets"][0].update(expr=""), "a query is empty"),
        (lambda board: board["panels"][1].pop("fieldConfig"), "its unit is unknown"),
    ],
)
def test_what_grafana_would_refuse_is_told(
    spoil: Callable[[dict[str, Any]], object], told: str
) -> None:
    board = small()
    spoil(board)
    assert any(told in one for one in wrong_with(board)), wrong_with(board)


def test_variables_are_replaced_in_their_order() -> None:
    asked: list[LabelValues] = []

    def values(one: LabelValues) -> list[str]:
        asked.append(one)
        return ["b", "a"]

    assert expanded(small(), values) == [
        PanelQuery("small", "Up", 'rate(up{job="a", instance=~".*"}[16s])')
    ]
    assert asked == [LabelValues("build", "job"), LabelValues('build{job="a"}', "instance")]


def test_a_variable_without_values_is_told() -> None:
    with pytest.raises(LookupError, match="nothing to choose for job"):
        expanded(small(), lambda _: [])


def test_panels_that_need_a_fault_exist_and_have_a_reason() -> None:
    panels = {
        (one.name, panel.title) for one in DASHBOARDS for row in one.rows for panel in row.panels
    }
    assert set(NEEDS_A_FAULT) <= panels
    assert all(NEEDS_A_FAULT.values())
