"""How the cluster is reached: for the driver's questions and for the scans of tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from pyrklog.scanning import check_access
from pyrklog.security import Security

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ABSENT_S = 3.0
"""A topic does not exist if brokers say so for this long, nor does a partition, and so with another
id: a broker that has just started may know less than the others, or older things. As with scans."""


class ScanArguments(TypedDict):
    """Of ``pyrklog.scan``."""

    bootstrap_servers: str
    client_id: str
    rack: str
    isolation: str
    timeout_s: float
    request_timeout_s: float
    connect_timeout_s: float
    check_crcs: bool
    large_bytes: int
    security: Security


@dataclass(frozen=True)
class Connection:
    """From the options with the prefix ``kafka.``; times in seconds."""

    bootstrap_servers: str
    client_id: str = "pyrklog-spark"
    rack: str = ""
    isolation: str = "read_committed"
    timeout_s: float = 60.0
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    check_crcs: bool = True
    large_bytes: int = 100 << 20
    """Of one batch of the log, as fetched and as expanded; as of a scan."""
    security: Security = field(default_factory=Security)

    def scan_arguments(self) -> ScanArguments:
        return ScanArguments(
            bootstrap_servers=self.bootstrap_servers,
            client_id=self.client_id,
            rack=self.rack,
            isolation=self.isolation,
            timeout_s=self.timeout_s,
            request_timeout_s=self.request_timeout_s,
            connect_timeout_s=self.connect_timeout_s,
            check_crcs=self.check_crcs,
            large_bytes=self.large_bytes,
            security=self.security,
        )

    def admin(self) -> AdminClient:
        """A client of a cluster that lets it in. Raises ScanError, ValueError."""
        # Executors do without it.
        from confluent_kafka.admin import AdminClient

        check_access(self.bootstrap_servers, self.client_id, self.connect_timeout_s, self.security)
        return AdminClient(self.librdkafka())

    def librdkafka(self) -> dict[str, Any]:
        """The configuration of confluent-kafka's clients."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id,
            # Within what librdkafka takes.
            "socket.timeout.ms": min(max(10, round(self.request_timeout_s * 1000)), 300_000),
            "socket.connection.setup.timeout.ms": max(1000, round(self.connect_timeout_s * 1000)),
            **self.security.librdkafka(),
        }
