"""Why a mirror stops."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """What kind of failure, for exit codes."""

    FAILED = "failed"
    USAGE = "usage"
    UNREACHABLE = "unreachable"
    NOT_FOUND = "not found"
    DENIED = "denied"


class MirrorError(Exception):
    """A sentence for the user, what to do about it, and its kind."""

    def __init__(self, what: str, fix: str | None = None, kind: Kind = Kind.FAILED) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.kind = kind


class AwayError(MirrorError):
    """A cluster does not answer, or not yet: the same may succeed later."""

    def __init__(self, what: str) -> None:
        super().__init__(what, kind=Kind.UNREACHABLE)


class MovedError(AwayError):
    """A log of the target ends elsewhere than a mirror that keeps offsets has left it: the next
    session looks what is there."""


class SlowError(MirrorError):
    """The target took too long for a transaction: a smaller one may succeed at once."""

    def __init__(self, what: str) -> None:
        super().__init__(what, kind=Kind.UNREACHABLE)
