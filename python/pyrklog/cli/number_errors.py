"""Typer's errors about numbers, as plain sentences."""

from typing import Any


def plain_sentence(error: Any) -> str | None:
    """What to say instead of a ``BadParameter`` about a number; None about anything else."""
    kind = getattr(getattr(error, "param", None), "type", None)
    name = str(getattr(kind, "name", ""))
    number = "a whole number" if name.startswith("int") else "a number"
    message = str(getattr(error, "message", ""))
    if not name.startswith(("int", "float")):
        return None
    for begin in (" is not a valid ", " is not in the range "):
        given, found, _ = message.partition(begin)
        if found:
            return f"{given} is not {number}{_bounds(kind)}."
    return None


def _bounds(kind: Any) -> str:
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    if least is not None and most is not None:
        return f" from {least} to {most}"
    if least is not None:
        return f" of {least} or more"
    return "" if most is None else f" of {most} or less"
