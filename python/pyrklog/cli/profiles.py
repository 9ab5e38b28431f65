"""Profiles: what ``config.toml`` says of clusters. Its format is in ``docs/using/commands.md``.

This module reads; :mod:`pyrklog.cli.profile_file` writes. No sentence here has a property's value:
it may be a password.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyrklog.base.problems import Problem
from pyrklog.cli.colour import AUTO, MODES
from pyrklog.cli.failures import CliError, refuse_empty

FILE_VARIABLE = "PYRKLOG_CONFIG"
PROFILE_VARIABLE = "PYRKLOG_PROFILE"
WITHOUT = "none"
"""The name that stands for no profile."""
BY_NAME = "name"
"""The only value of ``confirm``."""
NAME_CHARACTERS_MAX = 100
FILE_BYTES_MAX = 2**20
_KEYS = ("brokers", "properties", "colour", "read_only", "confirm", "dev")
_BROKERS = ("bootstrap.servers", "metadata.broker.list")
_SECRET_PARTS = ("password", "secret", "token", "jaas", "oauthbearer.config", "key.pem")
HIDDEN = "(hidden)"


@dataclass(frozen=True)
class Profile:
    """``properties`` are librdkafka's, as of ``-X``. ``dev`` is the cluster of ``pyrklog dev`` that
    wrote the profile."""

    name: str
    brokers: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    colour: str = AUTO
    read_only: bool = False
    confirm: bool = False
    dev: str | None = None

    @property
    def bootstrap(self) -> str | None:
        return ",".join(self.brokers) or None


@dataclass(frozen=True)
class Profiles:
    """A file's profiles. ``chosen`` is the name after ``profile =``."""

    path: Path
    chosen: str | None
    tables: Mapping[str, Any]

    def names(self) -> list[str]:
        return list(self.tables)

    def get(self, name: str) -> Profile:
        """Raises :class:`CliError` for a missing profile and for one that makes no sense."""
        refuse_empty("NAME", "profile", [name])
        if name not in self.tables:
            raise self._missing(name)
        return _profile(name, self.tables[name], self.path)

    def _missing(self, name: str) -> CliError:
        from difflib import get_close_matches

        near = get_close_matches(name, self.names(), n=1, cutoff=0.6)
        fix = f"did you mean {near[0]}?" if near else "see `pyrklog profile list`"
        return CliError(
            Problem.PROFILE_NOT_FOUND, f"there is no profile {name} in {self.path}", fix
        )

    def selected(self, named: str | None, environ: Mapping[str, str]) -> str | None:
        """The name of the profile to use; ``named`` is that of ``--profile``."""
        wanted = named or environ.get(PROFILE_VARIABLE) or self.chosen
        return None if wanted in (None, WITHOUT) else wanted


def config_path(environ: Mapping[str, str]) -> Path:
    given = environ.get(FILE_VARIABLE)
    if given:
        return Path(given)
    home = environ.get("XDG_CONFIG_HOME")
    # As the XDG specification has it, a relative path counts as none.
    folder = Path(home) if home and os.path.isabs(home) else Path("~/.config").expanduser()
    return folder / "pyrklog" / "config.toml"


def load(environ: Mapping[str, str]) -> Profiles:
    """Without a file there are no profiles. Raises :class:`CliError`."""
    path = config_path(environ)
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles(path, None, {})
    except OSError as error:
        raise CliError(
            Problem.PROFILE_FILE, f"cannot read {path}: {error.strerror or error}"
        ) from None
    return parse(content, path)


def parse(content: bytes, path: Path) -> Profiles:
    """Raises :class:`CliError`; what a single profile says is read by :meth:`Profiles.get`."""
    import tomllib

    fix = "`pyrklog profile edit` opens it"
    if len(content) > FILE_BYTES_MAX:
        raise CliError(Problem.PROFILE_FILE, f"{path} has more than {FILE_BYTES_MAX} bytes", fix)
    try:
        found = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise CliError(Problem.PROFILE_FILE, f"{path} is no TOML: {error}", fix) from None
    _refuse_unknown(found, ("profile", "profiles"), str(path))
    chosen, tables = found.get("profile"), found.get("profiles", {})
    if not isinstance(tables, dict) or not (chosen is None or isinstance(chosen, str)):
        what = f'{path}: "profile" is a name, and "profiles" has a table for each'
        raise CliError(Problem.PROFILE_FILE, what, fix)
    return Profiles(path, chosen or None, tables)


