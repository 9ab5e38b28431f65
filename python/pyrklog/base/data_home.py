"""Where this user's data lies (the XDG Base Directory Specification)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def data_home(environment: Mapping[str, str]) -> Path:
    """``$XDG_DATA_HOME/pyrklog``; without that, or a relative one, ``~/.local/share/pyrklog``."""
    given = environment.get("XDG_DATA_HOME", "")
    home = Path(given) if given.startswith("/") else Path.home() / ".local" / "share"
    return home / "pyrklog"
