from pyrklog.testing.broker import BrokerExited, TestBroker

__all__ = ["BrokerExited", "TestBroker"]
