"""Brokers that ZooKeeper knows, by TLS and by a digest, among clients that it does not."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from pyrklog.metastore.zookeeper_handler import Handler
from pyrklog.metastore.zookeeper_tls import TlsFiles, tls_context
from pyrklog.testing.broker import BrokerExited
from tests.support.certificates import Certificates, make_certificates
from tests.support.cluster import BrokerCluster
from tests.support.cluster_clients import consume, create, produce
from tests.support.waiting import wait_until
from tests.support.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.jvm

DIGEST: dict[str, Any] = {"pyrklog.zookeeper.digest": "brokers:secret", "zookeeper.set.acl": True}
EX_TEMPORARY, EX_CONFIG = 75, 78
SECRET = ("/config/brokers", "/config/users")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("secure"), certificates)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def stranger(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client without credentials, at the plain port."""
    client = KazooClient(zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


def by_tls(certificates: Certificates, **changed: str) -> dict[str, Any]:
    """A broker's options; ``changed`` has ca and client."""
    return {
        "zookeeper.ssl.client.enable": True,
        "zookeeper.ssl.truststore.location": changed.get("ca", str(certificates.ca)),
        "zookeeper.ssl.keystore.location": changed.get("client", str(certificates.client)),
    }


def below(client: KazooClient, path: str) -> Iterator[str]:
    """A node and all below it that the client may list."""
    yield path
    if path.endswith(SECRET):
        return
    for name in client.get_children(path):
        yield from below(client, f"{path}/{name}")


def may_nothing(client: KazooClient, path: str) -> bool:
    """Whether the client is refused every change of a node, of its ACL and below it."""
    data = client.get(path)[0]
    attempts: list[Callable[[], object]] = [
        lambda: client.set(path, data),
        lambda: client.create(f"{path}/intruder", b""),
        lambda: client.set_acls(path, client.get_acls(path)[0]),
    ]
    for attempt in attempts:
        try:
            attempt()
        except NoAuthError:
            continue
        return False
    return True


def test_cluster_with_acls_owns_its_znodes(
    zookeeper: ZooKeeperServer, stranger: KazooClient, tmp_path: Path, topic: str
) -> None:
    """Others read all but secrets, and change nothing."""
    chroot = f"/{topic}"
    cluster = BrokerCluster(f"{zookeeper.address}{chroot}", tmp_path, count=2, **DIGEST)
    try:
        cluster.start()
        create(cluster, topic, 2, 2)
        produce(cluster, topic, 2, [b"v"])
        assert consume(cluster, topic, 2, "g") == [b"v"] * 2
        nodes = list(below(stranger, chroot))
        for name in (
            "/brokers/ids/1",
            "/controller",
            f"/brokers/topics/{topic}/partitions/0/state",
        ):
            assert f"{chroot}{name}" in nodes
        open_to_all = [
            path for path in nodes if not path.endswith(SECRET) and not may_nothing(stranger, path)
        ]
        assert open_to_all == []
        with pytest.raises(NoAuthError):
            stranger.delete(f"{chroot}/brokers/ids/1")
        for path in SECRET:
            with pytest.raises(NoAuthError):
                stranger.get_children(f"{chroot}{path}")
        other = BrokerCluster(
            f"{zookeeper.address}{chroot}",
            tmp_path / "other",
            count=3,
            **{**DIGEST, "pyrklog.zookeeper.digest": "brokers:guessed"},
        ).brokers[3]
        refused = pytest.raises(BrokerExited, match="ZooKeeper refuses access")
        with closing(other), refused as ended:
            other.start()
        assert "Traceback" not in str(ended.value)
    finally:
        cluster.close()


def test_a_cluster_by_tls(
    zookeeper: ZooKeeperServer,
    stranger: KazooClient,
    certificates: Certificates,
    tmp_path: Path,
    topic: str,
) -> None:
    """A certificate is enough for ACLs. The watchdog, by TLS too, ends a killed broker's session:
    sessions last ten minutes here."""
    chroot = f"/{topic}"
    options: dict[str, Any] = by_tls(certificates) | {
        "zookeeper.set.acl": True,
        "zookeeper.session.timeout.ms": 600_000,
        "pyrklog.failover.suspicion": False,
    }
    cluster = BrokerCluster(f"{zookeeper.secure_address}{chroot}", tmp_path, count=2, **options)
    try:
        cluster.start()
        create(cluster, topic, 300, 2)
        produce(cluster, topic, 2, [b"v"])
        assert may_nothing(stranger, f"{chroot}/brokers/topics/{topic}")
        (acl, _) = stranger.get_acls(f"{chroot}/brokers/ids/1")
        assert {one.id.scheme for one in acl} == {"x509", "world"}
        ids = f"{chroot}/brokers/ids"
        cluster.brokers[1].kill()
        wait_until(lambda: stranger.get_children(ids) == ["2"], "its session does not end")
        cluster.brokers[1].start()
        assert sorted(stranger.get_children(ids)) == ["1", "2"]
        assert consume(cluster, topic, 2, "g") == [b"v"] * 2
    finally:
        cluster.close()


def test_mismatched_tls_settings_are_explained(
    zookeeper: ZooKeeperServer,
    certificates: Certificates,
    tmp_path: Path,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Untrusted server, unknown client, a plain port, a missing file."""
    # The machine's trusted CAs do not count.
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    # The first handshakes of a virtual machine take seconds where it has little of a processor.
    waits: dict[str, Any] = {"zookeeper.connection.timeout.ms": 6_000}
    secure, missing = zookeeper.secure_address, str(tmp_path / "missing.pem")
    alone = by_tls(certificates)
    del alone["zookeeper.ssl.keystore.location"]
    cases: list[tuple[str, dict[str, Any], int, str]] = [
        (
            secure,
            by_tls(certificates, ca=str(certificates.other_ca)),
            EX_TEMPORARY,
            "No TLS with ZooKeeper.*CERTIFICATE_VERIFY_FAILED",
        ),
        (secure, alone, EX_TEMPORARY, "No TLS with ZooKeeper.*CERTIFICATE"),
        (zookeeper.address, by_tls(certificates), EX_TEMPORARY, "ZooKeeper"),
        (secure, by_tls(certificates, ca=missing), EX_CONFIG, "truststore.location: .*missing.pem"),
        (
            secure,
            by_tls(certificates, client=str(certificates.ca)),
            EX_CONFIG,
            "keystore.location: .*is no PEM file",
        ),
    ]
    for number, (address, options, code, words) in enumerate(cases):
        place = f"{address}/{topic}-{number}"
        one = BrokerCluster(place, tmp_path / str(number), count=1, **options, **waits)
        with closing(one), pytest.raises(BrokerExited, match=words) as ended:
            one.start()
        assert f"exit code {code}" in str(ended.value)
        assert "Traceback" not in str(ended.value)


def test_answers_in_one_record_are_not_left_waiting(certificates: Certificates) -> None:
    """TLS returns the first and holds the second, which the socket does not show."""
    ca, pem = str(certificates.ca), str(certificates.server)
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(pem)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with server_context.wrap_socket(theirs, server_side=True) as connection:
            connection.sendall(b"firstsecond")
            connection.recv(1)

    server = threading.Thread(target=serve)
    server.start()
    context = tls_context(TlsFiles(ca, None, None, None, verifies_host=True))
    with context.wrap_socket(ours, server_hostname="127.0.0.1") as client:
        assert client.recv(5) == b"first"
        readable, _, _ = Handler().select([client], [], [], 0.0)
        assert readable == [client]
        assert client.recv(6) == b"second"
        assert Handler().select([client], [], [], 0.0)[0] == []
    server.join()


def test_unanswered_tls_handshake_leaves_time_for_another(
    certificates: Certificates,
) -> None:
    """A starting ZooKeeper may do so; kazoo's own bound is the whole session."""
    handler = Handler(TlsFiles(str(certificates.ca), None, None, None, verifies_host=True))
    handler.answer_wait_seconds = 0.1
    ended: list[type[Exception]] = []
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = mute.getsockname()

        def connect() -> None:
            try:
                handler.create_connection(address=address, hostname="127.0.0.1", timeout=3600.0)
            except Exception as error:
                ended.append(type(error))

        trying = threading.Thread(target=connect, daemon=True)
        trying.start()
        trying.join(30)
        assert ended == [TimeoutError], "it goes on waiting, or failed for another reason"
