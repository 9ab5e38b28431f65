"""What faults befall: brokers by number."""

from __future__ import annotations

from pyrklog.testing import TestBroker


class Site:
    """Brokers by number, which can be killed, stopped and started again."""

    brokers: dict[int, TestBroker]

    def kill(self, number: int) -> None:
        """Kill -9."""
        self.brokers[number].kill()

    def stop(self, number: int) -> None:
        """An orderly end."""
        self.brokers[number].stop(timeout_s=30)

    def begin(self, number: int) -> None:
        """Starts one that was killed or stopped."""
        self.brokers[number].start()


class Lone(Site):
    """Brokers that know of no other."""

    def __init__(self, *brokers: TestBroker) -> None:
        """They are counted from 1."""
        self.brokers = dict(enumerate(brokers, 1))
