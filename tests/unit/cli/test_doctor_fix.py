"""``doctor --fix``: for which findings there is a remedy, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pyrklog.base.problems import Problem
from pyrklog.cli.doctor.checks import Check, examined, seen_from_here
from pyrklog.cli.doctor.evidence import Dialled, Evidence
from pyrklog.cli.doctor.fixing import fixed, planned
from pyrklog.cli.doctor.remedies import Left, Remedy, dev_clusters, remedies, with_dev_commands
from pyrklog.cli.failures import CliError, Exit
from pyrklog.cli.options import DEFAULT_BOOTSTRAP, Settings
from pyrklog.dev.state import Cluster, Node, Place
from pyrklog.observability.health_rules import BrokerState, ClusterState, PartitionState, Reason
from tests.unit.cli.test_doctor import NAMES, STATE, WELL

MOVED = replace(WELL, state=replace(STATE, partitions=[PartitionState("t", 0, 2, [1, 2], [1, 2])]))
ELECT = "pyrklog cluster elect-leaders --preferred"


def of(
    evidence: Evidence, *clusters: Cluster, bootstrap: str = DEFAULT_BOOTSTRAP
) -> tuple[list[Remedy], list[Left]]:
    return remedies(Settings(bootstrap), evidence, examined(evidence), clusters)


def test_leaders_are_elected() -> None:
    (one,), left = of(MOVED)
    assert (one.check, one.finding.kind, one.command, left) == (
        "cluster",
        "not_preferred",
        ELECT,
        [],
    )
    (there,), _ = of(MOVED, bootstrap="h:1")
    assert there.command == "pyrklog -b h:1 cluster elect-leaders --preferred"


def test_each_other_finding_says_why_it_is_left() -> None:
    offline = PartitionState("t", 0, -1, [1, 2], [2])
    below = PartitionState("u", 0, 1, [1, 2], [1], min_insync=2)
    found = replace(WELL, state=replace(STATE, partitions=[offline, below]))
    done, left = of(found)
    assert done == []
    whys = [one.why for one in left]
    assert any("--unclean` would lose records" in why for why in whys)
    assert any("min.insync.replicas" in why for why in whys)
    assert {one.check for one in left} == {"cluster"}


@pytest.mark.parametrize("name", [*NAMES, "options"])
def test_a_finding_of_any_check_has_an_answer(name: str) -> None:
    check = Check(name, [Reason("of a later version", "error", "something")])
    done, (left,) = remedies(Settings(), WELL, [check], [])
    assert (done, left.check) == ([], name)
    assert left.why


@pytest.fixture
def dev(tmp_path: Path) -> Cluster:
    nodes = [Node("broker", 1), Node("broker", 2), Node("zookeeper", 1), Node("network", 1)]
    return Cluster("default", 19092, nodes)


def silent(dev: Cluster) -> Evidence:
    """Broker 2 of the cluster does not answer."""
    places = [dev.address_of(one).split(":") for one in dev.brokers]
    brokers = [
        BrokerState(number, host, int(port), answers=number == 1)
        for number, (host, port) in enumerate(places, 1)
    ]
    return replace(WELL, state=ClusterState("c1", brokers, 1, []))


@pytest.mark.parametrize(
    ("state", "command"),
    [
        ("paused", "pyrklog dev resume 2"),
        ("isolated", "pyrklog dev heal 2"),
        ("dead", "pyrklog dev restart 2"),
        ("stopped", None),
        ("running", None),
    ],
)
def test_faults_of_dev_are_undone(
    dev: Cluster, state: str, command: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "state_of", lambda _cluster, _node: state)
    done, left = of(silent(dev), dev)
    assert [one.command for one in done] == ([] if command is None else [command])
    assert len(left) == (command is None)
    # A cluster elsewhere with such numbers is another one.
    assert of(silent(replace_base(dev)), dev)[0] == []


def test_the_fix_of_a_broker_of_dev_is_its_command(
    dev: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "state_of", lambda _cluster, _node: "dead")
    found = silent(dev)
    checks = examined(found)
    fixes = [one.fix for check in with_dev_commands(found, checks, [dev]) for one in check.findings]
    assert "`pyrklog dev restart 2`" in fixes
    assert with_dev_commands(found, checks, []) == checks


def replace_base(dev: Cluster) -> Cluster:
    return Cluster(dev.name, 29092, dev.nodes)


def test_clusters_of_this_machine_are_found(tmp_path: Path, dev: Cluster) -> None:
    root = tmp_path / "pyrklog" / "dev"
    for name in ("default", "other"):
        place = Place(root, name)
        place.folder.mkdir(parents=True)
        place.save(Cluster(name, 19092, dev.nodes))
    (root / "broken").mkdir()
    (root / "broken" / "state.json").write_text("{")
    found = dev_clusters({"XDG_DATA_HOME": str(tmp_path)})
    assert [one.name for one in found] == ["default", "other"]


# --- doing it ------------------------------------------------------------------------------------

FINDING = Reason("not_preferred", "info", "1 partition not led")
LEFT = [Left("clock", "it is late", "that is its time service's")]


def remedy(act: Callable[[], None] = lambda: None) -> Remedy:
    return Remedy("cluster", FINDING, ELECT, act)


class Doctor:
    """Findings go after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.seconds = 0.0
        self.said: list[str] = []

    def look(self) -> Sequence[Check]:
        self.looks -= 1
        return [Check("cluster", [FINDING] if self.looks > 0 else [])]

    def pause(self, seconds: float) -> None:
        self.seconds += seconds

    def run(self, *found: Remedy, yes: bool = True) -> list[tuple[str, str | None]]:
        outcomes = fixed(
            found,
            LEFT,
            self.look,
            yes=yes,
            say=self.said.append,
            clock=lambda: self.seconds,
            pause=self.pause,
        )
        return [(one.state, one.why) for one in outcomes]


