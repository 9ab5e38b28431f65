"""Carries out a plan on a cluster, and undoes what it did."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from tests.checker.brokers import WiredCluster
from tests.checker.network import ZOOKEEPER, Pair
from tests.checker.plan import ALL, CONTROLLER, COORDINATOR, LEADER, Fault, Plan

_LARGEST_FILE_BYTES = 1
_LOOK_S = 3.0
CLOCK_STEP_S = 3_600.0

Undo = Callable[[], None]


class Injector:
    """Faults that befall one cluster."""

    def __init__(self, cluster: WiredCluster, topic: str, group: str) -> None:
        self.happened: list[str] = []
        """What was done to whom."""
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._failures: list[BaseException] = []

    def run(self, plan: Plan) -> None:
        """Returns when everything is undone. Raises what went wrong in doing so."""
        lanes = [threading.Thread(target=self._run_lane, args=(lane,)) for lane in plan]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
        if self._failures:
            raise self._failures[0]

    def _run_lane(self, faults: tuple[Fault, ...]) -> None:
        pause = threading.Event()
        try:
            for fault in faults:
                pause.wait(fault.after_s)
                victims = self._victims(fault)
                self.happened.append(f"{fault.kind} of {victims} for {fault.hold_s} s")
                with ExitStack() as undone:
                    BEGIN[fault.kind](self._cluster, victims, undone)
                    pause.wait(fault.hold_s)
        except BaseException as error:
            self._failures.append(error)

    def _victims(self, fault: Fault) -> list[int]:
        numbers = list(self._cluster.brokers)
        if fault.victim == ALL:
            return numbers
        found = -1
        try:
            found = self._find(fault)
        except (KafkaException, KeyError):
            pass  # nobody can say who it is: anybody, then
        return [found if found in numbers else numbers[fault.number % len(numbers)]]

    def _find(self, fault: Fault) -> int:
        """The broker with that role, or a number that none has."""
        if fault.victim == LEADER:
            partitions = self._admin.list_topics(self._topic, timeout=_LOOK_S).topics[self._topic]
            return int(partitions.partitions[fault.number % len(partitions.partitions)].leader)
        if fault.victim == CONTROLLER:
            return int(self._admin.list_topics(self._topic, timeout=_LOOK_S).controller_id)
        if fault.victim == COORDINATOR:
            found = self._admin.list_topics(OFFSETS_TOPIC, timeout=_LOOK_S).topics[OFFSETS_TOPIC]
            if found.partitions:
                partition = partition_for(self._group, len(found.partitions))
                return int(found.partitions[partition].leader)
        return -1


def _kill(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    for number in victims:
        undone.callback(cluster.begin, number)
        cluster.kill(number)


def _crash(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    _kill(cluster, victims, undone)
    for number in victims:
        forget_memory(cluster.brokers[number].data)


def forget_memory(data: Path) -> None:
    """What the crash of its machine does to a broker that does not run: the shared memory that its
    log directories name is gone, and their markers stay."""
    for marker in data.glob("**/.pyrklog-arena"):
        for line in marker.read_text().splitlines():
            if line.startswith("path="):
                Path(line.removeprefix("path=")).unlink(missing_ok=True)


def _kill_all(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    undone.callback(_begin_all, cluster, victims)
    for number in victims:
        cluster.kill(number)


def _begin_all(cluster: WiredCluster, numbers: list[int]) -> None:
    # A broker of a cluster is ready when it knows a controller, so that none waits for another.
    failures: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            cluster.begin(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _pause(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    for number in victims:
        undone.callback(cluster.brokers[number].signal, signal.SIGCONT)
        cluster.brokers[number].signal(signal.SIGSTOP)


def _restart(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    for number in victims:
        undone.callback(cluster.begin, number)
        cluster.stop(number)


def _cut(cluster: WiredCluster, pairs: list[Pair], undone: ExitStack) -> None:
    undone.callback(cluster.network.join, pairs)
    cluster.network.cut(pairs)


def _cut_session(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    _cut(cluster, [(number, ZOOKEEPER) for number in victims], undone)


def _reset_session(cluster: WiredCluster, victims: list[int], _: ExitStack) -> None:
    cluster.network.reset((number, ZOOKEEPER) for number in victims)


def _deafen(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    pairs = [(other, number) for number in victims for other in cluster.others(number)]
    _cut(cluster, pairs, undone)


def _mute(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    pairs = [(number, other) for number in victims for other in cluster.others(number)]
    _cut(cluster, pairs, undone)


def _isolate(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    _deafen(cluster, victims, undone)
    _mute(cluster, victims, undone)


def _unplug(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    _cut(cluster, [pair for number in victims for pair in cluster.wires(number)], undone)


def _reset_links(cluster: WiredCluster, victims: list[int], _: ExitStack) -> None:
    for number in victims:
        for other in cluster.others(number):
            cluster.network.reset([(number, other), (other, number)])


def _fill_disk(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    if not cluster.has_disks:
        _break_disk(cluster, victims, undone)
        return
    for number in victims:
        filler = cluster.log_dir(number) / "filler"
        undone.callback(filler.unlink, missing_ok=True)
        with filler.open("wb", buffering=0) as output:
            while not _take_all_space(output.fileno(), filler.parent):
                continue


def _take_all_space(file: int, place: Path) -> bool:
    """Whether it was there; what the broker takes meanwhile makes another try necessary."""
    try:
        os.posix_fallocate(file, 0, max(shutil.disk_usage(place).free, 1))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True


def _break_disk(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    """No file of the process grows any more: a write fails, which the log directory does not
    survive."""
    for number in victims:
        undone.callback(cluster.begin, number)
        undone.callback(cluster.kill, number)
        pid = cluster.brokers[number].pid
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_LARGEST_FILE_BYTES, most))


def _pause_zookeeper(cluster: WiredCluster, _: list[int], undone: ExitStack) -> None:
    undone.callback(cluster.server.resume)
    cluster.server.pause()


def _kill_zookeeper(cluster: WiredCluster, _: list[int], undone: ExitStack) -> None:
    undone.callback(cluster.server.start)
    cluster.server.kill()


def _step_clock(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    """Far enough that nothing that compares times of day takes it for a delay; forward and back."""
    for number in victims:
        undone.callback(cluster.clocks[number].step, 0.0)
        cluster.clocks[number].step(CLOCK_STEP_S)


def _step_clock_back(cluster: WiredCluster, victims: list[int], undone: ExitStack) -> None:
    for number in victims:
        undone.callback(cluster.clocks[number].step, 0.0)
        cluster.clocks[number].step(-CLOCK_STEP_S)


BEGIN: dict[str, Callable[[WiredCluster, list[int], ExitStack], None]] = {
    "kill": _kill,
    "kill_all": _kill_all,
    "pause": _pause,
    "pause_past_session": _pause,
    "restart": _restart,
    "session_cut": _cut_session,
    "session_reset": _reset_session,
    "isolate": _isolate,
    "deaf": _deafen,
    "mute": _mute,
    "unplug": _unplug,
    "link_reset": _reset_links,
    "full_disk": _fill_disk,
    "broken_disk": _break_disk,
    "machine_crash": _crash,
    "clock_step": _step_clock,
    "clock_step_back": _step_clock_back,
    "zookeeper_pause": _pause_zookeeper,
    "zookeeper_pause_past_session": _pause_zookeeper,
    "zookeeper_kill": _kill_zookeeper,
}
