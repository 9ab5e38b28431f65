"""Programs of Debian's packages, unpacked below a folder rather than installed.

``python ci/debian_tools.py FOLDER [PACKAGE...]`` leaves there the packages, each with a program of
its name, and the libraries of theirs that this system lacks. It needs no root, and reads lists of
its own. By default it is what `tests/service` runs: Prometheus, and bindfs, a file system that can
hang or fail. Without apt the programs must be on the PATH; else it exits with 1 and says what is
missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGES = ("prometheus", "bindfs")
_LIBRARY = re.compile(r"lib(?!c6|gcc)\S+")
_NEEDED = ("apt-get", "apt-cache", "dpkg-deb", "dpkg-query")
_WEAK = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


class MissingToolError(Exception):
    """The message says which program is missing, and how to get it."""


class Apt:
    """Debian's packages, by lists that lie below ``folder``: the system's may be missing or old."""

    def __init__(self, folder: Path) -> None:
        """Raises :class:`MissingToolError`."""
        self._folder = folder
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        self._own = [
            f"-oDir::State={folder / 'state'}",
            f"-oDir::Cache={folder / 'cache'}",
            "-oDir::State::status=/var/lib/dpkg/status",
            # As root it would read and write as a user that does not own the folder.
            "-oAPT::Sandbox::User=root",
        ]
        done = self._run("apt-get", "update", "-qq")
        if done.returncode:
            raise MissingToolError(f"apt-get update failed: {done.stderr.strip()}")

    def libraries(self, package: str) -> list[str]:
        """All that the package stands on and that is not installed."""
        without = [f"--no-{kind}" for kind in _WEAK]
        listed = self._run("apt-cache", "depends", "--recurse", *without, package).stdout
        found = sorted({line for line in listed.splitlines() if _LIBRARY.match(line)})
        return [name for name in found if not _is_installed(name)]

    def unpack(self, package: str, place: Path) -> None:
        """Raises :class:`MissingToolError`."""
        done = self._run("apt-get", "download", "-qq", package)
        if done.returncode:
            raise MissingToolError(f"apt-get has no {package}: {done.stderr.strip()}")
        (archive,) = self._folder.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, place], check=True)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *self._own, *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )


def fetch(folder: Path, packages: Sequence[str] = PACKAGES) -> None:
    """Raises :class:`MissingToolError`."""
    if not has_apt():
        missing = [name for name in packages if shutil.which(name) is None]
        if missing:
            raise MissingToolError(
                f"{' and '.join(missing)} not found: without apt-get, put "
                f"{'them' if len(missing) > 1 else 'it'} on the PATH"
            )
        return
    with tempfile.TemporaryDirectory() as there:
        apt = Apt(Path(there))
        for package in packages:
            for name in (package, *apt.libraries(package)):
                apt.unpack(name, folder)


def has_apt() -> bool:
    return all(map(shutil.which, _NEEDED))


def _is_installed(package: str) -> bool:
    asked = ["dpkg-query", "-W", "-f", "${db:Status-Status}", package]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout == "installed"


def program(folder: Path, name: str) -> Path:
    """The unpacked one, or that of the PATH. Raises :class:`MissingToolError`."""
    unpacked = folder / "usr" / "bin" / name
    found = unpacked if unpacked.exists() else shutil.which(name)
    if found is None:
        raise MissingToolError(f"{name} is not there: `make test-alerts` gets it")
    return Path(found)


def library_path(folder: Path) -> str:
    """For ``LD_LIBRARY_PATH``."""
    return ":".join(map(str, _library_folders(folder)))


def _library_folders(folder: Path) -> Iterator[Path]:
    for top in ("lib", "usr/lib"):
        yield from sorted({one.parent for one in (folder / top).glob("*/lib*.so.*")})


def main() -> None:
    folder, *packages = sys.argv[1:]
    try:
        fetch(Path(folder), packages or PACKAGES)
    except MissingToolError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
