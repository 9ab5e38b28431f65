"""How fast the last plans of a cluster copied: what the next one is predicted by.

A file of this user for each cluster; it is a hint, so nothing fails without it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from pyrklog.balance.throttle import AUTO

FILE_BYTES_MAX = 4096
_PLAIN = "none"
"""Instead of a throttle."""


def remembered(cluster_id: str | None, throttle: str | None) -> int | None:
    """Bytes a second that the busiest broker copied in the last plan with such a throttle: none, or
    auto."""
    path = _path(cluster_id, os.environ)
    rate = _read(path).get(throttle or _PLAIN) if path is not None else None
    return rate if isinstance(rate, int) and rate > 0 else None


def remember(cluster_id: str | None, throttle: str | None, rate_bytes: int) -> None:
    """Keeps the rate of a plan; one with a throttle of its own tells nothing of the brokers."""
    path = _path(cluster_id, os.environ)
    if path is None or throttle not in (None, AUTO) or rate_bytes <= 0:
        return
    rates = {**_read(path), throttle or _PLAIN: rate_bytes}
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(rates))
        os.replace(new, path)
    except OSError:
        return


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _path(cluster_id: str | None, environ: Mapping[str, str]) -> Path | None:
    if cluster_id is None:
        return None
    home = environ.get("XDG_CACHE_HOME")
    if not home or not os.path.isabs(home):
        home = os.path.expanduser("~/.cache")
        if not os.path.isabs(home):
            return None
    digest = hashlib.sha256(cluster_id.encode()).hexdigest()[:32]
    return Path(home, "pyrklog", "copy-rates", f"{digest}.json")
