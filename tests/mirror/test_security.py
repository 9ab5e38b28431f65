"""``pyrklog mirror`` from and to Apache Kafka 3.9 with TLS and SASL."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, ScramMechanism

from pyrklog.cli.failures import Exit
from pyrklog.testing import TestBroker
from tests.support.groups import create_topic
from tests.support.mirroring import Pair, commit, fill, rows, values, wait_for_values
from tests.support.secured_kafka import (
    PASSWORD,
    SESSION_MS,
    SecuredKafka,
    login,
    secured_kafka,
    unsecured_token,
)
from tests.support.waiting import PATIENCE_S
from tests.support.watching_proxy import WatchingProxy

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(240)]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
REFUSED = "it refuses sasl.username and sasl.password"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("security")) as running:
        yield running


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with TestBroker(tmp_path_factory.mktemp("data")) as broker:
        yield broker.bootstrap


def words(side: str, options: Mapping[str, Any]) -> list[str]:
    """Each as ``--from-property`` or ``--to-property``."""
    return [
        word
        for name, value in options.items()
        for word in (f"--{side}-property", f"{name}={value}")
    ]


def java_file(folder: Path, kafka: SecuredKafka) -> Path:
    """As Java's tools are given it."""
    path = folder / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={kafka.certificates.ca}\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM} required username="alice" password="{PASSWORD}";\n'
    )
    return path


def shown_at(bootstrap: str, *topics: str) -> bytes:
    """Keys and values of all records."""
    found = [
        part or b""
        for topic in topics
        for some in rows(bootstrap, topic, ["key", "value"]).values()
        for row in some
        for part in (row["key"], row["value"])
    ]
    return b"\n".join(found)


def test_from_a_cluster_with_tls_and_scram(
    kafka: SecuredKafka, ours: str, topic: str, tmp_path: Path
) -> None:
    create_topic(kafka.plain, topic, 2)
    wanted = fill(kafka.plain, topic, 1000, partitions=2)
    commit(kafka.plain, topic, topic, {0: 300})
    file = java_file(tmp_path, kafka)
    pair = Pair(kafka.sasl, ours, topic, "--from-config", str(file))
    # In one transaction, so that offsets stay.
    said = pair.once("--topics", topic, "--groups", topic, "-v", "--commit", "30")
    assert values(ours, f"east.{topic}") == wanted
    pair.verified()
    assert [one["lag"] for one in pair.items("status", "--over", "0")] == [0, 0]
    admin = AdminClient({"bootstrap.servers": ours})
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)])[topic]
    (one,) = future.result(PATIENCE_S).topic_partitions
    assert (one.topic, one.offset) == (f"east.{topic}", 300)
    written = shown_at(
        ours,
        f"pyrklog-mirror.{topic}.state.internal",
        f"pyrklog-mirror.{topic}.offsets.internal",
    )
    assert b'"partition"' in written
    assert PASSWORD not in written.decode() + said


def certificate(kafka: SecuredKafka) -> tuple[str, dict[str, Any]]:
    options = kafka.tls_options() | {"ssl.keystore.location": str(kafka.certificates.client)}
    return kafka.mutual, options


def password(kafka: SecuredKafka) -> tuple[str, dict[str, Any]]:
    return kafka.sasl, kafka.sasl_options("PLAIN")


def tokens(kafka: SecuredKafka) -> tuple[str, dict[str, Any]]:
    source = {"sasl.oauthbearer.callable": "tests.support.secured_kafka:give_token"}
    options = kafka.tls_options("SASL_SSL") | {"sasl.mechanism": "OAUTHBEARER"} | source
    return kafka.sasl, options


