from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pyrklog.base.json_text import without_controls
from pyrklog.base.problems import Problem
from pyrklog.dev.errors import DevError

FOLLOW_PAUSE_S = 0.2


def as_logged(line: str) -> str:
    return line


def for_people(line: str) -> str:
    """``TIME LEVEL LOGGER: EVENT name=value ...`` for a line of JSON; other lines unchanged."""
    try:
        fields = json.loads(line)
    except ValueError:
        return line
    if not isinstance(fields, dict) or "event" not in fields:
        return line
    at = str(fields.pop("timestamp", "")).partition("T")[2].rstrip("Z") or "-"
    level, logger = fields.pop("level", "-"), fields.pop("logger", "-")
    event = str(fields.pop("event")).replace("_", " ")
    rest = "".join(f"  {name}={_value(value)}" for name, value in fields.items())
    return f"{at} {level:<7} {logger}: {event}{rest}"


def _value(value: object) -> str:
    if isinstance(value, str) and value.isprintable() and value and " " not in value:
        return value
    return without_controls(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_logs(
    files: Sequence[tuple[str, Path]],
    lines: int,
    follow: bool,
    shown: Callable[[str], str] = as_logged,
) -> None:
    """Prints the last ``lines`` of each file (0: all), with names if there are several.

    With ``follow``, prints later lines until interrupted.
    """
    names_shown = len(files) > 1
    tails = [Tail(path, f"{name} | " if names_shown else "", shown) for name, path in files]
    if not any(tail.is_there for tail in tails):
        raise DevError(Problem.DEV_NOT_FOUND, f"there is no log at {files[0][1]}")
    for tail in tails:
        found = tail.new_lines()
        _print(found if not lines else deque(found, maxlen=lines))
    while follow:
        time.sleep(FOLLOW_PAUSE_S)
        for tail in tails:
            _print(tail.new_lines())


class Tail:
    def __init__(
        self, path: Path, prefix: str = "", shown: Callable[[str], str] = as_logged
    ) -> None:
        self._path = path
        self._shown = shown
        self._prefix = prefix
        self._position = 0
        self._inode = 0

    @property
    def is_there(self) -> bool:
        return self._path.exists()

    def new_lines(self) -> list[str]:
        """Whole lines since the last call; an unfinished line waits for its end."""
        try:
            with self._path.open("rb") as file:
                inode = _inode(file.fileno())
                if inode != self._inode:
                    self._inode, self._position = inode, 0
                file.seek(self._position)
                content = file.read()
        except FileNotFoundError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._position += len(whole)
        text = whole.decode(errors="replace")
        return [f"{self._prefix}{self._shown(line)}\n" for line in text.splitlines()]


def _inode(descriptor: int) -> int:
    import os

    return os.fstat(descriptor).st_ino


def _print(lines: Sequence[str] | deque[str]) -> None:
    if lines:
        sys.stdout.writelines(lines)
        sys.stdout.flush()
