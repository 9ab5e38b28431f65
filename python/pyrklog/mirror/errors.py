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


def how_again(topic: str, target: str, *, keeps: bool) -> str:
    """What copies a topic anew, whose name at the target is ``target``. A copy that keeps offsets
    begins in an empty topic."""
    if keeps:
        return (
            f"delete topic {target} at the target; --again {topic} then copies it from its "
            "beginning"
        )
    return f"--again {topic} copies it from its beginning, behind what the target has"


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
