"""TLS and SASL on Apache Kafka 3.9: what is written is read, and what is refused is said."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic, ScramMechanism

import pyrklog
from pyrklog.producing import Producer, ProducerAuthenticationError, ProducerSettings
from pyrklog.scanning import AuthenticationError, BrokerNotAvailableError, check_access
from pyrklog.security import security_of
from tests.support.scanning import iterated
from tests.support.secured_kafka import (
    SESSION_MS,
    SecuredKafka,
    login,
    secured_kafka,
    unsecured_token,
)
from tests.support.watching_proxy import Passing, WatchingProxy

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

API_VERSIONS = 18
SASL_HANDSHAKE = 17


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("security")) as running:
        yield running


class Counted:
    """For a :class:`WatchingProxy`: how many requests of each kind there were."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()

    def __call__(self, passing: Passing) -> None:
        if passing.is_request:
            self.requests[passing.api_key] += 1

    @property
    def connections(self) -> int:
        return self.requests[API_VERSIONS]

    @property
    def authentications(self) -> int:
        return self.requests[SASL_HANDSHAKE]


@pytest.fixture
def counted(kafka: SecuredKafka) -> Iterator[Counted]:
    """Of the listener ``sessions``."""
    watch = Counted()
    port = int(kafka.proxy.rpartition(":")[2])
    with WatchingProxy(kafka.sessions, port, watch, early=True):
        yield watch


def create(kafka: SecuredKafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.plain})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def producer(bootstrap: str, options: Mapping[str, Any], topic: str) -> Producer:
    security = security_of(options)
    return Producer(ProducerSettings(bootstrap, ["value"], topic=topic, security=security))


def send(to: Producer, count: int, size: int = 1000) -> None:
    values = [b"%d" % n + b"x" * size for n in range(count)]
    to.send(pa.record_batch({"value": pa.array(values, pa.binary())}))
    to.flush()


def read(bootstrap: str, options: Mapping[str, Any], topic: str, **more: Any) -> int:
    found = pyrklog.scan(
        topic, columns=["value"], bootstrap_servers=bootstrap, security=options, **more
    )
    return len(iterated(found))


def refusal(bootstrap: str, options: Mapping[str, Any], topic: str) -> str:
    """The same sentence for a scan and a producer, which is one and has no secrets."""
    with pytest.raises(AuthenticationError) as of_scan:
        read(bootstrap, options, topic)
    with pytest.raises(ProducerAuthenticationError) as of_producer:
        producer(bootstrap, options, topic)
    with pytest.raises(AuthenticationError) as of_check:
        check_access(bootstrap, "", 10, security_of(options))
    text = str(of_scan.value)
    assert str(of_check.value) == text
    assert "\n" not in text + str(of_producer.value)
    for option in ("sasl.password", "sasl.oauthbearer.token"):
        if option in options:
            assert options[option] not in text + str(of_producer.value)
    return text


def test_tls_carries_batches_larger_than_its_buffers(kafka: SecuredKafka, topic: str) -> None:
    create(kafka, topic)
    send(producer(kafka.tls, kafka.tls_options(), topic), 20_000)
    assert read(kafka.tls, kafka.tls_options(), topic) == 20_000
    # A frame above a lane's share: what TLS has decrypted already is not waited for.
    small = {"memory_bytes": 16 << 20, "threads": 1}
    assert read(kafka.tls, kafka.tls_options(), topic, **small) == 20_000


def test_a_client_shows_its_certificate(kafka: SecuredKafka, topic: str) -> None:
    create(kafka, topic)
    client = kafka.certificates.client
    for options in (
        {"ssl.certificate.location": str(client), "ssl.key.location": str(client)},
        {"ssl.keystore.location": str(client)},
        {"ssl.certificate.pem": client.read_text(), "ssl.key.pem": client.read_text()},
    ):
        send(producer(kafka.mutual, kafka.tls_options() | options, topic), 10)
    assert read(kafka.mutual, kafka.tls_options() | options, topic) == 30


def test_a_certificate_is_refused_by_either_side(kafka: SecuredKafka, topic: str) -> None:
    create(kafka, topic)
    trusted = kafka.tls_options()
    other = trusted | {"ssl.ca.location": str(kafka.certificates.other_ca)}
    stranger = trusted | {"ssl.keystore.location": str(kafka.certificates.stranger)}
    localhost = kafka.tls.replace("127.0.0.1", "localhost")
    for bootstrap, options, sentence in (
        (kafka.tls, other, "not trusted: none of ssl.ca.location"),
        (localhost, trusted, "of another name .* ssl.endpoint.identification.algorithm"),
        (kafka.mutual, trusted, "the lack of one .* ssl.certificate.location"),
        (kafka.mutual, stranger, "refuses this client's certificate"),
    ):
        text = refusal(bootstrap, options, topic)
        assert re.search(sentence, text), text
    anyone = trusted | {"ssl.endpoint.identification.algorithm": ""}
    assert read(localhost, anyone, topic) == 0


