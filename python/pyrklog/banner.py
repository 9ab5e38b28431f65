"""What a person sees when the broker starts on a terminal."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from pyrklog import __version__
from pyrklog.config.listeners import Endpoint


def seconds_since_exec() -> float:
    """How long ago this process began, to a hundredth of a second (Linux)."""
    try:
        stat = Path("/proc/self/stat").read_text()
    except OSError:
        return time.process_time()
    # Field 22, counted behind the name, which may hold anything.
    started_ticks = int(stat.rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


ALONE = "single node · embedded metadata"


def banner(
    listeners: Sequence[Endpoint], log_dirs: Sequence[Path], seconds: float, place: str = ALONE
) -> str:
    """A few lines: where it listens, where the data lies, what to do first."""
    lines = [f"pyrklog {__version__} · {place}"]
    for endpoint in listeners:
        lines.append(f"kafka    {_address(endpoint, '*'):<22} any Kafka client")
    for directory in log_dirs:
        lines.append(f"data     {_short(directory)}  ({_free(directory)})")
    lines.append(f"ready in {seconds:.1f} s · Ctrl-C stops, twice at once")
    first = listeners[0]
    loopback = first.host in ("127.0.0.1", "localhost") and first.port == 9092
    target = "" if loopback else f" -b {_address(first, 'localhost')}"
    lines.append(f"try: echo hi | pyrklog produce{target} hello")
    return "\n".join(lines)


def _address(endpoint: Endpoint, everywhere: str) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host or everywhere
    return f"{host}:{endpoint.port}"


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _free(path: Path) -> str:
    try:
        size = float(shutil.disk_usage(path).free)
    except OSError as error:
        return error.strerror or "offline"
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit} free"
        size /= 1000
    return f"{size:.1f} TB free"
