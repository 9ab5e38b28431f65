"""Requests of real clients (``rust/wire/tests/corpus``)."""

from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).parents[3] / "rust" / "wire" / "tests" / "corpus"


class Captured(NamedTuple):
    """A frame without its length."""

    name: str
    api: str
    frame: bytes

    def __str__(self) -> str:
        return self.name


def captured() -> list[Captured]:
    found = []
    for path in sorted(CORPUS.glob("*.bin")):
        api = path.stem.split("_")[1]
        found.append(Captured(path.stem, api, path.read_bytes()))
    return found
