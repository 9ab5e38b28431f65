"""The kinds of ``pyrklog deploy``, and the files of each.

A kind's files are made here, not installed: they hold the path of this installation's program, or
the address of the runbooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pyrklog.deploy.alert_table import ALERTS
from pyrklog.deploy.alerts import RUNBOOKS, rules, runbook_page
from pyrklog.deploy.dashboards import DASHBOARDS
from pyrklog.deploy.grafana import as_json

HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
"""What ``ProtectHome=yes`` hides from a unit (systemd.exec(5))."""


class Settings(NamedTuple):
    """``program``: absolute path of ``pyrklog``. ``runbooks``: where alerts lead."""

    program: Path
    runbooks: str = RUNBOOKS


class Kind(NamedTuple):
    about: str
    files: Callable[[Settings], Mapping[str, str]]
    """Texts by the names of files."""


def _template(name: str) -> str:
    return (resources.files(__package__) / "templates" / name).read_text(encoding="utf-8")


def in_unit(path: Path) -> str:
    """A path as a word of a unit's command line (systemd.service(5)): what systemd would expand is
    doubled, and a word with other special characters is quoted."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    text = text.replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if any(one in text for one in " \t\\\"';") else text


def is_hidden(program: Path) -> bool:
    """Whether the unit could not see the program."""
    return any(home in program.parents for home in HOMES)


def _unit(settings: Settings) -> dict[str, str]:
    text = _template("pyrklog.service")
    return {"pyrklog.service": text.replace("@PROGRAM@", in_unit(settings.program))}


def _container(_settings: Settings) -> dict[str, str]:
    return {"Containerfile": _template("Containerfile")}


def _logrotate(_settings: Settings) -> dict[str, str]:
    return {"pyrklog.logrotate": _template("pyrklog.logrotate")}


def _prometheus(_settings: Settings) -> dict[str, str]:
    return {"prometheus.yml": _template("prometheus.yml")}


def _alerts(settings: Settings) -> dict[str, str]:
    return {"pyrklog-alerts.yml": rules(ALERTS, settings.runbooks)}


def _runbooks(_settings: Settings) -> dict[str, str]:
    return {RUNBOOKS: runbook_page(ALERTS)}


def _grafana(_settings: Settings) -> dict[str, str]:
    return {f"{one.name}.json": as_json(one) for one in DASHBOARDS}


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "systemd": Kind("a unit for systemd", _unit),
        "container": Kind("a recipe for docker and podman", _container),
        "logrotate": Kind("rotation of a log that goes to a file", _logrotate),
        "prometheus": Kind("how Prometheus reads brokers", _prometheus),
        "alerts": Kind("alert rules for Prometheus", _alerts),
        "runbooks": Kind("what each alert means, and what to do", _runbooks),
        "grafana": Kind("dashboards", _grafana),
    }
)