@pytest.mark.parametrize("way", [certificate, password, tokens], ids=lambda one: one.__name__)
@pytest.mark.parametrize("side", ["from", "to"])
def test_each_way_to_be_let_in_is_taken_on_either_side(
    kafka: SecuredKafka, ours: str, topic: str, way: Any, side: str
) -> None:
    secured, options = way(kafka)
    source, target = (kafka.plain, ours) if side == "from" else (ours, kafka.plain)
    create_topic(source, topic, 2)
    wanted = fill(source, topic, 500, partitions=2)
    places = (secured, ours) if side == "from" else (ours, secured)
    pair = Pair(*places, topic, *words(side, options))
    pair.once("--topics", topic, "--groups", topic)
    assert values(target, f"east.{topic}") == wanted
    pair.verified()


def refusals(pair: Pair, topic: str, code: Exit) -> list[str]:
    """Of each command."""
    commands = (["run", "--topics", topic], ["status", "--over", "0"], ["verify"])
    return [pair.run(*command, code=code).stderr for command in commands]


@pytest.mark.parametrize("side", ["from", "to"])
def test_who_is_not_let_in_is_told_at_once(
    kafka: SecuredKafka, ours: str, topic: str, side: str, tmp_path: Path
) -> None:
    stranger = {"ssl.keystore.location": str(kafka.certificates.stranger)}
    late = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": unsecured_token(-30)[0]}
    other = {"ssl.ca.location": str(kafka.certificates.other_ca)}
    missing = {"ssl.ca.location": str(tmp_path / "none.pem")}
    for address, options, told, code in (
        (kafka.sasl, kafka.sasl_options("SCRAM-SHA-512", "hush"), REFUSED, Exit.DENIED),
        (kafka.sasl, kafka.sasl_options("PLAIN", "hush"), REFUSED, Exit.DENIED),
        (kafka.sasl, kafka.tls_options("SASL_SSL") | late, "refuses the token", Exit.DENIED),
        (kafka.tls, kafka.tls_options() | other, "not trusted: none of", Exit.DENIED),
        (kafka.mutual, kafka.tls_options() | stranger, "refuses this client's", Exit.DENIED),
        (kafka.tls, kafka.tls_options() | missing, "cannot be read", Exit.USAGE),
    ):
        places = (address, ours) if side == "from" else (ours, address)
        for line in refusals(Pair(*places, topic, *words(side, options)), topic, code):
            alias = "east" if side == "from" else "west"
            number = "33" if code is Exit.DENIED else "82"
            assert line.startswith(f"error[PK{number}]: {alias} ({address}): ")
            assert told in line
            assert line.count("\n") == 1
            for secret in ("sasl.password", "sasl.oauthbearer.token"):
                assert secret not in options or options[secret] not in line


@contextmanager
def sessions(kafka: SecuredKafka) -> Iterator[None]:
    """Clients of the listener that ends sessions come by a proxy."""
    port = int(kafka.proxy.rpartition(":")[2])
    with WatchingProxy(kafka.sessions, port, lambda _: None, early=True):
        yield


def test_a_mirror_outlives_sessions_and_ends_when_its_name_is_taken_away(
    kafka: SecuredKafka, ours: str, topic: str
) -> None:
    create_topic(kafka.plain, topic, 1)
    kafka.add_user(topic, "hush")
    options = login("SCRAM-SHA-512", "hush", topic)
    pair = Pair(kafka.proxy, ours, topic, *words("from", options))
    with sessions(kafka), pair.start("--topics", topic, "--interval", "0.2") as running:
        try:
            wanted = fill(kafka.plain, topic, 1, partitions=1)
            until = time.monotonic() + 3 * SESSION_MS / 1000
            while time.monotonic() < until:
                wait_for_values(ours, f"east.{topic}", wanted)
                first = wanted.total()
                wanted += fill(kafka.plain, topic, 1, first=first, partitions=1)
            wait_for_values(ours, f"east.{topic}", wanted)
            assert running.poll() is None
            kafka.remove_user(topic, ScramMechanism.SCRAM_SHA_512)
            told = running.communicate(timeout=PATIENCE_S)[1]
        finally:
            running.kill()
    assert running.returncode == Exit.DENIED, told
    assert REFUSED in told
    assert "hush" not in told
