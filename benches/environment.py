"""The machine of the figures; without it they mean nothing."""

import os
import platform
import shutil
import subprocess
from pathlib import Path


def describe(folder: Path) -> dict[str, str]:
    """CPU, cores, memory, kernel, the file system of ``folder``, Java, Python."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": str(os.cpu_count()),
        "memory": f"{int(_field('/proc/meminfo', 'MemTotal').split()[0]) / 1e6:.1f} GB",
        "hypervisor": "yes" if "hypervisor" in _field("/proc/cpuinfo", "flags").split() else "no",
        "kernel": platform.release(),
        "file system": _file_system(folder),
        "java": _java(),
        "python": platform.python_version(),
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _file_system(folder: Path) -> str:
    """The type of the folder's mount (statfs gives ext4 its ancestors' name)."""
    found = (0, "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if folder.resolve().is_relative_to(mount):
            found = max(found, (len(mount), kind))
    return found[1]


def _java() -> str:
    if shutil.which("java") is None:
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True)
    return next(iter(done.stderr.splitlines()), "unknown")
