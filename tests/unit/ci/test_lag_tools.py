"""`make test-lag` says which program it lacks, and where it comes from."""

from pathlib import Path

import pytest

from ci import lag_tools
from ci.debian_tools import MissingToolError


def test_without_go_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(lag_tools, "_GO_PLACE", tmp_path / "bin" / "go")
    with pytest.raises(MissingToolError, match=r"go is not on the PATH and not in .*go.dev/dl"):
        lag_tools.kafka_exporter(tmp_path)


def test_a_go_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho "$1 $2 to $GOBIN: no such module" >&2\nexit 1\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    wanted = lag_tools.version("kafka_exporter")
    with pytest.raises(MissingToolError, match="no such module") as caught:
        lag_tools.kafka_exporter(tmp_path / "cache")
    assert f"install {wanted} to {tmp_path / 'cache' / 'go-tools'}" in str(caught.value)


def test_a_kafka_exporter_on_the_path_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kafka_exporter").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(lag_tools, "_GO_PLACE", tmp_path / "bin" / "go")
    lag_tools.kafka_exporter(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_without_apt_burrow_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="Burrow is not on the PATH"):
        lag_tools.burrow(tmp_path)
    (tmp_path / "Burrow").touch(0o755)
    lag_tools.burrow(tmp_path)
    assert not (tmp_path / "burrow").exists()


@pytest.mark.parametrize(("names", "told"), [([], "not none"), (["burow"], "not burow")])
def test_other_names_are_refused(names: list[str], told: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=told):
        lag_tools.main([str(tmp_path), *names])


def test_a_go_module_has_a_version() -> None:
    module, at, version = lag_tools.version("kafka_exporter").partition("@")
    assert module.endswith("/kafka_exporter")
    assert (at, version[:1]) == ("@", "v")
