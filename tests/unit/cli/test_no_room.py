"""Plans that disks without room hold back: what is said, and how the command ends."""

from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from pyrklog.balance.automatic import Watcher
from pyrklog.balance.model import Cluster, Full, Goal
from pyrklog.balance.prediction import Limit
from pyrklog.cli import cluster_drain, cluster_expand, reassign_auto, reassign_planning
from pyrklog.cli.app import app
from pyrklog.cli.options import Settings
from pyrklog.cli.reassign_auto import Rules
from pyrklog.cli.reassign_measure import Measured
from pyrklog.cli.reassign_summary import OBSTACLES_SHOWN, room_lines
from tests.unit.balance.clusters import GB, broker, cluster_of
from tests.unit.cli.reassigning import NO_CONNECTION, FakeAdmin

FULL = "broker 3 has no room: /d is 95 % full, the limit is 90 % (--max-fill)"
PARTLY = "broker 3 has room for 500 MB more: /d is 89.7 % full, the limit is 90 % (--max-fill)"
COMMANDS = [
    ("reassign", "plan"),
    ("reassign", "plan", "-q"),
    ("expand", "--broker", "3", "--dry-run"),
]


class World:
    """Brokers 1 and 2 with eight replicas of 1 GB each; broker 3 has none. ``free``: of its disk of
    1,000 GB."""

    def __init__(self) -> None:
        self.free = 50 * GB
        self._placed = [(1, 2)] * 8

    @property
    def admin(self) -> FakeAdmin:
        return FakeAdmin({("t", index): one for index, one in enumerate(self._placed)}, 3)

    def measured(self, fill_max: float = 0.9) -> Measured:
        found = cluster_of(self._placed, [1, 2])
        brokers = {**found.brokers, 3: broker(3, free=self.free)}
        return Measured(Cluster(brokers, found.partitions, fill_max), "id", {})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()

    def measure(*_: object, fill_max: float = 0.9, **__: object) -> Measured:
        return found.measured(fill_max)

    for module in (cluster_drain, cluster_expand, reassign_planning):
        monkeypatch.setattr(module, "connect", lambda _: NO_CONNECTION)
    monkeypatch.setattr(reassign_planning, "ReassignmentAdmin", lambda _: found.admin)
    monkeypatch.setattr("pyrklog.cli.reassign_cluster.ReassignmentAdmin", lambda _: found.admin)
    monkeypatch.setattr(reassign_planning, "measure", measure)
    monkeypatch.setattr("pyrklog.cli.reassign_measure.measure", measure)
    return found


Call = Callable[..., Result]


@pytest.fixture
def call(world: World) -> Call:
    def run(*arguments: str) -> Result:
        command = ["-b", "127.0.0.1:1", "cluster", *arguments]
        return CliRunner().invoke(app, command, catch_exceptions=False)

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_fits_is_not_nothing_to_do(call: Call, command: tuple[str, ...]) -> None:
    told = call(*command)
    assert told.exit_code == 8
    assert "error[PK104]: nothing is moved: no disk has room for what would move" in told.stderr
    assert "--max-fill" in told.stderr
    assert (f"held back: {FULL}" in told.stderr) == ("-q" not in command)
    assert "nothing to do" not in told.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_disk_may_be_filled_further(call: Call, command: tuple[str, ...]) -> None:
    told = call(*command, "--max-fill", "99%", *(["--mode", "copy"] if "expand" in command else []))
    assert told.exit_code == 0
    assert "held back" not in told.stderr


def test_a_plan_that_moves_less_says_why_and_succeeds(world: World, call: Call) -> None:
    world.free = 102_500_000_000
    told = call("reassign", "plan")
    assert told.exit_code == 0
    assert "moves 2 of 8 partitions" in told.stderr
    assert f"held back: {PARTLY}\n" in told.stderr
    told = call("expand", "--broker", "3", "--dry-run", "--mode", "copy")
    assert told.exit_code == 0
    assert told.stdout.count("(not done)") == 2
    assert told.stderr == f"held back: {PARTLY}\n"


def test_a_broker_that_cannot_be_left_for_lack_of_room(call: Call) -> None:
    told = call("reassign", "plan", "--exclude", "1")
    assert told.exit_code == 8
    assert f"stays: t-0: no broker has room for its 1 GB; {FULL}" in told.stderr
    told = call("drain", "--broker", "1", "-y")
    assert told.exit_code == 1
    assert f"error[PK92]: t-0: no broker has room for its 1 GB; {FULL}" in told.stderr
    assert "8 partitions cannot leave broker 1; nothing was changed" in told.stderr
    assert "--max-fill fills disks further" in told.stderr
    told = call("replace", "1", "--with", "3", "-y")
    assert told.exit_code == 1
    assert f"error[PK92]: t-0: it has 1 GB; {FULL}" in told.stderr
    for command in (["drain", "--broker", "1"], ["replace", "1", "--with", "3"]):
        told = call(*command, "--dry-run", "--max-fill", "99")
        assert told.exit_code == 0
        assert told.stdout.count("(not done)") == 8


def test_a_mistaken_limit(call: Call) -> None:
    for command in (*COMMANDS, ("drain", "--broker", "1"), ("reassign", "auto")):
        told = call(*command, "--max-fill", "0.9")
        assert told.exit_code == 2
        assert "--max-fill takes percents from 1 to 100, not '0.9'" in told.stderr
    told = call("expand", "--status", "--max-fill", "95")
    assert told.exit_code == 2
    assert "--status takes neither" in told.stderr


@pytest.mark.parametrize(
    ("free", "told"),
    [
        (50 * GB, [f"held back: {FULL}", "no disk has room for a move"]),
        (102_500_000_000, [f"held back: {PARTLY}", "nothing changed"]),
    ],
)
def test_an_automatic_round(
    world: World, capsys: pytest.CaptureFixture[str], free: int, told: list[str]
) -> None:
    world.free = free
    watcher = Watcher(1.2, 0.0)
    rules = Rules((Goal.BYTES,), watcher, 1.0, Limit(), "auto", 1, dry_run=True)
    reassign_auto._balance(NO_CONNECTION, world.admin, Settings(), rules, world.measured(), set())
    out = capsys.readouterr().out.splitlines()
    assert [out[0], out[-1]] == told


def test_many_full_brokers_are_counted() -> None:
    one = Full(1, "/d", 0.95, 0, 0.9)
    told = room_lines([replace_broker(one, number) for number in range(OBSTACLES_SHOWN + 2)])
    assert told[0].startswith("broker 0 has no room")
    assert told[-1] == "and 2 brokers more"
    assert len(told) == OBSTACLES_SHOWN + 1


def replace_broker(one: Full, number: int) -> Full:
    return one._replace(broker=number)
