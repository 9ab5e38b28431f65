"""Real brokers for the tests of Python projects (``docs/using/testing.md``)."""

TYPE_CHECKING = False  # as that of ``typing``, which need not be loaded

if TYPE_CHECKING:
    from pyrklog.testing.asynchronous import AsyncTestBroker as AsyncTestBroker
    from pyrklog.testing.broker import BrokerExited as BrokerExited
    from pyrklog.testing.broker import TestBroker as TestBroker
    from pyrklog.testing.cluster import TestCluster as TestCluster
    from pyrklog.testing.topics import Record as Record
    from pyrklog.testing.topics import Topic as Topic

_MODULES = {
    "AsyncTestBroker": "asynchronous",
    "BrokerExited": "broker",
    "Record": "topics",
    "TestBroker": "broker",
    "TestCluster": "cluster",
    "Topic": "topics",
}

__all__ = ["AsyncTestBroker", "BrokerExited", "Record", "TestBroker", "TestCluster", "Topic"]


def __getattr__(name: str) -> object:
    """Loads a name when it is used: pytest imports this package in each run."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = found = getattr(import_module(f"{__name__}.{module}"), name)
    return found
