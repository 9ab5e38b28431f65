"""Programs that tell the lag of consumer groups, for ``make test-lag``.

``python -m ci.lag_tools FOLDER NAME...`` leaves them below FOLDER, and installs nothing:

- ``burrow``: Debian's package, unpacked in FOLDER/burrow. Without apt it must be on the PATH.
- ``kafka_exporter``: the one on the PATH, or by ``go install``, in the version of go-tools.txt, in
  FOLDER/go-tools.

Exits with 1 and a sentence if one cannot be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ci.debian_tools import MissingToolError, fetch, has_apt

VERSIONS = Path(__file__).with_name("go-tools.txt")
_GO_PLACE = Path("/usr/local/go/bin/go")
"""Where Go's own archive is unpacked, which does not put it on the PATH."""


def burrow(folder: Path) -> None:
    """Raises :class:`MissingToolError`."""
    if not has_apt():
        if shutil.which("Burrow") is None:
            raise MissingToolError(
                "Burrow is not on the PATH, and without apt-get this does not get it: build it by "
                "its own instructions (github.com/linkedin/Burrow)"
            )
        return
    place = folder / "burrow"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    fetch(place, ["burrow"])


def kafka_exporter(folder: Path) -> None:
    """Raises :class:`MissingToolError`."""
    if shutil.which("kafka_exporter") is not None:
        return
    go = shutil.which("go") or (str(_GO_PLACE) if _GO_PLACE.exists() else None)
    if go is None:
        raise MissingToolError(
            f"go is not on the PATH and not in {_GO_PLACE.parent}: kafka_exporter is built with Go "
            "(go.dev/dl)"
        )
    place = folder.resolve() / "go-tools"
    place.mkdir(parents=True, exist_ok=True)
    hint = f"the Go module proxy must have {version('kafka_exporter')}"
    _run([go, "install", version("kafka_exporter")], place, hint, GOBIN=str(place))


def version(name: str) -> str:
    """``MODULE@VERSION`` of go-tools.txt."""
    lines = [line for line in VERSIONS.read_text().splitlines() if not line.startswith("#")]
    [found] = [line for line in lines if line.partition("@")[0].endswith(f"/{name}")]
    return found


def _run(command: Sequence[str], folder: Path, hint: str, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        told = " ".join((done.stderr or done.stdout).split())
        raise MissingToolError(f"{' '.join(command)} failed: {told}; {hint}")


TOOLS = {"burrow": burrow, "kafka_exporter": kafka_exporter}


def main(arguments: Sequence[str]) -> None:
    folder, *names = arguments
    unknown = [name for name in names if name not in TOOLS]
    if unknown or not names:
        sys.exit(f"LAG_TOOLS names some of {', '.join(TOOLS)}, not {' '.join(unknown) or 'none'}")
    try:
        for name in names:
            TOOLS[name](Path(folder))
    except MissingToolError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
