"""Programs of Debian's packages, unpacked below a folder rather than installed.

``python ci/debian_tools.py FOLDER`` leaves there what `tests/service` runs: Prometheus, and bindfs,
a file system that can hang or fail. Without apt the programs must be on the PATH; else it exits
with 1 and says what is missing.
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
"""Each has a program of its own name."""
_LIBRARY = re.compile(r"^libfuse\S*")
_NEEDED = ("apt-get", "dpkg-deb")


class MissingToolError(Exception):
    """The message says which program is missing, and how to get it."""


def libraries(depends: str) -> list[str]:
    """Packages of libfuse in a ``Depends`` field: the only library that a system may lack."""
    alternatives = (one.strip() for part in depends.split(",") for one in part.split("|")[:1])
    return [found[0] for one in alternatives if (found := _LIBRARY.match(one))]


def fetch(folder: Path) -> None:
    """Raises :class:`MissingToolError`."""
    if not has_apt():
        missing = [name for name in PACKAGES if shutil.which(name) is None]
        if missing:
            raise MissingToolError(
                f"{' and '.join(missing)} not found: without apt-get, put them on the PATH "
                "(prometheus.io/download, bindfs.org)"
            )
        return
    with tempfile.TemporaryDirectory() as there:
        downloads = Path(there)
        unpack(downloads, PACKAGES, folder)
        (bindfs,) = downloads.glob("bindfs_*.deb")
        depends = _output("dpkg-deb", "-f", str(bindfs), "Depends")
        unpack(downloads, libraries(depends), folder)


def has_apt() -> bool:
    return all(map(shutil.which, _NEEDED))


def unpack(downloads: Path, packages: Sequence[str], folder: Path) -> None:
    """Raises :class:`MissingToolError`."""
    for package in packages:
        done = subprocess.run(
            ["apt-get", "download", "-qq", package],
            cwd=downloads,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MissingToolError(
                f"apt-get has no {package}: {done.stderr.strip()}; `apt-get update` may help"
            )
        (archive,) = downloads.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


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
    try:
        fetch(Path(sys.argv[1]))
    except MissingToolError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
