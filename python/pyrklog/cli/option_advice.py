"""What to do about options that brokers refuse. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

from pyrklog.config.log_options import TOPIC_OPTIONS
from pyrklog.config.value_fixes import fix_for_number

_READ_ONLY = "Cannot update these configs dynamically"
_NO_LIST = re.compile(
    r"Config value (?:append|subtract) is not allowed for config key|its type is not LIST"
)
"""As brokers with ZooKeeper, and KRaft's, say it."""
_INVALID = re.compile(r"Invalid value (.*?) for configuration ([\w.-]+)", re.ASCII | re.DOTALL)
_LIKE = "did you mean "


def advice(
    message: str,
    given: Iterable[str],
    known: Sequence[str],
    values: Mapping[str, str | None] = MappingProxyType({}),
) -> str | None:
    """About a broker's message, for options that were ``given``, with these values; None if it says
    all."""
    if _LIKE in message:
        return None
    if _READ_ONLY in message:
        return _of_read_only(given, values)
    if _NO_LIST.search(message):
        return "it is no list: give --set NAME=VALUE"
    options = list(given)
    like = like_option(options, known)
    invalid = _INVALID.search(message)
    if like or invalid is None:
        return like
    number = fix_for_number(invalid[2], invalid[1])
    if number is not None:
        return number
    # Kafka does not name the option in all of these messages.
    return explained([invalid[2]] if invalid[2] in options else options)


def _of_read_only(given: Iterable[str], values: Mapping[str, str | None]) -> str:
    """Of several options for one thing, one may change at run time: it counts before the others."""
    by_file = "set it in the broker's file (pyrklog: --config, or serve --set), and restart it"
    for option in given:
        found = _SIBLINGS.get(option)
        if found is not None:
            name, factor = found
            number = _times(values.get(option), factor)
            pair = f"--set {name}={number}" if number else f"{name}"
            return f"give {pair}, which counts at once and before {option}; or {by_file}"
    return by_file


def _times(value: str | None, factor: int) -> str | None:
    try:
        number = int(value or "")
    except ValueError:
        return None
    # Less than 0 is no time, but without end.
    return str(number * factor if number > 0 else number)


_SIBLINGS = {
    later.name: (one.fallbacks[0].name, later.factor)
    for one in TOPIC_OPTIONS
    for later in one.fallbacks[1:]
}
"""Options of brokers that count where another one is not set, which changes at run time, and the
factor of its value."""


def parted(message: str) -> tuple[str, str | None]:
    """A broker's message without the proposal at its end, and the proposal."""
    what, found, proposed = message.rstrip(". ").rpartition(f"; {_LIKE}")
    return (what, f"{_LIKE}{proposed}") if found else (message, None)


def like_option(given: Iterable[str], known: Sequence[str]) -> str | None:
    for option in given:
        near = [] if option in known else get_close_matches(option, known, n=1, cutoff=0.75)
        if near:
            return f"{_LIKE}{near[0]}?"
    return None


def like_or_listed(option: str, known: Sequence[str], kind: str, name: str) -> str:
    """About an option that the resource does not have."""
    return like_option([option], known) or f"see `pyrklog config describe {kind} {name}`"


def explained(options: Iterable[str]) -> str | None:
    """None if we know none of them, either."""
    from pyrklog.cli.config_explain import is_known

    known = [option for option in options if is_known(option)]
    return f"see `pyrklog config explain {' '.join(known)}`" if known else None
