"""Throttles of several plans, on the same topics, with brokers that do not answer."""

from collections.abc import Sequence

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli import reassign_rate
from pyrklog.cli.failures import CliError
from pyrklog.cli.reassign_rate import HOLD_STEPS, Rate
from pyrklog.cli.throttles import (
    APPEND,
    DELETE,
    FOLLOWERS,
    LEADERS,
    RATES,
    SET,
    SUBTRACT,
    Change,
    Named,
    names_of,
)
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin, FakeThrottles

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
    found.end(FIRST, sure=names_of(BEFORE, FIRST))
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


def test_lists_are_added_to_and_taken_from_not_replaced() -> None:
    found = throttles()
    asked: list[tuple[str, ...]] = []
    change = found._change

    def changed(topic: str, changes: Sequence[Change]) -> None:
        asked.append((topic, *(one.operation for one in changes)))
        change(topic, changes)

    found._change = changed  # type: ignore[method-assign]
    found.begin(BEFORE, {("t", 0): (1, 3)}, 1_000)
    found.begin(BEFORE, SECOND, 1_000)
    found.begin(BEFORE, {("t", 0): (1, 4)}, 1_000)
    assert [one for one in asked if len(one) > 1] == [
        ("t", SET, SET),
        ("t", APPEND, APPEND),
        ("t", SUBTRACT),
        ("t", APPEND),
    ]
    assert found.named()["t"] == Named(("0:1", "0:2", "1:2", "1:1"), ("1:4", "0:4"))
    asked.clear()
    found.end(SECOND)
    assert [one for one in asked if len(one) > 1] == [("t", SUBTRACT, SUBTRACT)]
    asked.clear()
    found.end({("t", 0): ()})
    assert asked == [("t", SUBTRACT, SUBTRACT), ("t", DELETE, DELETE)]


def test_what_another_plan_names_meanwhile_stays() -> None:
    found = throttles()
    found.begin(BEFORE, FIRST, 1_000)
    # Between the look and the change; then between the change and the removal of the rates.
    found.meanwhile = [lambda: None, lambda: found.begin(BEFORE, SECOND, 2_000)]
    found.end(FIRST)
    assert found.named() == {"t": Named(("1:2", "1:1"), ("1:4",))}
    assert found.rates == dict.fromkeys("1234", "2000"), "the names are read again before that"


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeThrottles, Rate]:
    """The throttle of a plan that moves t-0, and has moved u-0."""
    found = throttles()
    admin = found._admin
    assert isinstance(admin, FakeAdmin)
    monkeypatch.setattr(reassign_rate, "Throttles", lambda *_: found)
    rate = Rate(NO_CONNECTION, admin, "20kB/s")
    rate.begin(BEFORE, FIRST)
    admin.targets["t", 0] = (1, 3)
    admin.placed["u", 0] = (2,)
    return found, rate


def test_a_throttle_that_another_plan_has_taken_away_is_set_again(
    held: tuple[FakeThrottles, Rate],
) -> None:
    found, rate = held
    found.end(None)
    assert not any(found.options.values())
    for _ in range(HOLD_STEPS):
        rate.step()
    assert found.rates == dict.fromkeys("1234", "20000")
    assert found.named() == {"t": Named(("0:1", "0:2"), ("0:3",))}, "u-0 moves no more"
    found.options["broker", "3"] = {}
    found.options["topic", "t"][LEADERS] = "0:1"
    for _ in range(HOLD_STEPS):
        rate.step()
    assert found.rates == dict.fromkeys("1234", "20000")
    assert set(found.named()["t"].leaders) == {"0:1", "0:2"}


def test_a_throttle_stays_away_once_nothing_moves(held: tuple[FakeThrottles, Rate]) -> None:
    found, rate = held
    admin = found._admin
    assert isinstance(admin, FakeAdmin)
    found.end(None)
    admin.targets["t", 0] = (1, 4)
    for _ in range(HOLD_STEPS):
        rate.step()
    assert not any(found.options.values()), "that is another plan's move"
    admin.targets.clear()
    for _ in range(HOLD_STEPS):
        rate.step()
    assert not any(found.options.values())


def test_a_rate_of_another_plan_stays(held: tuple[FakeThrottles, Rate]) -> None:
    found, rate = held
    found.set_rate(5_000)
    rate.step()
    assert found.rates == dict.fromkeys("1234", "5000"), "that of the plan that began last"
    assert RATES[0] in found.options["broker", "1"]
