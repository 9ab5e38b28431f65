from __future__ import annotations

from pyrklog.testing import TestBroker
from tests.support.waiting import PATIENCE_S


class Site:
    """Brokers by number, which can be killed, stopped and started again."""

    brokers: dict[int, TestBroker]

    def kill(self, number: int) -> None:
        self.brokers[number].kill()

    def stop(self, number: int) -> None:
        """An orderly end."""
        self.brokers[number].stop(timeout_s=30)

    def begin(self, number: int) -> None:
        """Starts one that was killed or stopped."""
        self.brokers[number].start(timeout_s=PATIENCE_S)


class Lone(Site):
    def __init__(self, *brokers: TestBroker) -> None:
        self.brokers = dict(enumerate(brokers, 1))
