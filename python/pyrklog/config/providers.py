"""Kafka's ``config.providers`` (KIP-297, KIP-421): values that stand elsewhere.

A value may have variables ``${PROVIDER:KEY}`` and ``${PROVIDER:PATH:KEY}``. Kafka's own providers
are served: those of the environment, of properties files and of directories with a file a value.

Kafka leaves the text of a variable in place that has no value. So do we in options without effect;
in others the text can be meant by nobody, and is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pyrklog.base.problems import Problem
from pyrklog.config.broker import OPTIONS, Given
from pyrklog.config.dynamic import listener_option
from pyrklog.config.properties import PropertiesError, parse_properties
from pyrklog.errors import ConfigError

PROVIDERS = "config.providers"
_PACKAGE = "org.apache.kafka.common.config.provider."
_VARIABLE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")

_DEFINITION = re.compile(r"config\.providers\.[^.]+\.(class|param\..+)")

Lookup = Callable[[str, str], str]
"""Gives the value of a path (perhaps empty) and a key. Raises :class:`_NoValueError`."""
Parameters = Mapping[str, tuple[str, Given]]
"""A provider's parameter by its name: its whole option."""


class _NoValueError(Exception):
    """Why a variable has no value."""


def resolve_variables(
    found: Sequence[tuple[str, Given]], environ: Mapping[str, str]
) -> list[tuple[str, Given]]:
    """The options with the values of their variables, without the definitions of providers. Of an
    option given twice the last one counts, as for a provider; only that one's variables are
    replaced. Raises :class:`ConfigError`."""
    settings = dict(one for one in found if f"{one[0]}.".startswith(f"{PROVIDERS}."))
    providers: dict[str, Lookup] = {}
    definitions = {PROVIDERS}
    for name in _names(settings):
        option = f"{PROVIDERS}.{name}.class"
        if option not in settings:
            continue
        prefix = f"{PROVIDERS}.{name}.param."
        parameters = {
            whole.removeprefix(prefix): (whole, given)
            for whole, given in settings.items()
            if whole.startswith(prefix)
        }
        definitions |= {option, *(whole for whole, _ in parameters.values())}
        providers[name] = _provider(option, settings[option], parameters, environ)
    last = {name: index for index, (name, _) in enumerate(found)}

    def resolved(index: int, name: str, given: Given) -> Given:
        if last[name] != index:
            return given
        text = _VARIABLE.sub(partial(_value, providers, name, given), given.text)
        return given._replace(text=text)

    return [
        (name, resolved(index, name, given))
        for index, (name, given) in enumerate(found)
        if name not in definitions
    ]


def is_definition(name: str) -> bool:
    """Whether an option is of a provider, listed in ``config.providers`` or not."""
    return _DEFINITION.fullmatch(name) is not None


def _names(settings: Mapping[str, Given]) -> Iterable[str]:
    given = settings.get(PROVIDERS)
    return filter(None, (name.strip() for name in given.text.split(","))) if given else ()


def _provider(
    option: str, given: Given, parameters: Parameters, environ: Mapping[str, str]
) -> Lookup:
    match given.text.strip().removeprefix(_PACKAGE):
        case "EnvVarConfigProvider":
            return partial(_from_environment, _allowed_names(parameters), environ)
        case "FileConfigProvider":
            return partial(_from_file, _allowed_paths(parameters))
        case "DirectoryConfigProvider":
            return partial(_from_directory, _allowed_paths(parameters))
    raise ConfigError(
        Problem.OPTION_NOT_SERVED,
        f"{option} ({given.origin}) is {given.text}; served are EnvVarConfigProvider, "
        f"FileConfigProvider and DirectoryConfigProvider of {_PACKAGE.removesuffix('.')}.",
        fix=f"give the values themselves, and --set {PROVIDERS}= (empty)",
    )


def _value(
    providers: Mapping[str, Lookup], option: str, given: Given, variable: re.Match[str]
) -> str:
    provider, path, key = variable.groups(default="")
    try:
        if provider in providers:
            return providers[provider](path, key)
        raise _NoValueError(f"{PROVIDERS} names no provider {provider!r} with a class")
    except _NoValueError as error:
        known = OPTIONS.get(option) or listener_option(option)
        if known is None or not known.effective:
            return variable[0]
        raise ConfigError(
            Problem.OPTION_VALUE,
            f"{option} ({given.origin}) has {variable[0]}, which has no value: {error}.",
            fix="correct the variable, or give the value itself",
        ) from None


def _allowed_names(parameters: Parameters) -> re.Pattern[str]:
    option, given = parameters.get("allowlist.pattern", ("", Given(".*", "default")))
    try:
        return re.compile(given.text, re.DOTALL)
    except re.error as error:
        raise ConfigError(
            Problem.OPTION_VALUE, f"{option} ({given.origin}) is no regular expression: {error}."
        ) from None


def _allowed_paths(parameters: Parameters) -> Sequence[Path] | None:
    """None for all."""
    option, given = parameters.get("allowed.paths", ("", Given("", "default")))
    if not given.text.strip():
        return None
    paths = [Path(os.path.normpath(item.strip())) for item in given.text.split(",")]
    for path in paths:
        if not path.is_absolute() or not path.exists():
            wrong = "does not exist" if path.is_absolute() else "is not absolute"
            raise ConfigError(
                Problem.OPTION_VALUE, f"{option} ({given.origin}) has {path}, which {wrong}."
            )
    return paths


def _check_path(allowed: Sequence[Path] | None, text: str) -> Path:
    if not text:
        raise _NoValueError("it names no path")
    path = Path(text)
    if allowed is None:
        return path
    path = Path(os.path.normpath(path))
    if not any(path.is_relative_to(one) for one in allowed):
        raise _NoValueError(f"{text} is not among the allowed paths")
    return path


def _from_environment(
    allowed: re.Pattern[str], environ: Mapping[str, str], path: str, key: str
) -> str:
    if path:
        raise _NoValueError("variables of the environment have no path")
    if allowed.fullmatch(key) is None:
        raise _NoValueError(f"allowlist.pattern does not match {key}")
    if key not in environ:
        raise _NoValueError(f"the environment has no {key}")
    return environ[key]


def _from_file(allowed: Sequence[Path] | None, path: str, key: str) -> str:
    file = _check_path(allowed, path)
    try:
        found = {one.key: one.value for one in parse_properties(file.read_text(encoding="utf-8"))}
    except (OSError, UnicodeDecodeError, PropertiesError) as error:
        raise _NoValueError(f"cannot read {path}: {_reason(error)}") from None
    if key not in found:
        raise _NoValueError(f"{path} has no {key}")
    return found[key]


def _from_directory(allowed: Sequence[Path] | None, path: str, key: str) -> str:
    file = _check_path(allowed, path) / key
    if file.name != key or not file.is_file():
        raise _NoValueError(f"{path} has no file {key}")
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _NoValueError(f"cannot read {file}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
