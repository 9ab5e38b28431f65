"""The protocol's error codes, and this program's exceptions.

The Kafka protocol fixes the numbers (guide, section "Error Codes"). A reply carries a code; an
exception below has an exit code for a broker that cannot start.
"""

from __future__ import annotations

from pyrklog.protocol.errors import ApiError as ApiError
from pyrklog.protocol.errors import ErrorCode as ErrorCode

EX_CONFIG = 78
"""Exit: wrong configuration; a service manager must not restart us unchanged."""
EX_TEMPORARY = 75
"""Exit: something outside is in the way (a port, a lock); a retry may work."""
EX_IO = 74
"""Exit: a disk or file failed."""


class StartError(Exception):
    """The broker cannot start or go on; ``exit_code`` is one of the above."""

    exit_code = EX_IO

    def __init__(self, what: str, *, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix


class ConfigError(StartError):
    """An option, a file of options or a directory's identity is wrong (exit 78)."""

    exit_code = EX_CONFIG


class TemporaryError(StartError):
    """A port is taken or a directory locked: try again (exit 75)."""

    exit_code = EX_TEMPORARY
