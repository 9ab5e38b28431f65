import re

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "": 1.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)", re.ASCII)


def parse_seconds(text: str, option: str) -> float:
    """Parses ``60s``, ``1.5h`` or ``60`` (seconds). Raises :class:`CliError` with the option."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"{option} takes a time such as 60s or 5m, not {text!r}"
        )
    return float(match[1]) * _UNITS_S[match[2]]
