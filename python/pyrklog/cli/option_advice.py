"""What to do about options that brokers refuse. Pure."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_READ_ONLY = "Cannot update these configs dynamically"
_INVALID = re.compile(r"Invalid value .*? for configuration ([\w.-]+)", re.ASCII | re.DOTALL)
_LIKE = "did you mean "


def advice(message: str, given: Iterable[str], known: Sequence[str]) -> str | None:
    """About a broker's message, for options that were ``given``; None if it says all."""
    if _LIKE in message:
        return None
    if _READ_ONLY in message:
        return "set it in the broker's file (pyrklog: --config, or serve --set), and restart it"
    like = like_option(given, known)
    invalid = _INVALID.search(message)
    return like if like or invalid is None else explained([invalid[1]])


def like_option(given: Iterable[str], known: Sequence[str]) -> str | None:
    for option in given:
        near = [] if option in known else get_close_matches(option, known, n=1, cutoff=0.75)
        if near:
            return f"{_LIKE}{near[0]}?"
    return None


def explained(options: Iterable[str]) -> str:
    return f"see `pyrklog config explain {' '.join(options)}`"
