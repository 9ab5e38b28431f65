from __future__ import annotations

from pyrklog.base.problems import Problem


class DevError(Exception):
    def __init__(self, problem: Problem, what: str, fix: str | None = None) -> None:
        super().__init__(what)
        self.problem = problem
        self.what = what
        self.fix = fix
