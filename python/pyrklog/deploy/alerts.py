"""Alert rules for Prometheus, and the runbook of each: what it means, where to look, what to do.

The rules themselves are in :mod:`.alert_table`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Literal, NamedTuple

GROUP = "pyrklog"
RUNBOOKS = "runbooks.md"
"""Where annotations lead without another place: the file beside the rules."""
LINE_CHARACTERS_MAX = 100

Severity = Literal["critical", "warning", "info"]

SEVERITIES: dict[Severity, str] = {
    "critical": "records or clients are at risk: wake somebody",
    "warning": "it serves, but less well, or not for long: look today",
    "info": "nothing is to be done soon",
}


class Alert(NamedTuple):
    """``expr`` is PromQL, ``minutes`` how long it must hold. ``summary`` may have Prometheus'
    ``{{ $labels.NAME }}``. The rest is the runbook, in Markdown."""

    name: str
    severity: Severity
    expr: str
    minutes: int
    summary: str
    means: str
    look: Sequence[str]
    do: Sequence[str]

    @property
    def anchor(self) -> str:
        """Of its runbook's heading, as GitHub and others make it."""
        return self.name.lower()


def rules(alerts: Sequence[Alert], runbooks: str = RUNBOOKS) -> str:
    """A rule file for Prometheus (YAML). ``runbooks`` is the address of the page of
    :func:`runbook_page`, without an anchor."""
    lines = [
        "# Alert rules of pyrklog's brokers. Written by `pyrklog deploy alerts`.",
        "# They hold for scrape jobs whose names begin with pyrklog, one job a cluster.",
        "groups:",
        f"  - name: {GROUP}",
        "    rules:",
    ]
    for alert in alerts:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {_scalar(alert.expr)}",
            f"        for: {alert.minutes}m",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {_scalar(alert.summary)}",
            f"          description: {_scalar(_plain(alert.means))}",
            f"          runbook_url: {_scalar(f'{runbooks}#{alert.anchor}')}",
        ]
    return "\n".join(lines) + "\n"


def _scalar(text: str) -> str:
    """A quoted scalar: JSON's strings are YAML's."""
    return json.dumps(text, ensure_ascii=False)


def _plain(markdown: str) -> str:
    return markdown.replace("`", "")


def runbook_page(alerts: Sequence[Alert]) -> str:
    """A page with a section for each alert (Markdown), the gravest first."""
    parts = [
        "# Runbooks",
        _wrapped(
            "What each alert of `pyrklog deploy alerts` means, where to look, and what to do. "
            "`BROKER` is the host of the alert's label `instance`, and `-b BROKER:9092` its Kafka "
            "port. Of a broker that runs as a service, `journalctl -u pyrklog` has the log."
        ),
        "| severity | means |\n|-|-|\n"
        + "\n".join(f"| {name} | {meaning} |" for name, meaning in SEVERITIES.items()),
        "| alert | severity | after |\n|-|-|-|\n"
        + "\n".join(
            f"| [{one.name}](#{one.anchor}) | {one.severity} | {_after(one)} |" for one in alerts
        ),
    ]
    return "\n\n".join([*parts, *map(_section, alerts)]) + "\n"


def _section(alert: Alert) -> str:
    return "\n\n".join(
        [
            f"## {alert.name}",
            f"`{alert.expr}`",
            _wrapped(f"**Means.** {alert.means}"),
            "**Look.**\n\n" + _items(alert.look),
            "**Do.**\n\n" + _items(alert.do),
        ]
    )


def _after(alert: Alert) -> str:
    return f"{alert.minutes} min" if alert.minutes else "at once"


def _items(texts: Sequence[str]) -> str:
    return "\n".join(_wrapped(f"- {text}", indent="  ") for text in texts)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text,
        LINE_CHARACTERS_MAX,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
