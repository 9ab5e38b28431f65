"""Dashboards in Grafana's JSON. What they show is in :mod:`.dashboards`.

Made for Grafana 9 and later (schema version 38). The data source is a variable, so that a file can
be imported or provisioned as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

SCHEMA_VERSION = 38
ROW_HEIGHT = 1
PANEL_HEIGHT = 8
STAT_HEIGHT = 4
GRID_WIDTH = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

Unit = Literal["short", "Bps", "bytes", "s", "reqps", "percentunit", "ops"]


class Query(NamedTuple):
    """PromQL, and what names each of its series: ``{{label}}`` is replaced."""

    expr: str
    legend: str = "{{instance}}"


class Panel(NamedTuple):
    """``width``: of the 24 columns. A ``stat`` shows the last value, in red from ``bad_from``
    on."""

    title: str
    queries: Sequence[Query]
    unit: Unit = "short"
    width: int = 8
    kind: Literal["timeseries", "stat"] = "timeseries"
    about: str = ""
    bad_from: float | None = None
    stacked: bool = False


class Row(NamedTuple):
    title: str
    panels: Sequence[Panel]


class Variable(NamedTuple):
    """A choice at the top: the values that ``label_values(query)`` finds."""

    name: str
    label: str
    query: str
    several: bool = False


class Dashboard(NamedTuple):
    """``name`` is that of the file and the unique id."""

    name: str
    title: str
    about: str
    variables: Sequence[Variable]
    rows: Sequence[Row]


def as_json(dashboard: Dashboard) -> str:
    found = {
        "uid": dashboard.name,
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["pyrklog"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_data_source(), *map(_variable, dashboard.variables)]},
        "links": [
            {"type": "dashboards", "tags": ["pyrklog"], "title": "pyrklog", "asDropdown": True}
        ],
        "annotations": {"list": []},
        "panels": _panels(dashboard.rows),
    }
    return json.dumps(found, indent=2) + "\n"


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }


def _variable(variable: Variable) -> dict[str, Any]:
    found = {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({variable.query})", "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": variable.several,
        "includeAll": variable.several,
    }
    if variable.several:
        found["current"] = {"text": "All", "value": "$__all"}
        found["allValue"] = ".*"
    return found


def _panels(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """From left to right, and down: a panel that does not fit begins a new line."""
    found: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        found.append(
            {
                "id": len(found) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "gridPos": {"x": 0, "y": top, "w": GRID_WIDTH, "h": ROW_HEIGHT},
                "panels": [],
            }
        )
        top += ROW_HEIGHT
        left = height = 0
        for panel in row.panels:
            if left + panel.width > GRID_WIDTH:
                left, top, height = 0, top + height, 0
            own_height = STAT_HEIGHT if panel.kind == "stat" else PANEL_HEIGHT
            place = {"x": left, "y": top, "w": panel.width, "h": own_height}
            found.append({"id": len(found) + 1, "gridPos": place, **_panel(panel)})
            left, height = left + panel.width, max(height, own_height)
        top += height
    return found


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": _SOURCE,
            "expr": query.expr,
            "legendFormat": query.legend,
        }
        for number, query in enumerate(panel.queries)
    ]
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.bad_from is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.bad_from}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.stacked:
        defaults["custom"] = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 20}
    found: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
    if panel.kind == "stat":
        found["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    else:
        found["options"] = {"legend": {"displayMode": "list", "placement": "bottom"}}
    return found
