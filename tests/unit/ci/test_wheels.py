"""`make wheels` says which wheel it could not build and why, and fails then."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from ci import wheels
from ci.wheels import TARGETS, Target, WheelError

MUSL = TARGETS["aarch64-musl"]


@pytest.fixture
def rustc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A rustc that says where the standard library is; it is in no such folder yet."""
    place = tmp_path / "bin"
    place.mkdir()
    libraries = tmp_path / "lib"
    program = place / "rustc"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *vax*) echo "no vax" >&2; exit 1;; esac\necho {libraries}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object())
    return libraries


@pytest.fixture
def maturin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python that leaves what it was given in a file, and a wheel of the name in $WHEEL."""
    told = tmp_path / "told"
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\necho "$*" > {told}\n[ -n "$WHEEL" ] || exit 1\n'
        'while [ "$1" != --out ]; do shift; done\ntouch "$2/$WHEEL"\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return told


def test_a_missing_standard_library_is_told_with_its_remedy(rustc: Path, tmp_path: Path) -> None:
    needed = "standard library for aarch64-unknown-linux-musl is missing: rustup target add aarch64"
    with pytest.raises(WheelError, match=needed):
        wheels.build(tmp_path, MUSL)
    rustc.mkdir()
    (rustc / "libcore-12.rlib").touch()
    with pytest.raises(WheelError, match=needed):
        wheels.build(tmp_path, MUSL)


def test_an_unknown_system_is_told(rustc: Path, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="rustc does not know vax-dec-linux: no vax"):
        wheels.build(tmp_path, Target("vax-dec-linux", "manylinux_2_28"))


@pytest.mark.parametrize("has_library", [True, False])
def test_a_wheel_is_built_with_zig(
    has_library: bool, rustc: Path, maturin: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "WHEEL": "pyrklog-1-cp311-abi3-musllinux_1_2_aarch64.whl"}
    if has_library:
        rustc.mkdir()
        (rustc / "libstd-12.rlib").touch()
    else:  # cargo builds it
        environment["CARGO_UNSTABLE_BUILD_STD"] = "std,panic_abort"
    (tmp_path / "pyrklog-0-cp311-abi3-musllinux_1_2_aarch64.whl").touch()
    built = wheels.build(tmp_path, MUSL, environment)
    assert list(tmp_path.glob("*.whl")) == [built], "the earlier one is gone"
    told = maturin.read_text()
    assert "--zig --target aarch64-unknown-linux-musl --compatibility musllinux_1_2" in told
    assert "--release --locked" in told


@pytest.mark.parametrize(
    ("wheel", "why"),
    [
        ("", "the build failed"),
        ("pyrklog-1-cp311-abi3-linux_aarch64.whl", "one wheel for musllinux_1_2_aarch64 was expe"),
    ],
)
def test_a_build_without_its_wheel_is_told(
    wheel: str, why: str, rustc: Path, maturin: Path, tmp_path: Path
) -> None:
    rustc.mkdir()
    (rustc / "libstd-12.rlib").touch()
    with pytest.raises(WheelError, match=why):
        wheels.build(tmp_path, MUSL, {**os.environ, "WHEEL": wheel})


@pytest.mark.parametrize("lacking", ["maturin", "ziglang"])
def test_a_missing_tool_is_told(
    lacking: str, rustc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"maturin": object(), "ziglang": object(), lacking: None}
    monkeypatch.setattr(importlib.util, "find_spec", found.get)
    with pytest.raises(WheelError, match=f"lacks {lacking}: pip install {lacking}"):
        wheels.build(tmp_path, MUSL)


def _make(folder: Path, target: Target) -> Path:
    if target.compatibility.startswith("musl"):
        raise WheelError("no musl")
    return folder / f"{target.tag}.whl"


def test_all_are_built_but_those_that_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wheels.main([str(tmp_path)], _make) == 1
    told = capsys.readouterr()
    assert told.out == (
        f"x86_64-gnu: {tmp_path}/manylinux_2_28_x86_64.whl\n"
        f"aarch64-gnu: {tmp_path}/manylinux_2_28_aarch64.whl\n"
    )
    assert told.err == (
        "x86_64-musl: not built: no musl\naarch64-musl: not built: no musl\n"
        "2 of 4 wheels were not built\n"
    )


def test_only_those_that_were_asked_for_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wheels.main([str(tmp_path), "aarch64-gnu"], _make) == 0
    assert wheels.main([str(tmp_path), "aarch64-gnu", "x86_64-musl"], _make) == 1
    assert "1 of 2 wheels" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        wheels.main([str(tmp_path), "vax"], _make)
    assert "no target: vax; there are x86_64-gnu aarch64-gnu" in capsys.readouterr().err
