"""Throttles of several plans, on the same topics, with brokers that do not answer."""

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.throttles import FOLLOWERS, LEADERS, Named
from tests.unit.cli.reassigning import FakeAdmin, FakeThrottles

BEFORE = {("t", 0): (1, 2), ("t", 1): (2, 1), ("u", 0): (1,)}
FIRST = {("t", 0): (1, 3), ("u", 0): (2,)}
SECOND = {("t", 1): (2, 4)}


def throttles() -> FakeThrottles:
    return FakeThrottles(FakeAdmin(BEFORE))


def test_what_a_plan_limits() -> None:
    found = throttles()
    found.begin(BEFORE, FIRST, 1_000)
    assert found.options["topic", "t"] == {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"}
    assert found.options["topic", "u"] == {LEADERS: "0:1", FOLLOWERS: "0:2"}
    assert found.rates == dict.fromkeys("1234", "1000")
    found.end(FIRST)
    assert not any(found.options.values())


def test_two_plans_on_one_topic_leave_each_other_alone(capsys: pytest.CaptureFixture[str]) -> None:
    found = throttles()
    found.begin(BEFORE, FIRST, 1_000)
    found.begin(BEFORE, SECOND, 2_000)
    assert found.named()["t"] == Named(("0:1", "0:2", "1:2", "1:1"), ("0:3", "1:4"))
    found.end(SECOND)
    assert found.named()["t"] == Named(("0:1", "0:2"), ("0:3",))
    assert found.rates == dict.fromkeys("1234", "2000"), "the other one's copies stay throttled"
    assert "other moves are throttled still" in capsys.readouterr().err
    found.begin(BEFORE, FIRST, 3_000)
    assert found.named()["t"].followers == ("0:3",), "nothing is named twice"
    found.end(FIRST)
    assert not any(found.options.values())


def test_all_goes_at_a_wish_only() -> None:
    found = throttles()
    found.options["topic", "u"] = {LEADERS: "*", FOLLOWERS: "*"}
    found.begin(BEFORE, FIRST, 1_000)
    assert found.named()["u"] == Named(("*",), ("*",)), "brokers take it alone only"
    found.end(FIRST)
    assert found.named() == {"u": Named(("*",), ("*",))}
    found.end(None)
    assert not any(found.options.values())


def test_a_broker_may_not_know_yet_that_something_is_throttled() -> None:
    found = throttles()
    found.begin(BEFORE, FIRST, 1_000)
    found.is_late = True
    found.end(FIRST, is_sure=True)
    assert not any(found.options.values())


def test_what_a_drain_has_left() -> None:
    found = throttles()
    admin = found._admin
    assert isinstance(admin, FakeAdmin)
    found.begin(BEFORE, FIRST, 1_000)
    found.begin(BEFORE, SECOND, 1_000)
    admin.targets[("u", 0)] = (2,)
    found.end_of(3)
    assert found.named().keys() == {"t", "u"}, "3 has given nothing, but takes of t-0"
    assert found.named()["t"] == Named(("1:2", "1:1"), ("1:4",))
    found.end_of(1)
    assert found.named() == {"u": Named(("0:1",), ("0:2",))}, "that one moves still"


def test_a_silent_broker_stops_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    found = throttles()
    found.silent["3"] = CliError(Problem.NO_ANSWER, "broker 3 does not answer")
    found.begin(BEFORE, FIRST, 1_000)
    assert found.rates == dict.fromkeys("124", "1000")
    assert "note: broker 3 does not answer" in capsys.readouterr().err
    found.set_rate(2_000)
    assert capsys.readouterr().err == "", "it is told once"
    for number in "1234":
        found.silent[number] = CliError(Problem.NO_ANSWER, f"broker {number} does not answer")
    with pytest.raises(CliError, match="does not answer"):
        found.set_rate(3_000)
