"""``pyrklog profile import``: other tools' clusters as profiles.

What a profile cannot take over is named with its place in the file, never dropped in silence. No
sentence has a value: it may be a password.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError, unread
from pyrklog.cli.profiles import Profile, refuse_bad_name

FILE_BYTES_MAX = 2**20
KINDS = ("rpk", "kaf", "java", "librdkafka")
_EMPTY: tuple[Any, ...] = (None, "", [], {}, False, 0)
"""Values that say nothing: rpk and kaf write all their keys."""


@dataclass(frozen=True)
class Imported:
    profile: Profile
    passed_over: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """What a file has. ``current`` is the profile that its tool uses."""

    path: Path
    profiles: list[Imported]
    current: str | None = None
    passed_over: tuple[str, ...] = ()
    """Of the file as a whole."""


def read(kind: str, file: str | None, name: str | None, environ: Mapping[str, str]) -> Found:
    """Raises :class:`CliError`."""
    if kind not in KINDS:
        raise CliError(Problem.ARGUMENT_VALUE, f"import takes {', '.join(KINDS)}, not {kind!r}")
    path = _default_path(kind, environ) if file is None else Path(file)
    text = _text(path)
    if kind in ("rpk", "kaf"):
        found = _of_yaml(path, text, name, _RPK if kind == "rpk" else _KAF)
    else:
        from pyrklog.cli.profile_properties import of_java, of_librdkafka

        chosen = path.stem if name is None else name
        properties = of_java if kind == "java" else of_librdkafka
        brokers, taken, passed_over = properties(path, text)
        profile = Profile(chosen, brokers, taken)
        found = Found(path, [Imported(profile, passed_over)], chosen)
    for one in found.profiles:
        refuse_bad_name(one.profile.name)
        _refuse_bad_brokers(path, one.profile)
    return found


def _default_path(kind: str, environ: Mapping[str, str]) -> Path:
    given = environ.get("XDG_CONFIG_HOME")
    folder = Path(given) if given and os.path.isabs(given) else Path("~/.config").expanduser()
    places = {
        "rpk": folder / "rpk" / "rpk.yaml",
        "kaf": Path("~/.kaf/config").expanduser(),
        "librdkafka": folder / "kcat.conf",
    }
    if kind not in places:
        raise CliError(
            Problem.ARGUMENT_MISSING, "which file?", f"`pyrklog profile import {kind} FILE`"
        )
    return places[kind]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise unread(path, error) from None
    if len(content) > FILE_BYTES_MAX:
        raise CliError(Problem.FILE_CONTENT, f"{path} has more than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CliError(Problem.FILE_CONTENT, f"{path} is no text in UTF-8") from None


def _refuse_bad_brokers(path: Path, profile: Profile) -> None:
    from pyrklog.cli.bootstrap import addresses

    if profile.bootstrap is None:
        return
    try:
        addresses(profile.bootstrap)
    except CliError as error:
        what = error.what.removeprefix("-b takes HOST:PORT, not ")
        raise CliError(Problem.FILE_CONTENT, f"{path}: brokers of {profile.name}: {what}") from None


class _Reader:
    """Takes keys out of a YAML mapping; what is left has not been understood."""

    def __init__(self, path: Path, place: str, value: Any) -> None:
        if not isinstance(value, dict):
            _refuse(path, f"{place or 'the file'} is no mapping")
        self._path = path
        self._place = place
        # kaf's own reader takes keys in any case.
        self._left: dict[str, Any] = {str(key): one for key, one in value.items()}

    def take(self, *names: str) -> Any:
        """The value of the first name that is there; None if it says nothing."""
        for name in names:
            key = next((key for key in self._left if key.lower() == name.lower()), None)
            if key is not None:
                value = self._left.pop(key)
                return None if value in _EMPTY else value
        return None

    def text(self, *names: str) -> str | None:
        value = self.take(*names)
        if value is not None and not isinstance(value, str | int | float):
            _refuse(self._path, f"{self._name(names[0])} is no text")
        return None if value is None else str(value)

    def texts(self, *names: str) -> tuple[str, ...]:
        value = self.take(*names)
        found = value.split(",") if isinstance(value, str) else value or []
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            _refuse(self._path, f"{self._name(names[0])} is no list of texts")
        return tuple(one.strip() for one in found if one.strip())

    def inner(self, *names: str) -> "_Reader | None":
        """A mapping, also an empty one: ``tls: {}`` asks for TLS."""
        for name in names:
            key = next((key for key in self._left if key.lower() == name.lower()), None)
            if key is not None:
                value = self._left.pop(key)
                return None if value is None else _Reader(self._path, self._name(key), value)
        return None

    def left(self) -> Iterator[str]:
        for key, value in self._left.items():
            if value not in _EMPTY:
                yield self._name(key)

    def _name(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key


@dataclass(frozen=True)
class _Tool:
    """Names of rpk's or kaf's file, and what a cluster says."""

    profiles: str
    current: str
    cluster: Callable[[_Reader], tuple[tuple[str, ...], dict[str, str], list[str]]]
    """Takes brokers and properties, and the names of what is in inner mappings."""


def _of_yaml(path: Path, text: str, name: str | None, tool: _Tool) -> Found:
    whole = _Reader(path, "", _yaml(path, text))
    current = whole.text(tool.current)
    entries = whole.take(tool.profiles) or []
    if not isinstance(entries, list):
        _refuse(path, f"{tool.profiles} is no list")
    found = []
    for number, entry in enumerate(entries, start=1):
        reader = _Reader(path, "", entry)
        its_name = reader.text("name")
        if its_name is None:
            _refuse(path, f"number {number} of {tool.profiles} has no name")
        brokers, properties, passed_over = tool.cluster(reader)
        profile = Profile(its_name, brokers, properties)
        found.append(Imported(profile, (*passed_over, *reader.left())))
    names = [one.profile.name for one in found]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        _refuse(path, f"{twice} is there twice")
    if name is not None:
        found = [one for one in found if one.profile.name == name]
    if not found:
        what = f"{path} has no {'cluster' if name is None else name}"
        raise CliError(
            Problem.PROFILE_NOT_FOUND, what, f"it has {', '.join(names)}" if names else None
        )
    current = current if current in names else None
    return Found(path, found, current, tuple(one for one in whole.left() if one != "version"))


def _yaml(path: Path, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}"
        _refuse(path, f"no YAML{where}: {getattr(error, 'problem', None) or 'it cannot be read'}")
    except (RecursionError, ValueError):
        _refuse(path, "no YAML that can be read")


def _of_rpk(reader: _Reader) -> tuple[tuple[str, ...], dict[str, str], list[str]]:
    kafka = reader.inner("kafka_api")
    reader.take("description", "from_cloud")
    if kafka is None:
        return (), {}, []
    brokers = kafka.texts("brokers")
    tls, sasl = kafka.inner("tls"), kafka.inner("sasl")
    properties = _security(
        tls is not None,
        None if sasl is None else (sasl.text("mechanism", "type") or "SCRAM-SHA-256"),
    )
    left: list[str] = []
    if tls is not None:
        _take_tls(properties, tls, ("ca_file", "truststore_file"), "cert_file", "key_file")
        if tls.take("insecure_skip_verify") is True:
            properties["enable.ssl.certificate.verification"] = "false"
        left += tls.left()
    if sasl is not None:
        _take_login(properties, sasl, "user", "password")
        left += sasl.left()
    return brokers, properties, [*left, *kafka.left()]


def _of_kaf(reader: _Reader) -> tuple[tuple[str, ...], dict[str, str], list[str]]:
    brokers = reader.texts("brokers")
    tls, sasl = reader.inner("TLS"), reader.inner("SASL")
    protocol = reader.text("security-protocol")
    properties = _security(
        tls is not None or protocol in ("SSL", "SASL_SSL"),
        None if sasl is None else (sasl.text("mechanism") or "PLAIN"),
    )
    if protocol is not None:
        properties["security.protocol"] = protocol
    left: list[str] = []
    if tls is not None:
        _take_tls(properties, tls, ("cafile",), "clientfile", "clientkeyfile")
        if tls.take("insecure") is True:
            properties["enable.ssl.certificate.verification"] = "false"
        left += tls.left()
    if sasl is not None:
        _take_login(properties, sasl, "username", "password")
        left += sasl.left()
    return brokers, properties, left


def _security(is_tls: bool, mechanism: str | None) -> dict[str, str]:
    if mechanism is None:
        return {"security.protocol": "SSL"} if is_tls else {}
    protocol = "SASL_SSL" if is_tls else "SASL_PLAINTEXT"
    return {"security.protocol": protocol, "sasl.mechanism": mechanism}


def _take_tls(
    properties: dict[str, str], tls: _Reader, authority: tuple[str, ...], certificate: str, key: str
) -> None:
    for name, value in (
        ("ssl.ca.location", tls.text(*authority)),
        ("ssl.certificate.location", tls.text(certificate)),
        ("ssl.key.location", tls.text(key)),
    ):
        if value is not None:
            properties[name] = value


def _take_login(properties: dict[str, str], sasl: _Reader, user: str, password: str) -> None:
    for name, value in (("sasl.username", sasl.text(user)), ("sasl.password", sasl.text(password))):
        if value is not None:
            properties[name] = value


def _refuse(path: Path, why: str) -> NoReturn:
    raise CliError(Problem.FILE_CONTENT, f"{path}: {why}")


_RPK = _Tool("profiles", "current_profile", _of_rpk)
_KAF = _Tool("clusters", "current-cluster", _of_kaf)
