"""pyrklog: a distributed log broker that speaks Kafka's wire protocol.

``pyrklog.scan`` reads topics of any Kafka into Arrow (``docs/understanding/scan.md``).
"""

# As that of ``typing``, which need not be loaded.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from pyrklog.scanning import scan as scan

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Loads ``scan`` when it is used: neither commands nor brokers need it."""
    if name != "scan":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyrklog.scanning import scan

    globals()[name] = scan
    return scan
