"""pyrklog's answers to the table's requests are Apache Kafka's, kept in ``answers/kraft``, but for
the departures."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from pyrklog.protocol.api_versions import API_VERSIONS, ApiVersionsRequest
from tests.parity import answers, brokers
from tests.parity.definitions import definition
from tests.parity.departures import DEPARTURES, changed, find
from tests.parity.rows import Row, Scenario
from tests.parity.session import Session
from tests.parity.table import AWAITED, MODULES, scenarios
from tests.support.raw_client import RawClient
from tests.support.waiting import PATIENCE_S

REQUESTS_MIN = 300
NOT_ASKED = {74}
"""ListClientMetricsResources: Apache Kafka does not serve it with ZooKeeper. The requests by which
clients push metrics (71, 72) are listed with a subscription only, as there with a class that
receives them; tests/unit/handlers/test_telemetry.py has each refusal."""
SCENARIOS = [(module, scenario) for module in MODULES for scenario in scenarios(module)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with brokers.pyrklog(tmp_path_factory.mktemp("parity")) as address:
        yield address


recorded = cache(answers.load)


def expectation(module: str, scenario: str, title: str) -> tuple[Any, Any]:
    """Kafka's answer and ours."""
    kafkas, other = (recorded(one, module)[scenario][title] for one in brokers.REFERENCES)
    found = find(module, scenario, title)
    return kafkas, kafkas if found is None else changed(kafkas, other, found[1])


def rows(modules: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Module, scenario, title."""
    for module in modules:
        for scenario in scenarios(module):
            for row in scenario.rows:
                yield module, scenario.name, row.title


@pytest.mark.parametrize(
    ("module", "scenario"), SCENARIOS, ids=[f"{one}-{other.name}" for one, other in SCENARIOS]
)
def test_answers_are_kafkas(bootstrap: str, module: str, scenario: Scenario) -> None:
    with Session(bootstrap, PATIENCE_S) as session:
        found = session.run(scenario)
    wrong = []
    for title, answer in found.items():
        _, expected = expectation(module, scenario.name, title)
        if answer != expected:
            wrong.append(f"{title}\n  expected {_text(expected)}\n  found    {_text(answer)}")
    assert not wrong, "\n".join(wrong)


def _text(answer: Any) -> str:
    return json.dumps(answer)


def test_a_departure_is_one() -> None:
    """Each names requests of the table, and Kafka's answers to them are others."""
    used = set()
    for module, scenario, title in rows(MODULES):
        found = find(module, scenario, title)
        if found is not None:
            used.add(found[0])
            kafkas, ours = expectation(module, scenario, title)
            assert ours != kafkas, f"{module} / {scenario} / {title}"
    assert {pattern for one in DEPARTURES for pattern in one.requests} == used


@pytest.mark.parametrize("reference", brokers.REFERENCES)
@pytest.mark.parametrize("module", [*MODULES, *AWAITED])
def test_each_request_was_recorded(reference: str, module: str) -> None:
    kept = answers.load(reference, module)
    named = {(scenario, title) for _, scenario, title in rows((module,))}
    assert {(scenario, title) for scenario in kept for title in kept[scenario]} == named


def test_the_table_is_long_enough() -> None:
    assert len(list(rows(MODULES))) >= REQUESTS_MIN


def test_each_api_that_is_advertised_is_asked(bootstrap: str) -> None:
    with RawClient(bootstrap) as raw:
        told = raw.ask(API_VERSIONS, 0, ApiVersionsRequest())
    asked = {
        definition(f"{row.api}Request").api_key
        for _, scenario in SCENARIOS
        for row in scenario.rows
        if isinstance(row, Row)
    }
    assert {one.api_key for one in told.api_keys} - asked == NOT_ASKED
