"""Whether a cluster lets a client in, asked before clients that would only wait."""

from __future__ import annotations

from pyrklog.scanning.core_scan import check_access as check
from pyrklog.scanning.settings import AccessSettings
from pyrklog.security import Security

_CONNECT_MOST_S = 3.0


def check_access(
    bootstrap_servers: str, client_id: str, connect_timeout_s: float, security: Security
) -> None:
    """Asks the first broker that can be reached, each for three seconds at most; one that is away
    is no failure. librdkafka goes on trying where a name, token or certificate is refused, and
    says that nobody answered.

    Raises AuthenticationError for a refusal, ValueError for addresses, files and callables that
    cannot be used, UnsupportedBrokerError and BrokerProtocolError for what is no Kafka.
    """
    timeout_s = min(connect_timeout_s, _CONNECT_MOST_S)
    check(AccessSettings(bootstrap_servers, client_id, round(timeout_s * 1000), security.core()))
