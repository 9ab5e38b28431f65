"""Alert rules: what Prometheus would refuse or never fire, and a runbook for each."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from ci import runbooks
from pyrklog.cli.app import app
from pyrklog.deploy.alert_table import ALERTS
from pyrklog.deploy.alerts import GROUP, SEVERITIES, Alert, rules, runbook_page
from pyrklog.observability.health import OWN_KINDS
from tests.unit.deploy.promql import labels_of, wrong_with

RULE_TESTS = Path(__file__).with_name("alerts_test.yml")
PAGE = Path(__file__).parents[3] / "docs" / "understanding" / "observability.md"
NAMES = [one.name for one in ALERTS]


def parsed() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(rules(ALERTS, "https://wiki.example/page"))["groups"]
    assert group["name"] == GROUP
    found: list[dict[str, Any]] = group["rules"]
    return found


def headings(page: str) -> list[str]:
    return re.findall(r"^## (.*)$", page, re.MULTILINE)


def test_the_rule_file_has_every_alert_as_prometheus_wants_it() -> None:
    found = parsed()
    assert [one["alert"] for one in found] == NAMES
    for one, alert in zip(found, ALERTS, strict=True):
        assert one["expr"] == alert.expr
        assert one["for"] == f"{alert.minutes}m"
        assert one["labels"] == {"severity": alert.severity}
        assert alert.severity in SEVERITIES
        assert set(one) == {"alert", "expr", "for", "labels", "annotations"}
        assert set(one["annotations"]) == {"summary", "description", "runbook_url"}


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_reads_what_brokers_have(alert: Alert) -> None:
    assert wrong_with(alert.expr) == []
    kinds = re.findall(r'kind="(\w+)"', alert.expr)
    assert set(kinds) <= set(OWN_KINDS)
    used = re.findall(r"\$labels\.(\w+)", alert.summary)
    assert used, "the summary says where it is"
    assert set(used) <= labels_of(alert.expr), "a label that the result lacks would be empty"


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_an_alert_is_limited_to_our_jobs(alert: Alert) -> None:
    """Apache Kafka's exporters have metrics of the same names."""
    selectors = re.findall(r"\b\w+\{([^}]*)\}", alert.expr)
    assert selectors
    assert all(re.match(r'job=~"[^"]*pyrklog\.\*"', one) for one in selectors)


def test_every_alert_leads_to_its_own_runbook() -> None:
    sections = headings(runbook_page(ALERTS))
    assert sections == NAMES
    assert len(set(sections)) == len(sections)
    for one in parsed():
        base, _, anchor = one["annotations"]["runbook_url"].partition("#")
        assert base == "https://wiki.example/page"
        # As GitHub makes them.
        assert anchor == re.sub(r"[^\w\- ]", "", one["alert"].lower())


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_a_runbook_says_what_it_means_where_to_look_and_what_to_do(alert: Alert) -> None:
    assert alert.means.endswith((".", ".)"))
    assert alert.look
    assert alert.do
    for text in (*alert.look, *alert.do):
        assert text.endswith((".", "?", ".**")), text
        # A page of its own elsewhere has no neighbours.
        assert "](" not in text
    others = re.findall(r"\bPyrklog[A-Z]\w+", " ".join((alert.means, *alert.look, *alert.do)))
    assert set(others) <= set(NAMES)


@pytest.mark.parametrize("alert", ALERTS, ids=NAMES)
def test_the_commands_of_a_runbook_exist(alert: Alert) -> None:
    texts = " ".join((alert.means, *alert.look, *alert.do))
    for line in re.findall(r"`pyrklog ([^`]+)`", texts):
        command: Any = typer.main.get_command(app)
        words = line.split()
        while words and getattr(command, "commands", None):
            assert words[0] in command.commands, line
            command = command.commands[words.pop(0)]
        options = {name for one in command.params for name in one.opts}
        assert {word for word in words if word.startswith("-")} <= options, line


def test_every_kind_of_finding_has_an_alert() -> None:
    """By itself, or by the metric behind it."""
    by_metric = {
        "starting": "PyrklogBrokerNotReady",
        "ending": "PyrklogBrokerNotReady",
        "log_dir_full": "PyrklogLogDirFull",
        "zookeeper_unreached": "PyrklogZooKeeperUnreached",
        "reads_stuck": "PyrklogReadsStuck",
        "writes_stuck": "PyrklogWritesStuck",
    }
    assert set(by_metric.values()) <= set(NAMES)
    text = " ".join(one.expr for one in ALERTS)
    assert set(OWN_KINDS) == {*by_metric, *re.findall(r'kind="(\w+)"', text)}


def test_the_page_is_up_to_date() -> None:
    assert runbooks.PAGE.read_text() == runbooks.page(), "run: python ci/runbooks.py"


def test_promtools_tests_have_each_alert_firing_and_quiet() -> None:
    """`make check-alerts` runs them; that they are about our rules is checked here."""
    written = yaml.safe_load(RULE_TESTS.read_text())
    assert written["rule_files"] == ["pyrklog-alerts.yml"]
    fires: set[str] = set()
    quiet: set[str] = set()
    for case in written["tests"]:
        for series in case["input_series"]:
            assert wrong_with(series["series"]) == []
        series_of_case = {series["series"].partition("{")[0] for series in case["input_series"]}
        for test in case["promql_expr_test"]:
            samples = test["exp_samples"]
            fires |= {name for one in samples for name in _alert_names(one["labels"])}
            if not samples:
                quiet |= series_of_case
    assert fires == set(NAMES)
    read = {name for one in ALERTS for name in re.findall(r"\b(\w+)\{", one.expr)}
    assert read <= quiet


def test_the_page_has_queries_that_promtool_tries() -> None:
    """Those of no alert."""
    cases = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    tried = {one["expr"] for case in cases for one in case["promql_expr_test"]}
    queries = {one for one in tried if "ALERTS" not in one}
    assert queries
    for query in queries:
        assert wrong_with(query) == []
        assert f"| `{query}` |" in PAGE.read_text()


def _alert_names(labels: str) -> list[str]:
    return re.findall(r'alertname="(\w+)"', labels)
