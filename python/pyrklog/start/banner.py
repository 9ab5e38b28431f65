"""What a terminal shows when the broker starts."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pyrklog import __version__
from pyrklog.config.listeners import Endpoint


def seconds_since_exec() -> float:
    """The age of this process, to a hundredth of a second (Linux)."""
    try:
        stat = Path("/proc/self/stat").read_text()
    except OSError:
        return time.process_time()
    # Field 22, counted behind the name, which may have spaces.
    started_ticks = int(stat.rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


def own_command() -> str:
    """How to run this program again: ``pyrklog`` where PATH leads here, else a path."""
    program = Path(sys.argv[0])
    if program.name != "pyrklog":
        return "pyrklog"
    found = shutil.which("pyrklog")
    if found is not None and Path(found).resolve() == program.resolve():
        return "pyrklog"
    here = Path.cwd()
    program = program.absolute()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))


ALONE = "single node · embedded metadata"


def banner(
    listeners: Sequence[Endpoint],
    log_dirs: Sequence[Path],
    seconds: float,
    place: str = ALONE,
    cache_max_bytes: int = 0,
    http: tuple[str, int] | None = None,
) -> str:
    """A few lines: listeners, data, memory, and what to do first.

    `cache_max_bytes` is the cap of all block caches together, 0 without one; `http` is where HTTP
    is served.
    """
    lines = [f"pyrklog {__version__} · {place}"]
    for endpoint in listeners:
        lines.append(f"kafka    {_address(endpoint, '*'):<22} any Kafka client")
    if http is not None:
        address = f"http://{_address(Endpoint('', *http), '*')}"
        lines.append(f"http     {address:<22} /metrics /health/ready")
    for directory in log_dirs:
        lines.append(f"data     {_short(directory)}  ({_free(directory)})")
    if cache_max_bytes:
        cap = _size(cache_max_bytes)
        lines.append(f"memory   up to {cap} of cache, given back when others need it")
    lines.append(f"ready in {seconds:.1f} s · Ctrl-C stops, twice at once")
    first = listeners[0]
    loopback = first.host in ("127.0.0.1", "localhost") and first.port == 9092
    target = "" if loopback else f" -b {_address(first, 'localhost')}"
    lines.append(f"try: echo hi | {own_command()} produce{target} hello")
    return "\n".join(lines)


def printable(text: str, encoding: str) -> str:
    """The text with ``?`` for what the encoding lacks: a terminal need not know UTF-8."""
    return text.encode(encoding, "replace").decode(encoding)


def _address(endpoint: Endpoint, everywhere: str) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host or everywhere
    return f"{host}:{endpoint.port}"


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _free(path: Path) -> str:
    try:
        return f"{_size(shutil.disk_usage(path).free)} free"
    except OSError as error:
        return error.strerror or "offline"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
