"""Starts and stops clusters, and injects faults into their processes."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyrklog.base.problems import Problem
from pyrklog.dev import brokers, java, ports, processes, zookeeper
from pyrklog.dev.errors import DevError
from pyrklog.dev.processes import Daemon
from pyrklog.dev.routes import (
    APPLIED_FILE,
    ROUTES_FILE,
    Routes,
    applied_revision,
    read_routes,
    routes_of,
)
from pyrklog.dev.state import Cluster, Node, Place, dev_fix, write_whole

START_S = 60.0
STOP_S = 20.0
APPLIED_S = 10.0
PAUSE_S = 0.02
_ARENA_MARKER = ".pyrklog-arena"
"""In a log directory: the path of the broker's block cache in shared memory."""


class Runner:
    """Operations on one cluster. ``environment`` is that of its processes.

    Methods raise :class:`DevError`. The caller holds the lock of the place.
    """

    def __init__(
        self,
        place: Place,
        cluster: Cluster,
        environment: Mapping[str, str],
        describe: brokers.DescribeCluster,
    ) -> None:
        self._describe = describe
        self.place = place
        self.cluster = cluster
        self._environment = environment
        self._daemons: dict[str, Daemon] = {}
        self._deadline = time.monotonic() + START_S

    def check_start(self) -> None:
        """What can be foreseen of a start. Changes nothing."""
        java.require(self._environment)
        is_new = not self.place.exists()
        fix = "give another --base-port" if is_new else "end that, or purge the cluster"
        ports.check_free(self._ports(self.cluster.brokers), fix)

    def start(self) -> None:
        """Starts everything and waits until clients can use it. A failed start leaves no process,
        and no file if the failure was foreseeable."""
        self.check_start()
        self.cluster.isolated = []
        self.place.folder.mkdir(parents=True, exist_ok=True)
        if self.cluster.is_temporary and self.cluster.temporary is None:
            self.cluster.temporary = tempfile.mkdtemp(prefix=f"pyrklog-dev-{self.place.name}-")
        self.place.save(self.cluster)
        try:
            self._write_files(self.cluster.nodes)
            (self.place.folder / APPLIED_FILE).unlink(missing_ok=True)
            self._write_routes()
            self._launch([*self.cluster.zookeepers, self.cluster.network])
            self._await_zookeeper(self.cluster.brokers)
            self._launch(self.cluster.brokers)
            self._await_brokers(self.cluster.brokers)
        except BaseException:
            self._abandon(self.cluster.nodes)
            raise

    def check_add(self, count: int) -> None:
        """What can be foreseen of :meth:`add`. Changes nothing."""
        first = self.cluster.brokers[-1].number + 1
        if first + count - 1 > ports.BROKERS_MAX:
            raise DevError(
                Problem.ARGUMENT_VALUE, f"a cluster has at most {ports.BROKERS_MAX} brokers"
            )
        self._require_running([*self.cluster.zookeepers, self.cluster.network])

    def add(self, count: int, racks: Sequence[str]) -> list[Node]:
        self.check_add(count)
        first = self.cluster.brokers[-1].number + 1
        added = [
            Node("broker", first + index, racks[index % len(racks)] if racks else None)
            for index in range(count)
        ]
        ports.check_free(self._ports(added, only_brokers=True), "end that")
        self.cluster.nodes += added
        try:
            self._write_files(added)
            self._apply_routes()
            self._await_zookeeper(added)
            self._launch(added)
            self._await_brokers(added)
        except BaseException:
            self._abandon(added)
            raise
        return added

    def restart(self, node: Node) -> None:
        if node.role == "broker" and node.number in self.cluster.isolated:
            fix = dev_fix(self.cluster.name, "heal", node.name)
            raise DevError(
                Problem.DEV_NOT_STARTED, f"{node.title} is cut off and could not come back", fix
            )
        others = [*self.cluster.zookeepers, self.cluster.network]
        self._require_running([one for one in others if one is not node])
        if node.process is not None:
            processes.end(node.process, STOP_S)
        if node.role == "network":
            (self.place.folder / APPLIED_FILE).unlink(missing_ok=True)
        else:
            self._apply_routes()  # the network watches for returning targets
        self._launch([node])
        match node.role:
            case "broker":
                self._await_brokers([node])
            case _:
                self._await_zookeeper(self.cluster.brokers)

    def _ports(self, added: Sequence[Node], *, only_brokers: bool = False) -> list[int]:
        base = self.cluster.base_port
        numbers = [one.number for one in added]
        servers = [one.number for one in self.cluster.zookeepers]
        found = [ports.client_port(base, number) for number in numbers]
        found += [ports.peer_port(base, number) for number in numbers]
        found += [route.port for route in routes_of(base, numbers, servers)]
        if not only_brokers:
            quorum = (0, 10, 20) if len(servers) > 1 else (0,)
            found += [ports.zookeeper_port(base, one) + more for one in servers for more in quorum]
        return found

    def _write_files(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.role == "broker":
                brokers.write_files(self.place, self.cluster, node)
            elif node.role == "zookeeper":
                zookeeper.write_files(self.place, self.cluster, node)

    def _launch(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            folder = self.place.node_folder(self.cluster, node)
            daemon = Daemon(
                self._command(node),
                folder,
                self.place.log_of(self.cluster, node),
                processes.daemon_environment(self._environment),
            )
            self._daemons[node.name] = daemon
            node.process = daemon.process
        self.place.save(self.cluster)

    def _command(self, node: Node) -> list[str]:
        match node.role:
            case "broker":
                return brokers.command(self.place, self.cluster, node)
            case "zookeeper":
                return zookeeper.command(self.place, self.cluster, node, self._environment)
        return [sys.executable, "-P", "-m", "pyrklog.dev.network", str(self.place.folder)]

    def _await_zookeeper(self, used_by: Sequence[Node]) -> None:
        """Waits until ZooKeeper serves these brokers on their routes.

        A broker that connects earlier is refused and retries only later.
        """
        servers = [one.number for one in self.cluster.zookeepers if one.is_running]
        waiting = {
            ports.routed_zookeeper_port(self.cluster.base_port, node.number, server)
            for node in used_by
            if node.number not in self.cluster.isolated
            for server in servers
        }

        def serves() -> bool:
            waiting.difference_update([port for port in waiting if zookeeper.serves(port)])
            return not waiting

        self._await(serves, "zookeeper does not serve")

    def _await_brokers(self, nodes: Sequence[Node]) -> None:
        """Waits until each broker serves and knows all the others."""
        waiting = list(nodes)

        def are_ready() -> bool:
            waiting[:] = [
                one for one in waiting if not brokers.is_ready(self._daemons[one.name].output())
            ]
            return not waiting

        self._await(are_ready, "not all brokers are ready")
        there = [one.number for one in self.cluster.brokers if self._takes_part(one)]

        def know_each_other() -> bool:
            return all(brokers.knows(self._describe, self.cluster, one, there) for one in nodes)

        self._await(know_each_other, "the brokers do not find each other")

    def _takes_part(self, node: Node) -> bool:
        return self.cluster.state_of(node) == "running"

    def _await(self, is_so: Callable[[], bool], otherwise: str) -> None:
        left_s = self._deadline - time.monotonic()
        for _ in processes.wait_for(left_s, PAUSE_S):
            if is_so():
                return
            self._check_daemons()
        logs = ", ".join(str(daemon.log) for daemon in self._daemons.values())
        raise DevError(Problem.NO_ANSWER, f"{otherwise} after {START_S:g} s", f"see {logs}")

    def _check_daemons(self) -> None:
        for name, daemon in self._daemons.items():
            code = daemon.exit_code()
            if code is not None:
                node = self.cluster.node(name)
                last = _last_words(daemon.output())
                said = f": {last}" if last else ""
                what = f"{node.title} ended at its start (exit code {code}){said}"
                raise DevError(Problem.DEV_NOT_STARTED, what, f"see {daemon.log}")

    def _abandon(self, nodes: Sequence[Node]) -> None:
        self._kill(nodes)
        self.place.save(self.cluster)

    def _kill(self, nodes: Sequence[Node]) -> None:
        """Also kills children, which would outlive their parents."""
        for node in nodes:
            if node.process is not None:
                started = processes.children(node.process)
                for process in (node.process, *started):
                    processes.kill(process)
                node.process = None

    def _require_running(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if not node.is_running:
                known = len(self.cluster.running())
                words = ("restart", node.name) if known else ("start",)
                fix = dev_fix(self.cluster.name, *words)
                raise DevError(Problem.DEV_NOT_RUNNING, f"{node.title} does not run", fix)

    def _not_running(self, node: Node) -> DevError:
        fix = dev_fix(self.cluster.name, "restart", node.name)
        return DevError(Problem.DEV_NOT_RUNNING, f"{node.title} does not run", fix)

    def stop(self) -> list[Node]:
        """Ends everything in order and keeps the data; returns the nodes that had to be killed."""
        if self.cluster.isolated and self.cluster.network.is_running:
            self.cluster.isolated = []
            self._apply_routes()
        # Wakes a paused ZooKeeper first: brokers need it to leave.
        for node in [*self.cluster.zookeepers, self.cluster.network]:
            if node.process is not None:
                processes.send(node.process, signal.SIGCONT)
        killed = self._end(self.cluster.brokers)
        killed += self._end([*self.cluster.zookeepers, self.cluster.network])
        self.cluster.isolated = []
        self.place.save(self.cluster)
        return killed

    def _end(self, nodes: Sequence[Node]) -> list[Node]:
        asked = [(node, node.process) for node in nodes if node.process is not None]
        for _, process in asked:
            processes.ask_to_end(process)
        deadline = time.monotonic() + STOP_S
        killed = []
        for node, process in asked:
            if not processes.wait_ended(process, deadline - time.monotonic()):
                processes.kill(process)
                killed.append(node)
            node.process = None
        return killed

    def purge(self) -> None:
        self._kill(self.cluster.nodes)
        for node in self.cluster.brokers:
            _remove_arenas(self.place.node_folder(self.cluster, node))
        if self.cluster.temporary is not None:
            shutil.rmtree(self.cluster.temporary, ignore_errors=True)
        shutil.rmtree(self.place.folder)

    def kill(self, node: Node) -> None:
        """SIGKILL."""
        if node.process is None or not processes.kill(node.process):
            raise self._not_running(node)

    def signal(self, node: Node, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT."""
        if node.process is None or not processes.send(node.process, number):
            raise self._not_running(node)

    def isolate(self, node: Node, *, cut_off: bool) -> None:
        if node.role != "broker":
            fix = dev_fix(self.cluster.name, "pause", node.name)
            raise DevError(Problem.ARGUMENT_VALUE, f"{node.title} is no broker", fix)
        self._require_running([self.cluster.network])
        before = set(self.cluster.isolated)
        after = before | {node.number} if cut_off else before - {node.number}
        self.cluster.isolated = sorted(after)
        self._apply_routes()
        self.place.save(self.cluster)

    def _write_routes(self) -> Routes:
        try:
            revision = read_routes(self.place.folder).revision + 1
        except (OSError, ValueError):  # none yet, or damaged: all its contents are known here
            revision = 1
        numbers = [one.number for one in self.cluster.brokers]
        servers = [one.number for one in self.cluster.zookeepers]
        found = routes_of(self.cluster.base_port, numbers, servers)
        routes = Routes(revision, found, self.cluster.isolated)
        import msgspec

        write_whole(self.place.folder / ROUTES_FILE, msgspec.json.encode(routes))
        return routes

    def _apply_routes(self) -> None:
        """Writes the routes and waits until the network has applied them."""
        wanted = self._write_routes().revision
        network = self.cluster.network
        if network.process is None or not processes.send(network.process, signal.SIGHUP):
            raise self._not_running(network)
        for _ in processes.wait_for(APPLIED_S, PAUSE_S):
            if applied_revision(self.place.folder) >= wanted:
                return
        log = self.place.log_of(self.cluster, network)
        raise DevError(Problem.NO_ANSWER, "the network does not answer", f"see {log}")


def new_cluster(
    place: Place,
    count: int,
    *,
    racks: Sequence[str],
    zookeepers: int,
    base_port: int | None,
    settings: Sequence[str],
    temporary: bool,
) -> Cluster:
    """A cluster that has no files yet. Raises :class:`DevError` for bad values."""
    if not 1 <= count <= ports.BROKERS_MAX:
        raise DevError(Problem.ARGUMENT_VALUE, f"-n is 1 to {ports.BROKERS_MAX}, not {count}")
    if zookeepers not in (1, ports.ZOOKEEPERS_MAX):
        raise DevError(
            Problem.ARGUMENT_VALUE, f"--zk is 1 or {ports.ZOOKEEPERS_MAX}, not {zookeepers}"
        )
    others = [one.base_port for one in place.others()]
    base = ports.choose_base(others) if base_port is None else base_port
    ports.check_base(base)
    cluster = Cluster(place.name, base, [], list(settings), is_temporary=temporary)
    cluster.nodes = [
        Node("broker", number, racks[(number - 1) % len(racks)] if racks else None)
        for number in range(1, count + 1)
    ]
    cluster.nodes += [Node("zookeeper", number) for number in range(1, zookeepers + 1)]
    cluster.nodes.append(Node("network", 1))
    for node in cluster.brokers:
        brokers.check_settings(cluster, node, place.folder)
    return cluster


def _remove_arenas(folder: Path) -> None:
    from pyrklog.plane.offline import remove_arena

    for marker in folder.glob(f"data/**/{_ARENA_MARKER}"):
        for line in marker.read_text().splitlines():
            path = line.removeprefix("path=")
            if path != line and Path(path).exists():
                remove_arena(path, force=True)


def _last_words(output: str) -> str:
    """The error with which a broker ended, else the last line, as one line."""
    lines = output.strip().splitlines()
    begins = [index for index, line in enumerate(lines) if line.startswith("error[")]
    return "; ".join(line.strip() for line in lines[begins[-1] if begins else -1 :])
