from __future__ import annotations

from enum import Enum, auto


class Problem(Enum):
    FAILED = auto()
    USAGE = auto()
    NOT_FOUND = auto()
    TIMED_OUT = auto()


class DevError(Exception):
    def __init__(self, problem: Problem, what: str, fix: str | None = None) -> None:
        super().__init__(what)
        self.problem = problem
        self.what = what
        self.fix = fix
