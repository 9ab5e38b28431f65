"""Atomic, durable replacement of files."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Afterwards the file has ``content`` or, after a failure, what it had before. Raises
    OSError.
    """
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the folder's entries durable. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
