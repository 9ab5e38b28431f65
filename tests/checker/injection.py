"""Carries out a plan on a cluster, and undoes what it did."""

from __future__ import annotations

import threading

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from pyrklog.groups.partitioner import OFFSETS_TOPIC, partition_for
from tests.checker.plan import ALL, CONTROLLER, COORDINATOR, LEADER, Fault, Plan
from tests.support.faults.driver import FaultDriver
from tests.support.faults.wired_cluster import WiredCluster

_LOOK_S = 3.0


class Injector:
    """Faults that befall one cluster."""

    def __init__(self, cluster: WiredCluster, topic: str, group: str) -> None:
        self.happened: list[str] = []
        """What was done to whom."""
        self._cluster = cluster
        self._driver = FaultDriver(cluster)
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
                with self._driver.fault(fault.kind, *victims):
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
