"""How a cluster is reached: TLS and SASL of every client, and failures before one waits."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from pyrklog.mirror import Cluster, Kind, MirrorError, Names, Options, Patterns, Policy
from pyrklog.mirror.cluster import ClusterAdmin, refusal
from pyrklog.mirror.copy import producer_settings
from pyrklog.mirror.errors import AwayError
from pyrklog.mirror.transaction_size import TransactionSize
from pyrklog.security import Security, security_of

SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": "wonder",
}
NAMES = Names("east", "west", Policy.PREFIX, "east")


def tls_admin(ca: Path, bootstrap: str = "127.0.0.1:1") -> ClusterAdmin:
    security = security_of({"security.protocol": "SSL", "ssl.ca.location": str(ca)})
    return ClusterAdmin(Cluster("east", bootstrap, security), 5)


def test_scan_and_producer_get_the_clusters_security() -> None:
    cluster = Cluster("east", "h:1", security_of(SASL))
    assert ClusterAdmin(cluster, 1).reading()["security"] == cluster.security
    assert producer_settings(NAMES, cluster, "none", TransactionSize()).security == cluster.security
    assert Cluster("east", "h:1").security == Security()


def test_what_is_asked_for_shows_no_password() -> None:
    cluster = Cluster("east", "h:1", security_of(SASL))
    topics = Patterns(["t"], "--topics")
    asked = Options(cluster, cluster, NAMES, topics, topics)
    shown = repr((asked, producer_settings(NAMES, cluster, "none", TransactionSize())))
    assert "alice" in shown
    assert "wonder" not in shown


def test_a_file_that_is_missing_is_the_users_mistake(tmp_path: Path) -> None:
    admin = tls_admin(tmp_path / "none.pem")
    for asked in (admin.check_access, admin.topics):
        with pytest.raises(
            MirrorError, match=r"east .* ssl\.ca\.location .* No such file"
        ) as failed:
            asked()
        assert failed.value.kind is Kind.USAGE


def test_certificates_that_are_none_are_the_users_mistake(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(MirrorError, match=r"ssl\.ca.location") as failed:
        tls_admin(path).check_access()
    assert failed.value.kind is Kind.USAGE


def test_a_cluster_that_is_away_lets_in() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        ClusterAdmin(Cluster("east", address, security_of(SASL)), 5).check_access()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._AUTHENTICATION, Kind.DENIED),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Kind.DENIED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Kind.DENIED),
        (KafkaError._ALL_BROKERS_DOWN, Kind.UNREACHABLE),
        (KafkaError.INVALID_REPLICATION_FACTOR, Kind.FAILED),
    ],
)
def test_kinds_of_refusals(code: int, kind: Kind) -> None:
    found = refusal(KafkaError(code, "so"), "topic t")
    assert (found.kind, found.what) == (kind, "topic t: so")
    assert isinstance(found, AwayError) == (kind is Kind.UNREACHABLE)
