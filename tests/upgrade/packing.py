"""A broker's directories as an archive, and back at another place and under another boot.

A killed broker's block cache goes along: a file that names the boot and the directory it is for.
Unpacking writes the present ones into it, as if the broker had been killed here.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tarfile
from pathlib import Path

from tests.support.wire import crc32c

ARENAS = "arenas"
MARKER = ".pyrklog-arena"
# The header of an arena: block-cache.md, section 1.
ARENA_VERSION_AT = 8
_CRC_AT = 12
_FIXED = slice(16, 352)
_BOOT = slice(32, 48)
_PATH_HASH_AT = 56
_PATH_LENGTH_AT = 64
_PATH_AT = 68


def pack(folder: Path, archive: Path) -> None:
    """Everything in a folder. Zeros are holes, so that sparse files stay small."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    options = ["--sparse", "--hole-detection=raw", "--sort=name", "--owner=0", "--group=0"]
    command = ["tar", *options, "-cJf", str(archive), "-C", str(folder), "."]
    subprocess.run(command, check=True, env={**os.environ, "XZ_OPT": "-9e"})


def unpack(archive: Path, folder: Path) -> None:
    """Into a new folder; arenas fit their directories and this boot."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    for marker in folder.glob(f"*/*/{MARKER}"):
        _move_arena(marker, folder / ARENAS)


def _move_arena(marker: Path, arenas: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    lines = dict(line.split("=", 1) for line in marker.read_text().splitlines())
    arena = arenas / Path(lines["path"]).name
    moved = {**lines, "boot": boot, "path": str(arena)}
    marker.write_text("".join(f"{name}={value}\n" for name, value in moved.items()))
    header = bytearray(read_header(arena))
    header[_BOOT] = bytes.fromhex(boot)
    path = str(marker.parent).encode()
    assert len(path) <= _FIXED.stop - _PATH_AT, f"{path!r} is too long for an arena"
    struct.pack_into("<Q", header, _PATH_HASH_AT, _fnv(path))
    struct.pack_into("<I", header, _PATH_LENGTH_AT, len(path))
    header[_PATH_AT : _FIXED.stop] = path.ljust(_FIXED.stop - _PATH_AT, b"\0")
    struct.pack_into("<I", header, _CRC_AT, crc32c(bytes(header[_FIXED])))
    write_header(arena, bytes(header))


def read_header(arena: Path) -> bytes:
    with arena.open("rb") as file:
        return file.read(4096)


def write_header(arena: Path, header: bytes) -> None:
    with arena.open("r+b") as file:
        file.write(header)


def _fnv(text: bytes) -> int:
    """FNV-1a, 64 bits."""
    found = 0xCBF29CE484222325
    for byte in text:
        found = (found ^ byte) * 0x100000001B3 % 2**64
    return found
