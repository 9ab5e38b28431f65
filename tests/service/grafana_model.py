"""What Grafana needs of a dashboard's JSON, and the queries that it would send. Pure.

By Grafana's dashboard JSON model for schema version 36 and later: Grafana itself is not in Debian.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

COLUMNS = 24
SCHEMA_VERSION_MIN = 36
UID_CHARACTERS_MAX = 40
PANEL_TYPES = frozenset({"row", "timeseries", "stat"})
UNITS = frozenset({"short", "Bps", "bytes", "s", "reqps", "percentunit", "ops"})
"""Of Grafana's ids of units, those that we use."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RATE_INTERVAL_S = 16
"""As Grafana for an hour: a step of 15 s and one scrape, or four scrapes."""
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_LABEL_VALUES = re.compile(r"label_values\((.+),\s*(\w+)\)")
BUILT_IN = frozenset({"__rate_interval", "__all"})
NEEDS_A_FAULT = {
    ("pyrklog-cluster", "Findings"): "brokers that are well find nothing wrong with themselves",
}
"""Panels that are empty where all is well, by dashboard and title, and why."""
MAY_BE_EMPTY = {
    ("pyrklog-brokers", "Reads by readers, the mean"): "the block cache may have all that is read",
}
"""Panels that are empty by the load."""


class PanelQuery(NamedTuple):
    """What one query of a panel sends, with all variables replaced."""

    dashboard: str
    panel: str
    expr: str


class LabelValues(NamedTuple):
    """A variable's choice: values of a label of the series that a selector finds."""

    selector: str
    label: str


# --- whether it is valid -------------------------------------------------------------------------


def wrong_with(dashboard: Mapping[str, Any]) -> list[str]:
    """One sentence for each thing that Grafana would refuse or could not draw."""
    return [
        *_wrong_with_head(dashboard),
        *_wrong_with_variables(dashboard),
        *_wrong_with_panels(dashboard),
    ]


def _wrong_with_head(dashboard: Mapping[str, Any]) -> Iterator[str]:
    uid = dashboard.get("uid")
    if not isinstance(uid, str) or not re.fullmatch(r"[\w-]+", uid):
        yield f"uid {uid!r} is no name"
    elif len(uid) > UID_CHARACTERS_MAX:
        yield f"uid {uid} is longer than {UID_CHARACTERS_MAX} characters"
    if not dashboard.get("title"):
        yield "it has no title"
    if dashboard.get("id") is not None:
        yield "its id is another Grafana's: an import would replace that dashboard"
    version = dashboard.get("schemaVersion")
    if not isinstance(version, int) or version < SCHEMA_VERSION_MIN:
        yield f"schemaVersion {version!r}"
    if set(dashboard.get("time", {})) != {"from", "to"}:
        yield "it has no range of time"


