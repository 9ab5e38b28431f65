"""TLS and SASL of clients, by the names that librdkafka's and Java's clients have for them; see
``docs/understanding/scan.md``."""

from pyrklog.security.core_security import CoreSecurity
from pyrklog.security.options import OPTIONS, parse, security_of
from pyrklog.security.security import Pem, Security, TokenCallable

__all__ = [
    "OPTIONS",
    "CoreSecurity",
    "Pem",
    "Security",
    "TokenCallable",
    "parse",
    "security_of",
]