def refuse_bad_name(name: str) -> None:
    """Raises :class:`CliError` for a name that a profile cannot have."""
    is_good = name.isprintable() and name == name.strip() and not name.startswith("-")
    if not name or not is_good or len(name) > NAME_CHARACTERS_MAX:
        what = f"a profile's name has 1 to {NAME_CHARACTERS_MAX} printable characters, not {name!a}"
        raise CliError(Problem.ARGUMENT_VALUE, what)
    if name == WITHOUT:
        raise CliError(
            Problem.ARGUMENT_VALUE, f"{WITHOUT} stands for no profile", "choose another name"
        )


def _profile(name: str, table: Any, path: Path) -> Profile:
    where = f"{path}: profile {name}"
    if not isinstance(table, dict):
        raise CliError(Problem.PROFILE_FILE, f"{where} is no table", f"write [profiles.{name}]")
    _refuse_unknown(table, _KEYS, where)
    return Profile(
        name=name,
        brokers=_brokers(table.get("brokers", []), where),
        properties=_properties(table.get("properties", {}), where),
        colour=_word(table, "colour", MODES, where) or AUTO,
        read_only=_flag(table, "read_only", where),
        confirm=_word(table, "confirm", (BY_NAME,), where) is not None,
        dev=_word(table, "dev", None, where),
    )


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """A misspelled ``read_only`` must not leave a cluster unguarded."""
    from difflib import get_close_matches

    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1, cutoff=0.6)
            fix = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
            raise CliError(Problem.PROFILE_FILE, f"{where} has an unknown key {key}", fix)


def _brokers(value: Any, where: str) -> tuple[str, ...]:
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        what = f'{where}: "brokers" is a list of "HOST:PORT"'
        raise CliError(Problem.PROFILE_FILE, what)
    return tuple(one.strip() for one in texts if one.strip())


def _properties(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise CliError(Problem.PROFILE_FILE, f'{where}: "properties" is a table')
    found: dict[str, str] = {}
    for name, one in value.items():
        if name in _BROKERS:
            what = f"{where}: the property {name} does not choose the brokers"
            raise CliError(Problem.PROFILE_FILE, what, 'give them as "brokers"')
        if isinstance(one, dict):
            # ``sasl.username = ...`` without quotation marks is a table in TOML.
            fix = f'write names with dots in quotation marks: "{name}.NAME" = ...'
            raise CliError(Problem.PROFILE_FILE, f"{where}: the property {name} is a table", fix)
        if isinstance(one, bool):
            found[name] = "true" if one else "false"
        elif isinstance(one, str | int | float):
            found[name] = str(one)
        else:
            raise CliError(Problem.PROFILE_FILE, f"{where}: the property {name} is no text")
    return found


def _flag(table: Mapping[str, Any], key: str, where: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise CliError(Problem.PROFILE_FILE, f"{where}: {key} is true or false")
    return value


def _word(
    table: Mapping[str, Any], key: str, words: tuple[str, ...] | None, where: str
) -> str | None:
    value = table.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or (words is not None and value not in words):
        known = "a text" if words is None else " or ".join(f'"{one}"' for one in words)
        raise CliError(Problem.PROFILE_FILE, f"{where}: {key} is {known}")
    return value


def is_secret(name: str) -> bool:
    """Whether a property's value must not be shown."""
    return any(part in name for part in _SECRET_PARTS)


def tell_open_secrets(path: Path, profile: Profile) -> None:
    """Warns of passwords in a file that others can read."""
    import typer

    if not any(map(is_secret, profile.properties)):
        return
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if mode & 0o077:
        what = f"others can read {path}, which has passwords: chmod 600 {path}"
        typer.echo(f"note: {what}", err=True)
