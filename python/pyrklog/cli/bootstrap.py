from pyrklog.base.hosts import host_and_port
from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError

DEFAULT_PORT = 9092
_LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Schemes of `advertised.listeners`, which users copy."""


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for entry in filter(None, (part.strip() for part in bootstrap.split(","))):
        scheme, is_url, rest = entry.rpartition("://")
        if is_url and (scheme.upper() not in _LISTENERS or "/" in rest):
            what = f"-b takes HOST:PORT of a broker's listener, not {entry!r}"
            raise CliError(Problem.ARGUMENT_VALUE, what, f"for example -b 127.0.0.1:{DEFAULT_PORT}")
        try:
            host, port = host_and_port(rest, DEFAULT_PORT)
        except ValueError as error:
            raise CliError(
                Problem.ARGUMENT_VALUE, f"-b takes HOST:PORT, not {entry!r}: {error}"
            ) from None
        found.append((host or "127.0.0.1", port))
    if not found:
        raise CliError(Problem.ARGUMENT_VALUE, "-b takes HOST:PORT, not an empty text")
    return found
