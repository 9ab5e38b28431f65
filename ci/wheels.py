"""Wheels for every system that has one, for ``make wheels``; zig compiles and links for the others.

``python -m ci.wheels FOLDER [TARGET...]`` leaves in FOLDER a wheel for each of the targets, by
default of all of ``TARGETS``. A target that cannot be built here is told with what it lacks; the
others are built all the same. Exits with 1 if any of those asked for is missing at the end.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """What Rust calls a system, and the tag of wheels for it."""

    triple: str
    compatibility: str

    @property
    def tag(self) -> str:
        """The last part of the wheel's name."""
        return f"{self.compatibility}_{self.triple.partition('-')[0]}"


# Linux distributions of 2018 and later. confluent-kafka, which pyrklog needs, has no wheels for
# older ones.
_GLIBC = "manylinux_2_28"
_MUSL = "musllinux_1_2"

TARGETS = {
    "x86_64-gnu": Target("x86_64-unknown-linux-gnu", _GLIBC),
    "aarch64-gnu": Target("aarch64-unknown-linux-gnu", _GLIBC),
    "x86_64-musl": Target("x86_64-unknown-linux-musl", _MUSL),
    "aarch64-musl": Target("aarch64-unknown-linux-musl", _MUSL),
}


class WheelError(Exception):
    """The message says why there is no wheel, and what helps."""


def build(folder: Path, target: Target, environment: Mapping[str, str] = os.environ) -> Path:
    """Builds the wheel of a target. Raises :class:`WheelError`."""
    _check_tools()
    _check_standard_library(target, environment)
    for old in _wheels(folder, target):
        old.unlink()
    command = [
        sys.executable,
        *("-m", "maturin", "build", "--release", "--locked", "--quiet", "--zig"),
        *("--target", target.triple, "--compatibility", target.compatibility),
        *("--out", str(folder)),
    ]
    # maturin looks for a python3 with zig on the PATH.
    path = f"{Path(sys.executable).parent}:{environment.get('PATH', '')}"
    done = subprocess.run(command, env={**environment, "PATH": path}, check=False)
    if done.returncode:
        raise WheelError("the build failed, as told above")
    match _wheels(folder, target):
        case [wheel]:
            return wheel
        case wheels:
            # maturin reads the symbols, and names the wheel for what it runs on.
            found = ", ".join(wheel.name for wheel in wheels) or "none"
            raise WheelError(f"one wheel for {target.tag} was expected, there is: {found}")


def _wheels(folder: Path, target: Target) -> list[Path]:
    return sorted(folder.glob(f"*{target.tag}*.whl"))


def _check_tools() -> None:
    if shutil.which("rustc") is None:
        raise WheelError("rustc is not on the PATH: install Rust from https://rustup.rs")
    for module, package in (("maturin", "maturin"), ("ziglang", "ziglang")):
        if importlib.util.find_spec(module) is None:
            raise WheelError(f"{sys.executable} lacks {module}: pip install {package}")


def _check_standard_library(target: Target, environment: Mapping[str, str]) -> None:
    """Rust's, for the target; cargo builds it itself where it is told to."""
    if environment.get("CARGO_UNSTABLE_BUILD_STD"):
        return
    command = ["rustc", "--print", "target-libdir", "--target", target.triple]
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = " ".join(done.stderr.split())
        raise WheelError(f"rustc does not know {target.triple}: {told}")
    if not any(Path(done.stdout.strip()).glob("libstd-*.rlib")):
        raise WheelError(
            f"Rust's standard library for {target.triple} is missing: "
            f"rustup target add {target.triple}"
        )


def main(arguments: Sequence[str], make: Callable[[Path, Target], Path] = build) -> int:
    parser = argparse.ArgumentParser(prog="python -m ci.wheels")
    parser.add_argument("folder", type=Path)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no target: {' '.join(unknown)}; there are {' '.join(TARGETS)}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    names = asked.targets or list(TARGETS)
    missing = 0
    for name in names:
        try:
            wheel = make(asked.folder, TARGETS[name])
        except WheelError as error:
            missing += 1
            print(f"{name}: not built: {error}", file=sys.stderr, flush=True)
        else:
            print(f"{name}: {wheel}", flush=True)
    if missing:
        print(f"{missing} of {len(names)} wheels were not built", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
