"""``pyrklog serve``: reads its options without typer, which loads slowly.

:func:`parse_fast` knows the options of the command in :mod:`.app`, and leaves everything else (also
``--help``) to it.
"""

import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from pyrklog.base.problems import Problem

if TYPE_CHECKING:
    from pyrklog.config.broker import BrokerConfig
    from pyrklog.errors import StartError

_EXAMPLES = {
    "--data": ("a directory", ".data"),
    "--zookeeper": ("HOST:PORT/CHROOT", "127.0.0.1:2181/pyrklog"),
    "--adopt-zookeeper": ("HOST:PORT/CHROOT", "127.0.0.1:2181"),
    "--broker-id": ("a number", "1"),
    "--http": ("HOST:PORT or none", "127.0.0.1:9192"),
}


@dataclass
class ServeOptions:
    data: str | None = None
    listen: str | None = None
    config: str | None = None
    sets: list[str] = field(default_factory=list)
    check: bool = False
    print_config: bool = False
    tmp: bool = False
    drop_cache: bool = False
    adopt_zookeeper: str | None = None
    zookeeper: str | None = None
    broker_id: str | None = None
    http: str | None = None
    log_level: str = "info"
    log_format: str = "auto"


def _fields_of(*types: object) -> dict[str, str]:
    """Fields by the option that sets them."""
    found = [one.name for one in fields(ServeOptions) if one.type in types]
    return {f"--{name.replace('_', '-')}": name for name in found}


_FLAGS = _fields_of(bool)
_VALUES = _fields_of(str, str | None)


def parse_fast(arguments: Sequence[str]) -> ServeOptions | None:
    options = ServeOptions()
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in _FLAGS and not equals:
            setattr(options, _FLAGS[name], True)
            continue
        if name not in _VALUES and name != "--set":
            return None
        if not equals:
            if not rest or rest[0].startswith("-"):
                return None
            value = rest.pop(0)
        if name == "--set":
            options.sets.append(value)
        else:
            setattr(options, _VALUES[name], value)
    return options


def serve(options: ServeOptions, run: "Callable[[BrokerConfig], int] | None" = None) -> int:
    """Returns the exit code. ``run`` takes the place of ``run_broker``."""
    from pyrklog.errors import StartError

    # Start-up makes no garbage, and the collector would take a fifth of its time; the running
    # broker enables it again.
    gc.disable()
    try:
        if options.tmp:
            return _serve_temporarily(options, run)
        return _serve(options, options.data, run)
    except StartError as error:
        return _report(error)


def _serve_temporarily(options: ServeOptions, run: "Callable[[BrokerConfig], int] | None") -> int:
    import tempfile

    from pyrklog.errors import ConfigError

    if options.data is not None:
        raise ConfigError(
            Problem.OPTIONS_DISAGREE, "--tmp and --data exclude each other", fix="give one of them"
        )
    with tempfile.TemporaryDirectory(prefix="pyrklog-") as folder:
        return _serve(options, folder, run)


def _serve(
    options: ServeOptions, data: str | None, run: "Callable[[BrokerConfig], int] | None" = None
) -> int:
    from pyrklog.config.load import load_config

    log_level = _one_of("--log-level", options.log_level, ("debug", "info", "warning", "error"))
    log_format = _one_of("--log-format", options.log_format, ("auto", "json", "text"))
    flags: dict[str, str] = {}
    for name, option, text in (
        ("pyrklog.data.dir", "--data", data),
        ("pyrklog.adopt.zookeeper", "--adopt-zookeeper", options.adopt_zookeeper),
        ("zookeeper.connect", "--zookeeper", options.zookeeper),
        ("broker.id", "--broker-id", options.broker_id),
        ("pyrklog.http.listener", "--http", options.http),
    ):
        if text is not None:
            flags[name] = _not_empty(option, text)
    if options.tmp:
        flags["pyrklog.cache.keep"] = "false"
    if options.drop_cache:
        flags["pyrklog.cache.drop"] = "true"
    if options.listen is not None:
        flags["listeners"] = _listeners(options.listen)
    config = load_config(
        file=Path(options.config) if options.config is not None else None,
        overrides=options.sets,
        environ=os.environ,
        flags=flags,
    )
    if options.tmp:
        _refuse_lasting_places(config)
    if options.print_config:
        from pyrklog.plane.core_plane import memory_bytes

        for name, value, source in config.explain(memory_bytes()):
            print(_printable(f"{name}={value}  # {source}"))
        return 0
    from pyrklog.start.addresses import refuse_unresolved

    refuse_unresolved(config.listeners.bound)
    if options.check:
        from pyrklog.observability.start import refuse_missing_reporter

        refuse_missing_reporter(config)
        for notice in config.notices:
            print(_printable(f"note: {notice}"))
        from pyrklog.config.given_counts import count_given, summary

        print(f"configuration is good: {summary(count_given(config.given))}")
        return 0
    from pyrklog.base import logs

    logs.choose(level=log_level, format_=log_format)
    if run is not None:
        return run(config)
    from pyrklog.broker import run_broker

    return run_broker(config)


def _refuse_lasting_places(config: "BrokerConfig") -> None:
    """Refuses --tmp beside log directories that stay: their metadata would be removed."""
    from pyrklog.errors import ConfigError

    name = next((name for name in ("log.dirs", "log.dir") if name in config.given), None)
    if name is not None:
        raise ConfigError(
            Problem.OPTIONS_DISAGREE,
            f"--tmp removes the broker's data at the end, but {name} ({config.given[name].origin}) "
            f"names {','.join(map(str, config.log_dirs))}",
            fix=f"leave --tmp out, or {name}",
        )


def _printable(text: str) -> str:
    """File names need not be UTF-8; output must be."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _not_empty(option: str, text: str) -> str:
    """Refuses an empty value: an unset shell variable must not mean the default."""
    from pyrklog.errors import ConfigError

    if not text.strip():
        kind, example = _EXAMPLES[option]
        raise ConfigError(
            Problem.OPTION_VALUE,
            f"{option} takes {kind}, not {text!r}",
            fix=f"for example {option} {example}",
        )
    return text


def _one_of(option: str, text: str, known: Sequence[str]) -> str:
    """The choice in lower case. Raises ConfigError for an unknown one."""
    from pyrklog.errors import ConfigError

    if text.lower() not in known:
        raise ConfigError(
            Problem.OPTION_VALUE,
            f"{option} takes {', '.join(known)}, not {text!r}",
            fix=f"for example {option} {known[0]}",
        )
    return text.lower()


def _listeners(listen: str) -> str:
    """``HOST:PORT`` or ``:PORT`` as Kafka's ``listeners``; a full listener stays."""
    from pyrklog.base.hosts import PORT_MAX
    from pyrklog.errors import ConfigError

    if "://" in listen:
        return listen
    host, colon, port = listen.rpartition(":")
    if colon and port.isdecimal() and int(port) > PORT_MAX:
        raise ConfigError(
            Problem.OPTION_VALUE,
            f"--listen takes HOST:PORT, and the port of {listen!r} is out of range: "
            f"0 to {PORT_MAX}",
            fix="for example --listen 127.0.0.1:9092",
        )
    if not colon or not port.isdecimal():
        raise ConfigError(
            Problem.OPTION_VALUE,
            f"--listen takes HOST:PORT, not {listen!r}",
            fix="for example --listen 127.0.0.1:9092",
        )
    return f"PLAINTEXT://{host}:{port}"


def _report(error: "StartError") -> int:
    from pyrklog.cli.failures import CliError, tell

    tell(CliError(error.problem, error.what, error.fix, why=error.why))
    return error.exit_code
