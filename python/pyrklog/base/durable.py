"""Files that are replaced as a whole, and stay so after a loss of power."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Puts ``content`` in the file's place: all of it, or what was before. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Which files the folder has is on the disk then. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