def _variables(dashboard: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = dashboard.get("templating", {}).get("list", [])
    return found


def _wrong_with_variables(dashboard: Mapping[str, Any]) -> Iterator[str]:
    known: set[str] = set()
    for one in _variables(dashboard):
        name = one.get("name", "")
        if not re.fullmatch(r"\w+", name) or name in known:
            yield f"variable {name!r} has no name of its own"
        if one.get("type") == "datasource":
            if one.get("query") != "prometheus":
                yield f"variable {name} offers no Prometheus"
        elif one.get("type") != "query":
            yield f"variable {name} has type {one.get('type')!r}"
        else:
            yield from _wrong_with_query_variable(one, known)
        known.add(name)
    if "datasource" not in known:
        yield "no variable chooses the data source"


def _wrong_with_query_variable(one: Mapping[str, Any], known: set[str]) -> Iterator[str]:
    name = one["name"]
    text = one.get("query", {}).get("query", "")
    if one.get("datasource") != SOURCE:
        yield f"variable {name} does not ask the chosen data source"
    if not _LABEL_VALUES.fullmatch(text):
        yield f"variable {name} asks {text!r}"
    later = _used(text) - known
    if later:
        yield f"variable {name} uses {', '.join(sorted(later))}, which is not chosen before"
    if one.get("includeAll") and not one.get("allValue"):
        yield f"variable {name} has no value for All"


def _wrong_with_panels(dashboard: Mapping[str, Any]) -> Iterator[str]:
    known = {one.get("name") for one in _variables(dashboard)}
    panels: Sequence[Mapping[str, Any]] = dashboard.get("panels", [])
    if not panels:
        yield "it has no panels"
    ids = [one.get("id") for one in panels]
    if len(set(ids)) < len(ids) or not all(isinstance(one, int) and one > 0 for one in ids):
        yield f"the panels' ids are {ids}"
    taken: dict[tuple[int, int], str] = {}
    for one in panels:
        title = str(one.get("title"))
        yield from _wrong_with_place(title, one.get("gridPos", {}), taken)
        if one.get("type") not in PANEL_TYPES:
            yield f"{title}: type {one.get('type')!r}"
        elif one["type"] != "row":
            yield from _wrong_with_targets(title, one)
        unknown = _used(str(one)) - known
        if unknown:
            yield f"{title}: no variable {', '.join(sorted(unknown))}"


def _wrong_with_place(
    title: str, place: Mapping[str, Any], taken: dict[tuple[int, int], str]
) -> Iterator[str]:
    sides = [place.get(side) for side in "xywh"]
    if not all(isinstance(side, int) and side >= 0 for side in sides):
        yield f"{title}: gridPos {dict(place)}"
        return
    if place["w"] < 1 or place["h"] < 1 or place["x"] + place["w"] > COLUMNS:
        yield f"{title}: gridPos {dict(place)} is outside of {COLUMNS} columns"
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            other = taken.setdefault((x, y), title)
            if other != title:
                yield f"{title} lies over {other}"
                return


def _wrong_with_targets(title: str, panel: Mapping[str, Any]) -> Iterator[str]:
    targets: Sequence[Mapping[str, Any]] = panel.get("targets", [])
    names = [one.get("refId") for one in targets]
    if not targets or len(set(names)) < len(names) or not all(names):
        yield f"{title}: its queries are named {names}"
    for one in (panel, *targets):
        if one.get("datasource") != SOURCE:
            yield f"{title}: it does not ask the chosen data source"
    if not all(one.get("expr") for one in targets):
        yield f"{title}: a query is empty"
    if panel.get("fieldConfig", {}).get("defaults", {}).get("unit") not in UNITS:
        yield f"{title}: its unit is unknown"


def _used(text: str) -> set[str]:
    return {braced or plain for braced, plain in _VARIABLE.findall(text)} - BUILT_IN


# --- what it asks --------------------------------------------------------------------------------


def expanded(
    dashboard: Mapping[str, Any], values: Callable[[LabelValues], Sequence[str]]
) -> list[PanelQuery]:
    """All queries: with `All` where a variable may have it, else with its first value. ``values``
    finds those of a label; LookupError where a variable has none."""
    chosen: dict[str, str] = {"__rate_interval": f"{RATE_INTERVAL_S}s"}
    for one in _variables(dashboard):
        if one["type"] != "query":
            continue
        found = _LABEL_VALUES.fullmatch(_replaced(one["query"]["query"], chosen))
        assert found is not None, one
        offered = values(LabelValues(found[1], found[2]))
        if not offered:
            raise LookupError(f"{dashboard['uid']}: nothing to choose for {one['name']}")
        chosen[one["name"]] = one["allValue"] if one["includeAll"] else sorted(offered)[0]
    return [
        PanelQuery(dashboard["uid"], panel["title"], _replaced(target["expr"], chosen))
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]


def _replaced(text: str, chosen: Mapping[str, str]) -> str:
    """Variables that are not chosen yet are a KeyError."""
    return _VARIABLE.sub(lambda found: chosen[found[1] or found[2]], text)
