"""The protocol's error codes, and this program's exceptions.

The Kafka protocol fixes the numbers (guide, section "Error Codes"). A reply carries a code; an
exception below has the problem of a broker that cannot start.
"""

from __future__ import annotations

from pyrklog.base.exit_codes import Exit
from pyrklog.base.problems import Problem
from pyrklog.protocol.errors import ApiError as ApiError
from pyrklog.protocol.errors import ErrorCode as ErrorCode

EX_IO = int(Exit.DISK)
"""Of a broker that ends because a disk or file failed."""


class StartError(Exception):
    """The broker cannot start or go on."""

    def __init__(
        self, problem: Problem, what: str, *, why: str | None = None, fix: str | None = None
    ) -> None:
        super().__init__(what if why is None else f"{what.rstrip('.')}; {why}")
        self.problem = problem
        self.what = what
        self.why = why
        self.fix = fix

    @property
    def exit_code(self) -> int:
        return int(self.problem.exit)


class ConfigError(StartError):
    """An option, a file of options or a directory's identity is wrong (exit 78)."""


class TemporaryError(StartError):
    """A port is taken or a directory locked: try again (exit 75)."""
