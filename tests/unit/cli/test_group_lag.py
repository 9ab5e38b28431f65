"""``pyrklog group lag``: what brokers tell, as rows for people and for programs."""

import csv
import io
import json
import re
import time
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli import colour, group_lag
from pyrklog.cli.failures import CliError
from pyrklog.cli.lag_runs import SPARKS
from pyrklog.cli.options import OutputFormat
from pyrklog.cli.told_lag import told_past
from pyrklog.protocol.errors import ErrorCode
from pyrklog.protocol.lag import GroupLag, GroupLagRequest, GroupLagResponse, PastLag
from tests.unit.cli.test_told_lag import FakeBroker, connected
from tests.unit.cli.test_told_lag import start as start  # the fixture

Start = Callable[..., FakeBroker]
RISING = PastLag([600_000, 300_000, 0], [0, 18_204, 550], [0, 41_000, 2000])


def telling(history: PastLag | None, error: ErrorCode = ErrorCode.NONE) -> Any:
    def answer(request: GroupLagRequest) -> GroupLagResponse:
        assert request.groups == ["billing"]
        past = None if history is None else [history]
        return GroupLagResponse(groups=[GroupLag("billing", error, history=past)])

    return answer


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group exists."""
    found = SimpleNamespace(coordinator=1)
    monkeypatch.setattr(group_lag, "existing_group", lambda *_: found)


def cluster(*brokers: FakeBroker, protocol: str = "plaintext") -> Any:
    connection = connected(*brokers, protocol=protocol)
    connection.metadata().cluster_id = None
    found = SimpleNamespace(cluster_id="c", brokers=connection.metadata().brokers)
    connection.metadata = lambda: found
    return connection


def shown(connection: Any, output: OutputFormat, **options: Any) -> None:
    asked: dict[str, Any] = {"topic": None, "since": "15m", "every": None, **options}
    group_lag.print_past(connection, "billing", output=output, **asked)


def test_a_broker_is_asked_for_so_long(start: Start) -> None:
    broker = start(telling(RISING))
    assert told_past(connected(broker), 1, "billing", "orders", 90.5) == RISING
    [asked] = broker.asked
    assert (asked.history_ms, asked.history_topic) == (90_500, "orders")


def test_json_has_each_point(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    before = time.time()
    shown(cluster(start(telling(RISING))), OutputFormat.JSON)
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "pyrklog.group-lag/1"
    assert [(one["lag"], one["lag_s"]) for one in found["items"]] == [
        (0, 0.0),
        (18_204, 41.0),
        (550, 2.0),
    ]
    ages = [before - datetime.fromisoformat(one["at"]).timestamp() for one in found["items"]]
    assert ages == pytest.approx([600, 300, 0], abs=time.time() - before + 0.01)


def test_a_table_has_steps_and_nothing_else_in_a_pipe(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(cluster(start(telling(RISING))), OutputFormat.TABLE, every="5m")
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == ["TIME", "LAG", "LAG_S"]
    assert 2 <= len(rows) <= 4
    assert "18204" in {row.split()[1] for row in rows}
    assert all(row.split()[0].endswith(("0:00Z", "5:00Z")) for row in rows)


@pytest.mark.parametrize(
    ("since", "told"),
    [
        ("9m", None),
        ("10m", None),
        ("15m", r"note: the history of group billing begins at [-0-9T:.]+Z, 10 min ago\n"),
        ("20d", r"note: the history of .* begins at .*, 10 min ago; brokers keep 14 days\n"),
    ],
)
def test_a_shorter_history_says_so(
    start: Start, capsys: pytest.CaptureFixture[str], since: str, told: str | None
) -> None:
    shown(cluster(start(telling(RISING))), OutputFormat.JSON, since=since)
    err = capsys.readouterr().err
    assert re.fullmatch(told or "", err)


def test_csv_has_a_heading(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    shown(cluster(start(telling(RISING))), OutputFormat.CSV)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["lag"] for row in rows] == ["0", "18204", "550"]


def test_a_terminal_gets_bars(
    start: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(colour, "is_for_people", lambda _: True)
    shown(cluster(start(telling(RISING))), OutputFormat.TABLE, topic="orders")
    head, *rows = capsys.readouterr().out.splitlines()
    text, _, bars = head.rpartition("  ")
    assert text == "billing  orders  lag 550 / 2 s  most 18,204 / 41 s"
    assert len(bars) == len(rows) - 1
    assert max(bars) == "█"
    assert set(bars) <= set(SPARKS)
    assert len(rows) > 10


def test_all_brokers_are_asked_and_silent_ones_are_named(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """One coordinated it before, one does now, one is none of ours."""
    before = telling(PastLag([400_000, 300_000, 299_999], [1, 2, -1], [0, 0, -1]))
    now = telling(PastLag([200_000, 0], [3, 3], [0, 0]))
    brokers = start(before), start(now), start(telling(RISING), is_ours=False)
    shown(cluster(*brokers), OutputFormat.JSON)
    told = capsys.readouterr()
    assert [one["lag"] for one in json.loads(told.out)["items"]] == [1, 2, 2, None, 3, 3]
    assert told.err.startswith("warning: broker 3 does not tell past lag; ")


@pytest.mark.parametrize("history", [None, PastLag()])
def test_nothing_known_is_an_error(start: Start, history: PastLag | None) -> None:
    """Also of a broker of ours that does not know the question."""
    with pytest.raises(CliError) as failed:
        shown(cluster(start(telling(history))), OutputFormat.TABLE, topic="orders")
    assert failed.value.problem is Problem.NO_HISTORY
    assert "group billing in orders in the last 15m" in str(failed.value)


def test_over_tls_nothing_is_asked(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    broker = start(telling(RISING))
    with pytest.raises(CliError):
        shown(cluster(broker, protocol="ssl"), OutputFormat.TABLE)
    assert "broker 1 does not tell" in capsys.readouterr().err
    assert broker.asked == []


@pytest.mark.parametrize(
    "options", [{"since": "soon"}, {"every": "0s"}, {"since": "14d", "every": "1s"}]
)
def test_times_that_make_no_sense(start: Start, options: dict[str, str]) -> None:
    broker = start(telling(RISING))
    with pytest.raises(CliError) as failed:
        shown(cluster(broker), OutputFormat.JSON, **options)
    assert failed.value.problem is Problem.ARGUMENT_VALUE
    assert broker.asked == []