def test_a_finding_that_is_gone_is_fixed() -> None:
    doctor = Doctor(3)
    assert doctor.run(remedy()) == [("fixed", None), ("left", LEFT[0].why)]
    assert doctor.looks == 0
    assert doctor.said == [f"running: {ELECT}"]


def test_a_finding_that_stays_is_told() -> None:
    assert Doctor(10_000).run(remedy())[0] == ("remains", FINDING.what)


def test_a_remedy_that_fails_is_told_and_nothing_is_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise CliError(Problem.NOT_SERVED, "this cluster cannot")

    doctor = Doctor(1)
    assert doctor.run(remedy(fail))[0] == ("failed", "this cluster cannot")
    assert doctor.looks == 1
    assert "this cluster cannot" in capsys.readouterr().err


def test_where_nobody_can_be_asked_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    one = remedy(lambda: done.append("done"))
    with pytest.raises(CliError) as refused:
        Doctor(1).run(one, yes=False)
    assert (refused.value.code, done) == (Exit.USAGE, [])
    assert refused.value.fix == "give -y, or --dry-run to see what would be done"
    assert Doctor(1).run(yes=False) == [("left", LEFT[0].why)]


@pytest.mark.parametrize(("answer", "state"), [(True, "fixed"), (False, "declined")])
def test_on_a_terminal_it_is_asked(
    answer: bool, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked: list[str] = []

    def confirm(text: str, **_: object) -> bool:
        asked.append(text)
        return answer

    monkeypatch.setattr("typer.confirm", confirm)
    assert Doctor(1).run(remedy(), yes=False)[0][0] == state
    assert asked == [f"{FINDING.what}\nRun `{ELECT}`?"]


def test_what_would_be_done_is_shown() -> None:
    first, second = planned([remedy()], LEFT)
    assert first.lines == [f"would     cluster  {FINDING.what}", f"          by: {ELECT}"]
    assert second.lines == ["left      clock  it is late", f"          why: {LEFT[0].why}"]


# --- from here -----------------------------------------------------------------------------------


def test_from_here_each_broker_is_dialled() -> None:
    ways = [
        Dialled(1, "127.0.0.1:9092", ["127.0.0.1"], None, 0.4),
        Dialled(2, "kafka-2:9093", ["10.0.0.2"], None, 1.0),
    ]
    checks = seen_from_here(replace(WELL, dialled=ways))
    assert [(one.name, one.status) for one in checks] == [
        ("port", "ok"),
        ("advertised", "ok"),
        ("cluster id", "ok"),
    ]
    assert checks[1].well == (
        "broker 1 at 127.0.0.1:9092 in 0.4 ms; broker 2 at kafka-2:9093 (10.0.0.2) in 1 ms"
    )


def test_from_here_a_broker_that_only_others_reach_is_an_error() -> None:
    ways = [Dialled(1, "127.0.0.1:9092"), Dialled(2, "kafka-2:9093", error="no such name")]
    ways[0] = replace(ways[0], milliseconds=1.0)
    advertised = seen_from_here(replace(WELL, dialled=ways))[1]
    assert advertised.status == "error"
    assert advertised.what == "broker 2 tells clients to connect to kafka-2:9093: no such name"
