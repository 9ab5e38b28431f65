"""What ``doctor --fix`` does about findings, and why it leaves the others to people.

A remedy is safe: no record can be lost by it, no promise to producers gets weaker, and it can be
repeated. Everything else stays a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pyrklog.cli.doctor.checks import Check
from pyrklog.cli.doctor.evidence import Evidence
from pyrklog.cli.failures import CliError
from pyrklog.cli.options import DEFAULT_BOOTSTRAP, Settings
from pyrklog.dev.state import Cluster, Node, dev_command
from pyrklog.observability.health_rules import Reason

if TYPE_CHECKING:
    from pyrklog.dev.running import Runner

_BY_KIND = {
    "offline": "its broker has to come back; `cluster elect-leaders --unclean` would lose records",
    "below_min_isr": "with a lower min.insync.replicas records could be lost: the replicas have "
    "to come back",
    "behind": "a replica catches up by itself; `pyrklog cluster reassign plan` moves it away",
    "missing": "its broker has to be started on its host",
    "silent": "its broker has to be started, or made reachable, on its host",
    "no_controller": "brokers elect the controller themselves",
    "no_rack": "broker.rack counts from a broker's start on",
}
"""Why nothing is done, by the finding."""
_BY_CHECK = {
    "port": "a program on its host has to be started, ended or configured",
    "advertised": "advertised.listeners is the broker's own, and counts from its start on",
    "lock": "a lock file is never removed: it is all that keeps two brokers from one log",
    "disk": "to free space is to delete something: which records, is yours to say",
    "chroot": "zookeeper.connect counts from a broker's start on",
    "cluster id": "data is never assigned to another cluster",
    "file handles": "the limit is the process's: it has raised its own as far as it may",
    "memory": "the cache's size counts from a broker's start on",
    "clock": "a host's clock is its time service's",
    "clients": "clients belong to others",
    "zookeeper": "ZooKeeper's servers and the ways to them are none of ours",
    "options": "which option is meant, is yours to say",
    "cluster": "no command can do it safely",
}
"""The same for all other findings of a check."""


class Remedy(NamedTuple):
    """``command`` does the same by hand. ``act`` raises CliError and DevError."""

    check: str
    finding: Reason
    command: str
    act: Callable[[], None]


class Left(NamedTuple):
    """A finding without a remedy, and why."""

    check: str
    what: str
    why: str


def remedies(
    settings: Settings, found: Evidence, checks: Sequence[Check], clusters: Sequence[Cluster]
) -> tuple[list[Remedy], list[Left]]:
    """For each finding one of the two. ``clusters`` are those of ``pyrklog dev`` on this
    machine."""
    done: list[Remedy] = []
    left: list[Left] = []
    of_dev = _cluster_of(found, clusters)
    for check in checks:
        for finding in check.findings:
            remedy = _remedy(settings, check.name, finding, of_dev)
            if remedy is None:
                why = _BY_KIND.get(finding.kind) or _BY_CHECK[check.name]
                left.append(Left(check.name, finding.what, why))
            elif all(one.command != remedy.command for one in done):
                done.append(remedy)
    return done, left


def with_dev_commands(
    found: Evidence, checks: Sequence[Check], clusters: Sequence[Cluster]
) -> list[Check]:
    """With the command for each broker of ``pyrklog dev`` as the fix of what was found about it."""
    of_dev = _cluster_of(found, clusters)

    def advised(check: Check) -> Check:
        findings = [_with_dev_command(check.name, one, of_dev) for one in check.findings]
        return replace(check, findings=findings)

    return [advised(one) for one in checks]


def _with_dev_command(check: str, finding: Reason, of_dev: Cluster | None) -> Reason:
    remedy = None if of_dev is None else _undone(check, finding, of_dev)
    return finding if remedy is None else replace(finding, fix=f"`{remedy.command}`")


def _undone(check: str, finding: Reason, of_dev: Cluster) -> Remedy | None:
    """Of a broker of ``pyrklog dev``."""
    if finding.kind not in ("silent", "missing") or finding.broker is None:
        return None
    node = next((one for one in of_dev.brokers if one.number == finding.broker), None)
    return None if node is None else _of_dev(check, finding, of_dev, node)


def _remedy(
    settings: Settings, check: str, finding: Reason, of_dev: Cluster | None
) -> Remedy | None:
    if finding.kind == "not_preferred":
        given = settings.bootstrap
        where = "" if given == DEFAULT_BOOTSTRAP or settings.is_profiles_broker else f" -b {given}"
        command = f"pyrklog{where} cluster elect-leaders --preferred"
        return Remedy(check, finding, command, lambda: _elect(settings))
    return None if of_dev is None else _undone(check, finding, of_dev)


def _of_dev(check: str, finding: Reason, cluster: Cluster, node: Node) -> Remedy | None:
    """A broker of ``pyrklog dev``: what a fault of that command has done is undone."""
    name = node.name
    ways: Mapping[str, tuple[str, Callable[[Runner, Node], None]]] = {
        "paused": ("resume", _resume),
        "isolated": ("heal", lambda runner, one: runner.isolate(one, cut_off=False)),
        "dead": ("restart", lambda runner, one: runner.restart(one)),
    }
    way = ways.get(cluster.state_of(node))
    if way is None:
        return None
    verb, act = way

    def run() -> None:
        from pyrklog.cli.dev import locked

        with locked(cluster.name) as runner:
            act(runner, runner.cluster.node(name))

    return Remedy(check, finding, dev_command(cluster.name, verb, name), run)


def _resume(runner: Runner, node: Node) -> None:
    import signal

    runner.signal(node, signal.SIGCONT)


def _cluster_of(found: Evidence, clusters: Iterable[Cluster]) -> Cluster | None:
    """The one of ``pyrklog dev`` that was looked at, by its brokers' addresses."""
    if found.state is None:
        return None
    told = {one.address for one in found.state.brokers}
    for cluster in clusters:
        if told and told <= {cluster.address_of(one) for one in cluster.brokers}:
            return cluster
    return None


def _elect(settings: Settings) -> None:
    from pyrklog.cli.admin_common import connect
    from pyrklog.cli.cluster_election import ElectionTargets, elect

    done = elect(connect(settings), ElectionTargets({}), unclean=False, dry_run=False)
    if done.errors:
        raise done.errors[0]


def dev_clusters(environment: Mapping[str, str]) -> list[Cluster]:
    from pyrklog.dev.errors import DevError
    from pyrklog.dev.state import DEFAULT_NAME, Place, dev_root

    default = Place(dev_root(environment), DEFAULT_NAME)
    try:
        own = [default.load()] if default.exists() else []
    except DevError:
        own = []
    return [*own, *default.others()]


def carry_out(remedy: Remedy) -> CliError | None:
    """Why it did not work; None if it did."""
    from pyrklog.dev.errors import DevError

    try:
        remedy.act()
    except CliError as error:
        return error
    except DevError as error:
        return CliError(error.problem, error.what, error.fix)
    return None
