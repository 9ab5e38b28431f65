"""The driver of faults: begins them on brokers and what is around them, and undoes them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pyrklog.testing import BrokerExited
from tests.support.faults.disks import break_writes
from tests.support.faults.machine import forget_boot, forget_memory
from tests.support.faults.network import ZOOKEEPER, Pair
from tests.support.faults.site import Site
from tests.support.faults.wired_cluster import WiredCluster

CLOCK_STEP_S = 3_600.0


class FaultDriver:
    """Faults that befall one site."""

    def __init__(self, site: Site) -> None:
        self._site = site

    @contextmanager
    def fault(self, kind: str, *victims: int) -> Iterator[None]:
        """A fault of these brokers, undone behind the block. KeyError: no such kind, or one that
        needs a `WiredCluster`."""
        with ExitStack() as undone:
            self._begin(kind, list(victims), undone)
            yield

    def _begin(self, kind: str, victims: list[int], undone: ExitStack) -> None:
        if isinstance(self._site, WiredCluster) and kind in OF_WIRED_CLUSTERS:
            OF_WIRED_CLUSTERS[kind](self._site, victims, undone)
        else:
            OF_BROKERS[kind](self._site, victims, undone)

    def kill_in_start(self, number: int, life_s: float) -> None:
        """Starts a broker and kills it after so long, unless it listens before. What it ends by
        itself for is that another one has its directory; BrokerExited: for anything else."""
        try:
            self._site.brokers[number].start(timeout_s=life_s)
        except BrokerExited as error:
            text = str(error)
            if not any(reason in text for reason in ("exit code -9", "in use", "locked")):
                raise

    def kill_in_starts(self, lives_s: Sequence[tuple[int, float]]) -> None:
        """The same with several at once, each with the life that stands behind its number."""
        starts = [threading.Thread(target=self.kill_in_start, args=life) for life in lives_s]
        for start in starts:
            start.start()
        for start in starts:
            start.join()


def _kill(site: Site, victims: list[int], undone: ExitStack) -> None:
    for number in victims:
        undone.callback(site.begin, number)
        site.kill(number)


def _crash(site: Site, victims: list[int], undone: ExitStack) -> None:
    _kill(site, victims, undone)
    for number in victims:
        forget_memory(site.brokers[number].data)


def _reboot(site: Site, victims: list[int], undone: ExitStack) -> None:
    _kill(site, victims, undone)
    for number in victims:
        forget_boot(site.brokers[number].data)


def _kill_all(site: Site, victims: list[int], undone: ExitStack) -> None:
    undone.callback(_begin_all, site, victims)
    for number in victims:
        site.kill(number)


def _begin_all(site: Site, numbers: list[int]) -> None:
    # A broker of a cluster is ready when it knows a controller, so that none waits for another.
    failures: list[BaseException] = []

    def begin(number: int) -> None:
        try:
            site.begin(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _pause(site: Site, victims: list[int], undone: ExitStack) -> None:
    for number in victims:
        undone.callback(site.brokers[number].signal, signal.SIGCONT)
        site.brokers[number].signal(signal.SIGSTOP)


def _restart(site: Site, victims: list[int], undone: ExitStack) -> None:
    for number in victims:
        undone.callback(site.begin, number)
        site.stop(number)


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
    if not cluster.disks:
        _break_disk(cluster, victims, undone)
        return
    for number in victims:
        undone.callback(cluster.disks[number].empty)
        cluster.disks[number].fill()


def _break_disk(site: Site, victims: list[int], undone: ExitStack) -> None:
    for number in victims:
        undone.callback(site.begin, number)
        undone.callback(site.kill, number)
        break_writes(site.brokers[number].pid)


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


OF_BROKERS: dict[str, Callable[[Site, list[int], ExitStack], None]] = {
    "kill": _kill,
    "kill_all": _kill_all,
    "pause": _pause,
    "pause_past_session": _pause,
    "restart": _restart,
    "broken_disk": _break_disk,
    "machine_crash": _crash,
    "reboot": _reboot,
}
"""``machine_crash``: killed, and its shared memory is gone. ``reboot``: killed, and what is there
is of another boot."""

OF_WIRED_CLUSTERS: dict[str, Callable[[WiredCluster, list[int], ExitStack], None]] = {
    "session_cut": _cut_session,
    "session_reset": _reset_session,
    "isolate": _isolate,
    "deaf": _deafen,
    "mute": _mute,
    "unplug": _unplug,
    "link_reset": _reset_links,
    "full_disk": _fill_disk,
    "clock_step": _step_clock,
    "clock_step_back": _step_clock_back,
    "zookeeper_pause": _pause_zookeeper,
    "zookeeper_pause_past_session": _pause_zookeeper,
    "zookeeper_kill": _kill_zookeeper,
}
