"""A Prometheus of the test's own, and what it knows."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

import yaml

from pyrklog.testing.broker import free_port
from tests.service.grafana_model import LabelValues
from tests.support.waiting import wait_until_serves

_START_S = 60
_SETTLED_S = 1
"""An alert that has just ended is told by the evaluation before."""
_LABELS_LEFT_OUT = ("alertname", "__name__", "job", "severity")


class QueryError(Exception):
    """Prometheus' words."""


class Prometheus:
    """Started by the constructor; ``folder`` has `prometheus.yml` and the rules."""

    def __init__(self, program: Path, folder: Path, configuration: Mapping[str, Any]) -> None:
        (folder / "prometheus.yml").write_text(yaml.safe_dump(dict(configuration)))
        self._address = f"127.0.0.1:{free_port()}"
        output = folder / "prometheus.log"
        with output.open("wb") as target:
            self._process = subprocess.Popen(
                [
                    str(program),
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.STDOUT,
            )
        wait_until_serves(self._process, output, self._serves, _START_S)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _serves(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _ask(self, path: str, **fields: str | float) -> Any:
        query = urllib.parse.urlencode(fields)
        try:
            with urllib.request.urlopen(
                f"http://{self._address}/api/v1/{path}?{query}", timeout=60
            ) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(error.read().decode()) from None

    # --- series ----------------------------------------------------------------------------------

    def now(self, expr: str) -> list[tuple[Mapping[str, str], float]]:
        """Labels and values of the present. Raises QueryError."""
        found = self._ask("query", query=expr)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def number(self, expr: str) -> float:
        """The value of a query that has one at most; NaN without one."""
        found = self.now(expr)
        assert len(found) <= 1, found
        return found[0][1] if found else nan

    def has_data(self, expr: str, seconds: float = 60) -> bool:
        """Whether it has had a number lately. Raises QueryError for what is no PromQL."""
        found = self.between(expr, time.time() - seconds, step_s=5)
        return any(not isnan(value) for _, values in found for value in values)

    def between(
        self, expr: str, start: float, step_s: int = 1
    ) -> list[tuple[Mapping[str, str], list[float]]]:
        """Labels and values of each series since a time."""
        end = time.time()
        if start > end:
            return []
        found = self._ask("query_range", query=expr, start=start, end=end, step=step_s)["result"]
        return [(one["metric"], [float(value) for _, value in one["values"]]) for one in found]

    def label_values(self, asked: LabelValues) -> Sequence[str]:
        """As Grafana's ``label_values``."""
        found = self._ask("series", **{"match[]": asked.selector})
        return sorted({one[asked.label] for one in found if asked.label in one})

    # --- alerts ----------------------------------------------------------------------------------

    def rules(self) -> Mapping[str, Mapping[str, Any]]:
        """Alerting rules by name, with their state and health."""
        groups = self._ask("rules")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}

    def active(self) -> set[str]:
        """Alerts that fire, or will do so unless what they see ends."""
        return {one["labels"]["alertname"] for one in self._ask("alerts")["alerts"]}

    def fired(self, since: float) -> set[str]:
        """Alerts that have fired since a time, or do so now."""
        found = self.between('ALERTS{alertstate="firing"}', since + _SETTLED_S)
        return {labels["alertname"] for labels, _ in found}

    def seen(self, since: float) -> dict[str, list[str]]:
        """Alerts that were active since a time, with labels and for how long; for messages."""
        told: dict[str, list[str]] = {}
        for labels, values in self.between("ALERTS", since):
            rest = {name: value for name, value in labels.items() if name not in _LABELS_LEFT_OUT}
            told.setdefault(labels["alertname"], []).append(f"{rest} for {len(values)} s")
        return told
