"""``sasl.jaas.config``: user name and password as Java's clients are given them."""

from __future__ import annotations

import re
from typing import NamedTuple

_PACKAGE = "org.apache.kafka.common.security."
_MECHANISMS = {
    f"{_PACKAGE}plain.PlainLoginModule": ("PLAIN",),
    f"{_PACKAGE}scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}
_BEARER = f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule"
_ENTRY = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.S)
_VALUE = r'"(?:[^"\\]|\\.)*"|[^\s;"]+'
_OPTIONS = re.compile(rf"(?:\s+[\w.-]+\s*=\s*(?:{_VALUE}))*\s*", re.S)
_OPTION = re.compile(rf"([\w.-]+)\s*=\s*({_VALUE})", re.S)


class Login(NamedTuple):
    """Of a login module; its ``repr`` must not be shown."""

    username: str
    password: str


def login(text: str, mechanism: str) -> Login:
    """Raises ValueError, whose sentence has nothing of the text but the module's name."""
    found = _ENTRY.fullmatch(text)
    if found is None or not _OPTIONS.fullmatch(found[2]):
        raise ValueError('it can be MODULE required username="NAME" password="PASSWORD";')
    module = found[1]
    if module == _BEARER:
        raise ValueError(
            "a token comes from sasl.oauthbearer.token or sasl.oauthbearer.callable, since there "
            "is no Java client"
        )
    if mechanism not in _MECHANISMS.get(module, ()):
        raise ValueError(f"{module} is no login module of {mechanism}")
    given = {name: _unquoted(value) for name, value in _OPTION.findall(found[2])}
    if not given.get("username") or "password" not in given:
        raise ValueError("username and password are needed")
    return Login(given["username"], given["password"])


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    return re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.S)
