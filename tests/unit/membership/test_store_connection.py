from pathlib import Path

import pytest

from pyrklog.config.load import load_config
from pyrklog.membership.store_connection import _address


def test_tls_files_are_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog does not run in the broker's start directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config = load_config(
        overrides=[
            "zookeeper.connect=localhost:2181",
            "zookeeper.ssl.client.enable=true",
            "zookeeper.ssl.truststore.location=certs/ca.pem",
            "zookeeper.ssl.keystore.location=~/own.pem",
        ]
    )
    tls = _address(config, "localhost:2181").tls
    assert tls is not None
    assert tls.ca == str(tmp_path / "certs/ca.pem")
    assert tls.certificate == tls.key == str(tmp_path / "home/own.pem")


def test_tls_without_files_uses_no_certificates() -> None:
    config = load_config(
        overrides=["zookeeper.connect=localhost:2181", "zookeeper.ssl.client.enable=true"]
    )
    tls = _address(config, "localhost:2181").tls
    assert tls is not None
    assert (tls.ca, tls.certificate) == (None, None)
