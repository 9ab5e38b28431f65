"""Certificates for tests of TLS, made by the JDK that the tests need anyway."""

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support import jvm

_PASSWORD = "secret"
_FLAGS = [f"-J{flag}" for flag in jvm.FLAGS]


class Certificates(NamedTuple):
    """PEM files: what to trust, and keys with their certificates."""

    ca: Path
    server: Path
    """For 127.0.0.1."""
    client: Path
    other_ca: Path
    """A CA that signed none of them."""
    stranger: Path
    """A client that the other CA signed."""


def make_certificates(folder: Path) -> Certificates:
    store = folder / "all.p12"
    _make(store, "ca", "-ext", "bc:c")
    _make(store, "other", "-ext", "bc:c")
    _make(store, "server", "-signer", "ca", "-ext", "san=ip:127.0.0.1")
    _make(store, "client", "-signer", "ca")
    _make(store, "stranger", "-signer", "other")
    program = Path(__file__).with_name("Certificates.java")
    jvm.run(str(program), str(store), _PASSWORD, str(folder))
    return Certificates(
        ca=folder / "ca-ca.pem",
        server=folder / "server.pem",
        client=folder / "client.pem",
        other_ca=folder / "other-ca.pem",
        stranger=folder / "stranger.pem",
    )


def _make(store: Path, name: str, *arguments: str) -> None:
    keytool = Path(jvm.java()).with_name("keytool")
    subprocess.run(
        [
            *[
                str(keytool),
                *_FLAGS,
                "-genkeypair",
                "-keystore",
                str(store),
                "-storepass",
                _PASSWORD,
            ],
            *["-storetype", "PKCS12", "-keyalg", "EC", "-groupname", "secp256r1"],
            *["-alias", name, "-dname", f"CN={name}", "-validity", "3650", *arguments],
        ],
        check=True,
        capture_output=True,
    )
