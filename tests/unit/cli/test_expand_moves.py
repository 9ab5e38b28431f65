"""An expansion that is under way: stopped, gone on with, looked at and cancelled."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pyrklog.balance.model import Cluster, Partition, PartitionKey, Replicas
from pyrklog.balance.prediction import Batch, Prediction
from pyrklog.balance.record import begun
from pyrklog.cli import (
    cluster_expand,
    expand_moves,
    reassign_rate,
    reassign_record,
    reassign_run,
)
from pyrklog.cli import throttles as throttles_module
from pyrklog.cli.app import app
from pyrklog.cli.expansion import BACK_FILL, Backlog
from pyrklog.cli.reassign_measure import Measured
from pyrklog.cli.throttles import FILL_RATE
from pyrklog.config.entry import Source
from pyrklog.protocol.configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.unit.balance.clusters import broker
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin, FakeThrottles

KEYS = [("t", index) for index in range(6)]
PLACED: dict[PartitionKey, Replicas] = dict.fromkeys(KEYS, (1, 2))
RATE = "1000000"
_BROKER = 4


class FillingAdmin(FakeAdmin):
    """Its brokers back-fill, at 7 bytes a second unless a plan or a hand sets another rate."""

    throttles: FakeThrottles

    def ask_each(self, api: Any, version: int, requests: Mapping[int, Any]) -> dict[int, Any]:
        if api is not DESCRIBE_CONFIGS:
            return {}
        found = {}
        for number, request in requests.items():
            results = []
            for one in request.resources:
                entries = []
                if one.resource_type == _BROKER:
                    own = self.throttles.fill_rates.get(str(number))
                    source = Source.STATIC_BROKER if own is None else Source.DYNAMIC_BROKER
                    entry = DescribeConfigsResourceResult(
                        FILL_RATE, own or "7", False, config_source=source
                    )
                    entries.append(entry)
                results.append(
                    DescribeConfigsResult(0, None, one.resource_type, one.resource_name, entries)
                )
            found[number] = DescribeConfigsResponse(results=results)
        return found


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FillingAdmin:
    found = FillingAdmin(PLACED, 3)
    found.throttles = FakeThrottles(found)
    for module in (expand_moves, reassign_run, reassign_rate, throttles_module):
        monkeypatch.setattr(module, "Throttles", lambda *_: found.throttles)
    return found


@pytest.fixture
def throttles(admin: FillingAdmin) -> FakeThrottles:
    return admin.throttles


Call = Callable[..., Result]


@pytest.fixture
def expand(admin: FillingAdmin, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `cluster expand`."""

    def measure(*_: object, **__: object) -> Measured:
        partitions = {
            key: Partition(admin.targets.get(key, replicas), 1_000, leader=replicas[0])
            for key, replicas in admin.placed.items()
        }
        brokers = {number: broker(number) for number in admin.brokers}
        return Measured(Cluster(brokers, partitions), "id", {}, set(admin.targets))

    for name in ("WATCH_INTERVAL_S", "SETTLED_S", "SETTLED_PAUSE_S"):
        monkeypatch.setattr(reassign_run, name, 0.0)
    monkeypatch.setattr(cluster_expand, "connect", lambda _: NO_CONNECTION)
    monkeypatch.setattr("pyrklog.cli.reassign_cluster.ReassignmentAdmin", lambda _: admin)
    monkeypatch.setattr("pyrklog.cli.reassign_measure.measure", measure)
    monkeypatch.setattr("pyrklog.cli.reassign_planning.add_write_rates", lambda *_: {})

    def call(*arguments: str) -> Result:
        command = ["-b", "127.0.0.1:1", "cluster", "expand", *arguments]
        return CliRunner().invoke(app, command, catch_exceptions=False)

    return call


THROTTLED = ("--broker", "3", "--throttle", "1MB/s", "-w")


