"""Apache Kafka 3.9 with TLS and SASL: a listener for each way to be let in, or not."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from pyrklog.scanning import AuthenticationError, check_access
from pyrklog.security import security_of
from pyrklog.testing.broker import free_port
from tests.support.certificates import Certificates, make_certificates
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import wait_until

NAME = "alice"
PASSWORD = "wonder"
SESSION_MS = 3000
"""Of the listener ``sessions``."""

_MODULES = "org.apache.kafka.common.security"
_SECURITY = {
    "plain": "PLAINTEXT",
    "tls": "SSL",
    "mutual": "SSL",
    "sasl": "SASL_SSL",
    "sessions": "SASL_PLAINTEXT",
}


class SecuredKafka(NamedTuple):
    """Addresses of its listeners. ``sasl`` has all mechanisms, ``sessions`` all but PLAIN; clients
    of ``sessions`` are sent to ``proxy``, behind which a test puts :attr:`sessions`."""

    plain: str
    tls: str
    mutual: str
    sasl: str
    sessions: str
    proxy: str
    certificates: Certificates

    def tls_options(self, protocol: str = "SSL") -> dict[str, Any]:
        return {"security.protocol": protocol, "ssl.ca.location": str(self.certificates.ca)}

    def sasl_options(
        self, mechanism: str, password: str = PASSWORD, name: str = NAME
    ) -> dict[str, Any]:
        """For ``sasl``."""
        return login(mechanism, password, name) | self.tls_options("SASL_SSL")

    def add_user(self, name: str, password: str) -> None:
        """Of both kinds of SCRAM. Returns when the broker lets the user in: it learns of names from
        ZooKeeper, a while after it has answered."""
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(kind, 4096)
            self._alter(UserScramCredentialUpsertion(name, info, password.encode()))
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            options = login(mechanism, password, name)
            wait_until(partial(self._lets_in, options), f"{name} is not let in")

    def _lets_in(self, options: Mapping[str, Any]) -> bool:
        try:
            check_access(self.sessions, "", 10, security_of(options))
        except AuthenticationError:
            return False
        return True

    def remove_user(self, name: str, kind: ScramMechanism) -> None:
        self._alter(UserScramCredentialDeletion(name, kind))

    def _alter(self, alteration: UserScramCredentialAlteration) -> None:
        admin = AdminClient({"bootstrap.servers": self.plain})
        (future,) = admin.alter_user_scram_credentials([alteration]).values()
        future.result(30)


def login(mechanism: str, password: str = PASSWORD, name: str = NAME) -> dict[str, Any]:
    """For ``sessions``."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


def unsecured_token(lifetime_s: float = 3600) -> tuple[str, float]:
    """A token that Kafka takes without a signature, and its end."""
    now = time.time()
    end = now + lifetime_s
    parts = ({"alg": "none"}, {"sub": NAME, "iat": now - 60, "exp": end})
    coded = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in parts]
    return ".".join([*(one.decode() for one in coded), ""]), end


def give_token(_: str) -> tuple[str, float]:
    """For ``sasl.oauthbearer.callable``."""
    return unsecured_token()


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """With the user :data:`NAME`."""
    certificates = make_certificates(folder)
    addresses = {name: f"127.0.0.1:{free_port()}" for name in (*_SECURITY, "proxy")}
    port = int(addresses["plain"].rpartition(":")[2])
    options = _options(certificates, addresses, free_port())
    with KafkaBroker(folder / "broker", options=options, port=port):
        kafka = SecuredKafka(**addresses, certificates=certificates)
        kafka.add_user(NAME, PASSWORD)
        yield kafka


def _options(
    certificates: Certificates, addresses: Mapping[str, str], controller: int
) -> dict[str, str]:
    names = {"plain": "PLAINTEXT", **{name: name.upper() for name in _SECURITY if name != "plain"}}
    bound = ",".join(f"{listener}://{addresses[name]}" for name, listener in names.items())
    advertised = ",".join(
        f"{listener}://{addresses['proxy' if name == 'sessions' else name]}"
        for name, listener in names.items()
    )
    kinds = ",".join(f"{listener}:{_SECURITY[name]}" for name, listener in names.items())
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    modules = {
        "plain": f'{_MODULES}.plain.PlainLoginModule required user_{NAME}="{PASSWORD}";',
        "scram-sha-256": scram,
        "scram-sha-512": scram,
        "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
        f'unsecuredLoginStringClaim_sub="{NAME}";',
    }
    options = {
        "listeners": f"{bound},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": f"{kinds},CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.sessions.connections.max.reauth.ms": str(SESSION_MS),
    }
    for listener in ("sasl", "sessions"):
        enabled = [name for name in modules if listener == "sasl" or name != "plain"]
        prefix = f"listener.name.{listener}"
        options[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(enabled).upper()
        for name in enabled:
            options[f"{prefix}.{name}.sasl.jaas.config"] = modules[name]
    return options
