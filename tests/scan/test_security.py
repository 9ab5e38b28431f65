"""TLS and SASL on Apache Kafka 3.9: what is written is read, and what is refused is said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import pyrklog
from pyrklog.producing import Producer, ProducerSettings
from pyrklog.scanning import AuthenticationError, BrokerNotAvailableError
from pyrklog.security import security_of
from pyrklog.testing.broker import free_port
from tests.support import jvm
from tests.support.certificates import Certificates, make_certificates
from tests.support.kafka_broker import KafkaBroker
from tests.support.scanning import iterated

pytestmark = pytest.mark.jvm

MODULES = "org.apache.kafka.common.security"
SESSION_MS = 3000


class Secured(NamedTuple):
    """A broker's listeners, and certificates."""

    plain: str
    tls: str
    sasl: str
    mutual: str
    certificates: Certificates


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("security")
    certificates = make_certificates(folder)
    ports = {name: free_port() for name in ("plain", "tls", "sasl", "mutual")}
    addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    with KafkaBroker(
        folder / "broker",
        options=_options(certificates, addresses, free_port()),
        port=ports["plain"],
    ) as broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            jvm.run(
                "kafka.admin.ConfigCommand",
                *("--bootstrap-server", broker.bootstrap, "--alter", "--entity-type", "users"),
                *("--entity-name", "alice"),
                *("--add-config", f"{mechanism}=[iterations=4096,password=wonder]"),
            )
        yield Secured(**addresses, certificates=certificates)


def _options(
    certificates: Certificates, addresses: Mapping[str, str], controller: int
) -> dict[str, str]:
    named = {"PLAINTEXT": "plain", "TLS": "tls", "SASL": "sasl", "MUTUAL": "mutual"}
    client = ",".join(f"{name}://{addresses[key]}" for name, key in named.items())
    plain = f'{MODULES}.plain.PlainLoginModule required user_alice="wonder";'
    scram = f"{MODULES}.scram.ScramLoginModule required;"
    bearer = (
        f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="alice";'
    )
    sasl = "listener.name.sasl"
    return {
        "listeners": f"{client},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "advertised.listeners": client,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SASL:SASL_SSL,MUTUAL:SSL"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{sasl}.plain.sasl.jaas.config": plain,
        f"{sasl}.scram-sha-256.sasl.jaas.config": scram,
        f"{sasl}.scram-sha-512.sasl.jaas.config": scram,
        f"{sasl}.oauthbearer.sasl.jaas.config": bearer,
        f"{sasl}.connections.max.reauth.ms": str(SESSION_MS),
    }


def tls(kafka: Secured, **more: str) -> dict[str, Any]:
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(kafka.certificates.ca),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def sasl(kafka: Secured, mechanism: str, password: str = "wonder") -> dict[str, Any]:
    return {
        **tls(kafka),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def write(bootstrap: str, options: Mapping[str, Any], topic: str, count: int) -> None:
    """Makes the topic with confluent-kafka's client, and writes with ours."""
    security = security_of(options)
    admin = AdminClient({"bootstrap.servers": bootstrap, **security.librdkafka()})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(ProducerSettings(bootstrap, ["value"], topic=topic, security=security))
    values = [b"%d" % n + b"x" * 1000 for n in range(count)]
    producer.send(pa.record_batch({"value": pa.array(values, pa.binary())}))
    producer.flush()


def read(bootstrap: str, options: Mapping[str, Any], topic: str, **more: Any) -> int:
    found = pyrklog.scan(
        topic, columns=["value"], bootstrap_servers=bootstrap, security=options, **more
    )
    return len(iterated(found))


def test_tls_carries_batches_larger_than_its_buffers(kafka: Secured, topic: str) -> None:
    write(kafka.tls, tls(kafka), topic, 20_000)
    assert read(kafka.tls, tls(kafka), topic) == 20_000
    # A frame above a lane's share: what TLS has decrypted already is not waited for.
    small = {"memory_bytes": 16 << 20, "threads": 1}
    assert read(kafka.tls, tls(kafka), topic, **small) == 20_000


def test_a_client_certificate_is_shown(kafka: Secured, topic: str) -> None:
    client = str(kafka.certificates.client)
    options = {
        **tls(kafka),
        "ssl.certificate.location": client,
        "ssl.key.location": client,
    }
    write(kafka.mutual, options, topic, 10)
    assert read(kafka.mutual, options, topic) == 10


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_name_and_password_are_taken_or_refused(kafka: Secured, topic: str, mechanism: str) -> None:
    options = sasl(kafka, mechanism)
    write(kafka.sasl, options, topic, 10)
    assert read(kafka.sasl, options, topic) == 10
    with pytest.raises(AuthenticationError, match=f"{mechanism} failed: .*uthentication") as caught:
        read(kafka.sasl, sasl(kafka, mechanism, "hush"), topic)
    assert "hush" not in str(caught.value)


def test_failures_are_one_sentence(kafka: Secured, topic: str) -> None:
    other = tls(kafka) | {"ssl.ca.location": str(kafka.certificates.other_ca)}
    for bootstrap, options, sentence in (
        (kafka.tls, other, "its certificate is not trusted"),
        (kafka.tls, {}, "it speaks TLS only"),
        (kafka.tls, sasl(kafka, "PLAIN"), "the listener has no SASL"),
    ):
        with pytest.raises(AuthenticationError, match=sentence):
            read(bootstrap, options, topic)
    with pytest.raises(BrokerNotAvailableError, match="PLAINTEXT"):
        read(kafka.plain, tls(kafka), topic, timeout_s=1)