def test_a_command_that_was_stopped_goes_on_and_takes_its_throttle_away(
    admin: FillingAdmin, throttles: FakeThrottles, expand: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pyrklog.cli.reassign_run.time.sleep", stop)
        told = expand(*THROTTLED)
    assert told.exit_code == 130
    assert "from the end" in told.stdout
    assert "its throttle stays; the same command goes on" in told.stderr
    assert "`pyrklog cluster expand --broker 3 --cancel` ends it" in told.stderr
    assert "expand --broker 3 --status` takes the throttle away once it is done" in told.stderr
    assert throttles.fill_rates == {"3": RATE}
    begun_ones = dict(admin.targets)
    assert begun_ones

    # A look changes nothing while it moves.
    assert f"{FILL_RATE} of broker 3" not in expand("--broker", "3", "--status").stdout
    told = expand("--broker", "3")
    assert told.stdout == (
        f"{len(begun_ones)} partitions on the way to broker 3 already\n"
        "`pyrklog cluster expand --broker 3 --status` shows how far\n"
    )
    assert throttles.fill_rates == {"3": RATE}

    monkeypatch.setattr(
        expand_moves, "backlogs", lambda *_: {key: [Backlog(3, 5, 0, BACK_FILL)] for key in KEYS}
    )
    throttles.set_fill_rate({3}, None)
    rates = []
    moving = admin.moving

    def watched() -> Any:
        rates.append(throttles.fill_rates)
        admin.is_quick = len(rates) > 6
        return moving()

    monkeypatch.setattr(admin, "moving", watched)
    told = expand(*THROTTLED)
    assert told.exit_code == 0, told.stderr
    assert "each broker copies at most 1 MB/s" in told.stdout
    count = len(begun_ones)
    assert told.stdout.endswith(f"done: {count} partitions are where the plan wants them\n")
    assert {"3": RATE} in rates, "it is throttled again"
    assert not any(throttles.options.values())
    assert {key: admin.placed[key] for key in begun_ones} == begun_ones
    assert expand(*THROTTLED).stdout == "nothing to do: the brokers have their share\n"


def test_what_is_gone_on_with_may_be_stopped_again(
    admin: FillingAdmin, throttles: FakeThrottles, expand: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: float) -> None:
        raise KeyboardInterrupt

    admin.targets = dict.fromkeys(KEYS, (3, 2))
    monkeypatch.setattr("pyrklog.cli.reassign_run.time.sleep", stop)
    told = expand(*THROTTLED)
    assert told.exit_code == 130
    assert "note: what moves, moves on; the same command goes on" in told.stderr
    assert throttles.rates, "copies are throttled, too"


@pytest.mark.parametrize("word", ["--status", "--cancel"])
def test_a_look_or_a_cancellation_takes_away_what_was_left(
    admin: FillingAdmin, throttles: FakeThrottles, expand: Call, word: str
) -> None:
    throttles.begin(PLACED, {KEYS[0]: (1, 3)}, 1_000_000)
    throttles.set_fill_rate({3}, 1_000_000)
    told = expand("--status")
    assert "note: nothing moves, and broker 3 has pyrklog.expansion.rate=1000000" in told.stderr
    assert throttles.fill_rates == {"3": RATE}, "no broker was named"
    told = expand("--broker", "3", word)
    assert told.exit_code == 0
    assert told.stdout == (
        "nothing moves to broker 3\n"
        "pyrklog.expansion.rate of broker 3 is that of its own options again\n"
    )
    assert not any(throttles.options.values())
    assert expand("--broker", "3", word).stdout == "nothing moves to broker 3\n"
    assert expand("--status").stderr == ""


@pytest.mark.parametrize("word", ["--status", "--cancel"])
def test_a_rate_of_zero_is_no_plans(throttles: FakeThrottles, expand: Call, word: str) -> None:
    throttles.options["broker", "3"] = {FILL_RATE: "0"}
    assert expand("--broker", "3", word).stdout == "nothing moves to broker 3\n"
    assert throttles.fill_rates == {"3": "0"}


def test_a_cancellation_takes_the_throttle_away_unless_more_moves_there(
    admin: FillingAdmin, throttles: FakeThrottles, expand: Call
) -> None:
    other = ("u", 0)
    admin.placed[other] = (1, 2)
    admin.targets = {KEYS[0]: (1, 3), other: (3, 2)}
    throttles.set_fill_rate({3}, 1_000_000)
    told = expand("--broker", "3", "--cancel", "-t", "u")
    assert told.stdout == "u-0: cancelled, stays on 2,1\n"
    assert throttles.fill_rates == {"3": RATE}, "another topic moves there still"
    told = expand("--broker", "3", "--cancel")
    assert told.stdout.startswith("t-0: cancelled, stays on 1,2\n")
    assert throttles.fill_rates == {}


@pytest.mark.parametrize("word", ["--status", "--cancel", "--promote"])
def test_a_broker_that_is_not_there(admin: FillingAdmin, expand: Call, word: str) -> None:
    told = expand("--broker", "9", word)
    assert told.exit_code == 4
    assert "error[PK77]: broker 9 is not there" in told.stderr
    assert "brokers alive: 1,2,3" in told.stderr
    # It may have died while something moves there.
    admin.targets = {KEYS[0]: (1, 9)}
    assert expand("--broker", "9", word).exit_code == 0


def test_programs_get_a_list_of_nothing(expand: Call) -> None:
    told = expand("--broker", "3", "--status", "-o", "json")
    assert '"items": []' in told.stdout
    assert "nothing moves" not in told.stdout


def test_a_plan_does_not_overwrite_one_that_is_under_way(
    admin: FillingAdmin, expand: Call, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    path = reassign_record.path_of(str(file))
    after = {("u", 0): (2,)}
    admin.placed["u", 0] = (1,)
    prediction = Prediction(1, [Batch(tuple(after), 0, 1.0)])
    earlier = begun("id", 0, {("u", 0): (1,)}, after, prediction, {}, None)
    reassign_record.save(path, earlier)
    admin.targets = dict(after)
    words = ("--broker", "3", "-t", "t", "--plan", str(file))
    told = expand(*words)
    assert told.exit_code == 2
    assert "keeps another plan, which moves 1 partition still, such as u-0" in told.stderr
    assert not file.exists()
    assert reassign_record.load(path) == earlier
    admin.end()
    told = expand(*words)
    assert told.exit_code == 0
    assert "kept a plan that was not finished; it is in " in told.stderr
    assert reassign_record.load(tmp_path / "plan.json.progress.json.1") == earlier
    assert file.exists()


def test_a_throttle_that_nobody_waits_for_has_its_line(expand: Call, tmp_path: Path) -> None:
    file = str(tmp_path / "plan.json")
    told = expand("--broker", "3", "--throttle", "1MB/s", "--plan", file)
    assert f"`pyrklog cluster reassign status {file}` shows how far it is, and takes" in told.stdout
