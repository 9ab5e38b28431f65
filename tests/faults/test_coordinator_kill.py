"""The only broker is killed in each phase of a rebalance, and the group comes through."""

import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from pyrklog.testing import TestBroker
from pyrklog.testing.broker import free_port
from tests.support.faults.driver import FaultDriver
from tests.support.faults.site import Lone
from tests.support.generations import check_generations
from tests.support.groups import ConfluentMember, Crew, KafkaPythonMember, create_topic, fill
from tests.support.rebalance_phases import PHASES, Condition, Phase
from tests.support.watching_proxy import Passing, WatchingProxy

PARTITIONS = 6
EACH = 10
TOPIC = "churn"
GROUP = "phases"


@pytest.mark.parametrize("condition", PHASES)
def test_killed_in_a_phase_of_a_rebalance(
    new_broker: Callable[..., TestBroker], condition: Condition
) -> None:
    proxy_port = free_port()
    bootstrap = f"127.0.0.1:{proxy_port}"
    options = {
        "advertised.listeners": f"PLAINTEXT://{bootstrap}",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 4,
    }
    broker = new_broker(options=options).start()
    armed: list[Phase] = []
    killed = threading.Event()
    faults = FaultDriver(Lone(broker))
    down = ExitStack()

    def watch(passing: Passing) -> None:
        if armed and not killed.is_set() and armed[0].is_reached(passing):
            down.enter_context(faults.fault("kill", 1))
            killed.set()

    def join() -> ConfluentMember:
        strategy = {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 300}
        return ConfluentMember(bootstrap, GROUP, TOPIC, **strategy)

    with WatchingProxy(broker.bootstrap, proxy_port, watch):
        create_topic(bootstrap, TOPIC, PARTITIONS)
        fill(bootstrap, TOPIC, PARTITIONS, EACH)
        with Crew(join(), KafkaPythonMember(bootstrap, GROUP, TOPIC)) as crew:
            crew.poll_until(lambda: crew.owns_all(PARTITIONS), "two share")
            crew.poll_until(lambda: len(crew.seen) >= PARTITIONS * EACH, "everything read")
            mine = crew.members[0].assigned()
            crew.members[0].commit(dict.fromkeys(mine, 4), "before the kill")
            armed.append(Phase(condition))
            crew.members.append(join())
            crew.poll_until(killed.is_set, "the phase")
            down.close()
            crew.poll_until(lambda: crew.owns_all(PARTITIONS), "three share")
            fill(bootstrap, TOPIC, PARTITIONS, EACH, first=EACH)
            due = {f"{p}:{EACH + n}" for p in range(PARTITIONS) for n in range(EACH)}
            crew.poll_until(lambda: due <= set(crew.seen), "the new ones")
            for partition in mine:
                assert crew.members[2].committed(partition) == (4, "before the kill")
            crew.members[2].commit({crew.members[2].assigned()[0]: EACH}, "after")
        check_generations(bootstrap, TOPIC, {GROUP: 2}, 4)
