"""Plans whose new replicas start at their leaders' ends."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pyrklog.balance.prediction import Batch, Prediction
from pyrklog.balance.record import Record, begun
from pyrklog.balance.throttle import LOWER, RAISE, START_BYTES, Signs
from pyrklog.cli import (
    fill_throttle,
    reassign_rate,
    reassign_record,
    reassign_run,
    reassign_signs,
)
from pyrklog.cli.expansion import BACK_FILL, Backlog
from pyrklog.cli.fill_throttle import end_fills, end_rate
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_rate import HOLD_STEPS, Rate
from pyrklog.cli.reassign_run import Run
from pyrklog.cli.throttles import FILL_RATE
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin, FakeThrottles

A, B = ("t", 0), ("t", 1)
PLACED = {A: (1, 2), B: (2, 1)}


class FillingAdmin(FakeAdmin):
    """``own_rates``: of the brokers that know back-fills, as their files have them."""

    throttles: FakeThrottles
    own_rates: Mapping[int, str] = dict.fromkeys((1, 2, 3, 4), "7")

    def ask_each(self, api: Any, version: int, requests: Mapping[int, Any]) -> dict[int, Any]:
        found: dict[int, Any] = {}
        if api is not DESCRIBE_CONFIGS:
            return found
        for broker in requests.keys() & self.own_rates.keys():
            value = self.throttles.fill_rates.get(str(broker), self.own_rates[broker])
            entry = DescribeConfigsResourceResult(FILL_RATE, value, False)
            result = DescribeConfigsResult(0, None, 4, str(broker), [entry])
            found[broker] = DescribeConfigsResponse(results=[result])
        return found

    def behind(self, without: Any) -> int:
        return 0


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FillingAdmin:
    admin = FillingAdmin(PLACED)
    admin.throttles = FakeThrottles(admin)
    for module in (reassign_run, reassign_rate):
        monkeypatch.setattr(module, "Throttles", lambda *_: admin.throttles)
    monkeypatch.setattr(fill_throttle, "SETTLED_S", 0)
    return admin


def test_what_starts_at_the_end_has_the_throttle_of_back_fills(
    admin: FillingAdmin, tmp_path: Path
) -> None:
    path = tmp_path / "plan.progress.json"
    wanted = {A: (1, 3), B: (2, 4)}
    known = begun("id", 0, PLACED, wanted, Prediction(1, [Batch((A, B), 0, 1.0)]), {}, "1MB")
    record = replace(known, at_end=frozenset({A}))
    options = Settings("127.0.0.1:1")
    Run(NO_CONNECTION, admin, options, record, path).carry_out("1MB", watch=False)
    assert admin.at_end == {A}
    # Also the one that may have to copy after all.
    assert admin.throttles.named()["t"].followers == ("0:3", "1:4")
    assert admin.throttles.fill_rates == {"3": "1000000"}
    kept = reassign_record.load(path)
    assert kept is not None
    assert kept.at_end == {A}
    admin.end()
    end_fills(admin, admin.throttles, kept)
    assert admin.throttles.fill_rates == {}


def filling_plan(throttle: str) -> Record:
    """Broker 3 gets a replica that starts at the end."""
    wanted = {A: (1, 3)}
    known = begun("id", 0, PLACED, wanted, Prediction(1, [Batch((A,), 0, 1.0)]), {}, throttle)
    return replace(known, at_end=frozenset({A}))


@pytest.mark.parametrize(
    ("throttle", "rate", "ends"),
    [
        ("1MB", "1000000", True),
        ("1MB", "2000000", False),  # an operator's, or another plan's
        ("1MB", "0", False),
        ("auto", "2000000", True),
        ("auto", "0", False),
    ],
)
def test_end_of_a_plan_takes_its_own_rate_away(
    admin: FillingAdmin, throttle: str, rate: str, ends: bool
) -> None:
    admin.throttles.options["broker", "3"] = {FILL_RATE: rate}
    end_fills(admin, admin.throttles, filling_plan(throttle))
    assert admin.throttles.fill_rates == ({} if ends else {"3": rate})


@pytest.mark.parametrize(
    ("target", "lacks", "stays"),
    [
        ((1, 3), Backlog(3, 5, 0, BACK_FILL), True),
        ((1, 3), Backlog(3, None, 0, None), True),  # it does not tell yet
        ((1, 3), Backlog(3, 0, 0, None), False),  # it copies
        ((1, 4), Backlog(4, 5, 0, BACK_FILL), False),
    ],
)
def test_rate_stays_while_its_broker_back_fills_for_another_plan(
    admin: FillingAdmin,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    target: tuple[int, ...],
    lacks: Backlog,
    stays: bool,
) -> None:
    known = {B: [lacks]}
    monkeypatch.setattr(fill_throttle, "backlogs", lambda _, moving: known if moving else {})
    admin.targets = {B: target}
    admin.throttles.options["broker", "3"] = {FILL_RATE: "1000000"}
    end_fills(admin, admin.throttles, filling_plan("1MB"))
    assert admin.throttles.fill_rates == ({"3": "1000000"} if stays else {})
    assert ("broker 3 back-fills for other moves still" in capsys.readouterr().err) == stays
    # Its own move is no other.
    end_rate(admin, admin.throttles, {3}, {B})
    assert admin.throttles.fill_rates == {}


def test_broker_may_tell_the_plans_rate_a_moment_later(
    admin: FillingAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter(["7", "7", "1000000"])
    monkeypatch.setattr(fill_throttle, "SETTLED_S", 60)
    monkeypatch.setattr(fill_throttle, "SETTLED_PAUSE_S", 0)
    monkeypatch.setattr(fill_throttle, "fill_rates", lambda *_: {3: next(told)})
    admin.throttles.options["broker", "3"] = {FILL_RATE: "1000000"}
    end_fills(admin, admin.throttles, filling_plan("1MB"))
    assert admin.throttles.fill_rates == {}


def test_watched_plan_takes_its_throttle_away(admin: FillingAdmin) -> None:
    admin.is_quick = True
    wanted = {A: (1, 3)}
    known = begun("id", 0, PLACED, wanted, Prediction(1, [Batch((A,), 0, 1.0)]), {}, "1MB")
    record = replace(known, at_end=frozenset({A}))
    options = Settings("127.0.0.1:1", quiet=True)
    Run(NO_CONNECTION, admin, options, record, None).carry_out("1MB", watch=True)
    assert admin.placed[A] == (1, 3)
    assert not any(admin.throttles.options.values())


def test_broker_that_back_fills_nothing_goes_on_so(admin: FillingAdmin) -> None:
    admin.own_rates = {3: "0", 4: "7"}
    rate = Rate(NO_CONNECTION, admin, "1MB/s")
    wanted = {A: (1, 3), B: (2, 4)}
    rate.begin(PLACED, wanted, wanted)
    assert admin.throttles.fill_rates == {"4": "1000000"}
    # An operator stops the other one, too.
    admin.targets.update(wanted)
    admin.throttles.options["broker", "4"][FILL_RATE] = "0"
    for _ in range(2 * HOLD_STEPS):
        rate.step()
    assert admin.throttles.fill_rates == {"4": "0"}


def test_rate_of_back_fills_follows_leaders_and_followers(
    admin: FillingAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[int]] = []
    told = [Signs(10.0)]

    def read(sources: Any, _behind: int = 0) -> Signs:
        seen.append({one.number for one in sources})
        return told[-1]

    monkeypatch.setattr(reassign_signs, "all_ours", lambda _: True)
    monkeypatch.setattr(reassign_signs, "read", read)
    rate = Rate(NO_CONNECTION, admin, "auto")
    rate.begin(PLACED, {A: (1, 3)}, {A: (1, 3)})
    assert rate.follows
    assert admin.throttles.fill_rates == {"3": str(START_BYTES)}
    rate.step()
    raised = int(START_BYTES * RAISE)
    assert admin.throttles.fill_rates == {"3": str(raised)}
    told.append(Signs(100.0))
    rate.step()
    lowered = int(raised * LOWER)
    assert admin.throttles.fill_rates == {"3": str(lowered)}
    assert seen[-1] == {1, 2}, "a back-fill asks followers first"
    # Somebody has taken it away.
    told.append(Signs(10.0))
    admin.targets[A] = (1, 3)
    admin.throttles.options["broker", "3"].clear()
    for _ in range(HOLD_STEPS):
        rate.step()
    assert admin.throttles.fill_rates == {"3": str(rate.rate_bytes)}
    admin.throttles.options["broker", "3"][FILL_RATE] = "0"
    told.append(Signs(100.0))
    rate.step()
    assert admin.throttles.fill_rates == {"3": "0"}, "an operator stopped it"
