"""Tools for tests that need a broker."""

from pyrklog.testing.broker import BrokerExited, TestBroker

__all__ = ["BrokerExited", "TestBroker"]