def test_a_listener_speaks_another_protocol(kafka: SecuredKafka, topic: str) -> None:
    create(kafka, topic)
    plain = login("SCRAM-SHA-512")
    for bootstrap, options, sentence in (
        (kafka.tls, {}, "it speaks TLS only: security.protocol"),
        (kafka.tls, kafka.sasl_options("PLAIN"), "has no SASL: its security.protocol"),
        (kafka.plain, plain, "has no SASL: its security.protocol"),
        (kafka.sasl, plain, "it speaks TLS only: security.protocol"),
    ):
        assert sentence in refusal(bootstrap, options, topic)
    # These listeners hang up without a word, as brokers do that go down.
    for bootstrap, options, sentence in (
        (kafka.plain, kafka.tls_options(), "is its security.protocol PLAINTEXT"),
        (kafka.sasl, kafka.tls_options(), "is its security.protocol SASL_PLAINTEXT or SASL_SSL"),
        (kafka.sessions, {}, "is its security.protocol SASL_PLAINTEXT or SASL_SSL"),
    ):
        with pytest.raises(BrokerNotAvailableError, match=sentence):
            read(bootstrap, options, topic, timeout_s=1)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_name_and_password_are_taken_or_refused(
    kafka: SecuredKafka, topic: str, mechanism: str
) -> None:
    create(kafka, topic)
    options = kafka.sasl_options(mechanism)
    send(producer(kafka.sasl, options, topic), 10)
    assert read(kafka.sasl, options, topic) == 10
    for name, password in (("alice", "hush"), ("nobody", "wonder")):
        text = refusal(kafka.sasl, kafka.sasl_options(mechanism, password, name), topic)
        assert f"{mechanism} failed: it refuses sasl.username and sasl.password" in text


def test_tokens_are_taken_or_refused(kafka: SecuredKafka, topic: str) -> None:
    create(kafka, topic)

    def options(**more: Any) -> dict[str, Any]:
        named = {f"sasl.oauthbearer.{name}": value for name, value in more.items()}
        return kafka.tls_options("SASL_SSL") | {"sasl.mechanism": "OAUTHBEARER"} | named

    def fails(_: str) -> tuple[str, float]:
        raise RuntimeError("the issuer is away")

    given = options(token=unsecured_token()[0])
    send(producer(kafka.sasl, given, topic), 10)
    assert read(kafka.sasl, given, topic) == 10
    assert read(kafka.sasl, options(callable=lambda _: unsecured_token()), topic) == 10
    for token in (unsecured_token(-30)[0], "no.token"):
        text = refusal(kafka.sasl, options(token=token), topic)
        assert "it refuses the token of sasl.oauthbearer.token" in text
    assert "an end of line" in refusal(kafka.sasl, options(token="abc\n"), topic)
    assert "the issuer is away" in refusal(kafka.sasl, options(callable=fails), topic)
    late = options(callable=lambda _: unsecured_token(-30))
    assert "expired" in refusal(kafka.sasl, late, topic)


def test_a_refusal_is_not_tried_again(kafka: SecuredKafka, counted: Counted, topic: str) -> None:
    create(kafka, topic)
    text = refusal(kafka.proxy, login("PLAIN"), topic)
    assert "no such sasl.mechanism, but " in text
    assert "SCRAM-SHA-512" in text
    assert counted.authentications == 3
    refusal(kafka.proxy, login("SCRAM-SHA-512", "hush"), topic)
    assert counted.authentications == 6


def test_sessions_are_prolonged_on_their_connections(
    kafka: SecuredKafka, counted: Counted, topic: str
) -> None:
    create(kafka, topic)
    bearer = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.callable": lambda _: unsecured_token(),
    }
    for options in (login("SCRAM-SHA-512"), bearer):
        before = counted.requests.copy()
        writer = producer(kafka.proxy, options, topic)
        send(writer, 10)
        connections = counted.connections
        for _ in range(3):
            # A session ends by time alone.
            time.sleep(SESSION_MS / 1000)
            send(writer, 10)
        assert counted.connections == connections
        added = counted.requests - before
        assert added[SASL_HANDSHAKE] >= added[API_VERSIONS] + 3
    assert read(kafka.proxy, login("SCRAM-SHA-512"), topic) == 80


def test_a_scan_outlives_its_sessions(kafka: SecuredKafka, counted: Counted, topic: str) -> None:
    create(kafka, topic)
    send(producer(kafka.plain, {}, topic), 40_000)
    found = pyrklog.scan(
        topic,
        columns=["value"],
        bootstrap_servers=kafka.proxy,
        security=login("SCRAM-SHA-256"),
        memory_bytes=16 << 20,
        threads=1,
    )
    rows = 0
    for batch in found:
        rows += pa.record_batch(batch).num_rows
        # A third of a session, while there is more to fetch than the scan's memory holds.
        time.sleep(SESSION_MS / 3000 if rows < 12_000 else 0)
    assert rows == 40_000
    assert counted.authentications > counted.connections


def test_a_name_that_is_withdrawn_ends_with_its_session(
    kafka: SecuredKafka, counted: Counted, topic: str
) -> None:
    create(kafka, topic)
    kafka.add_user("bob", "builder")
    writer = producer(kafka.proxy, login("SCRAM-SHA-512", "builder", "bob"), topic)
    send(writer, 10)
    kafka.remove_user("bob", ScramMechanism.SCRAM_SHA_512)
    # A session ends by time alone.
    time.sleep(SESSION_MS / 1000)
    before = counted.authentications
    with pytest.raises(ProducerAuthenticationError, match="refuses sasl") as caught:
        send(writer, 10)
    assert "builder" not in str(caught.value)
    assert counted.authentications == before + 1
