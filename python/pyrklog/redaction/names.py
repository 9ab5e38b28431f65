"""Which names hold secrets."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"
"""In the place of a secret."""

_WORDS = """
    pass pwd pw creds cred jaas authorization cookie cookies bearer dsn salt jwt otp sas sig
    signature passcode psk
"""
_WHOLE = frozenset(_WORDS.split())
"""Names of secrets as whole words."""
_PARTS = (
    *("password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "accesskey"),
    *("privatekey", "connectionstring", "authkey"),
)
"""Also within words: ``PGPASSWORD``, ``authToken``."""
_PHRASES = (
    *("api key", "access key", "private key", "secret key", "master key", "encryption key"),
    *("account key", "shared key", "signing key", "auth key", "stored key", "server key"),
    *("keystore key", "key pem", "oauthbearer config", "user info", "userinfo", "basic auth"),
    *("connection string", "connection url", "connection uri", "database url", "database uri"),
    *("webhook url", "session key", "zookeeper digest"),
)
_NUMBER = re.compile(r"\s*-?\d{1,12}(\.\d{1,6})?\s*")
_FLAG = re.compile(r"\s*(true|false|yes|no)\s*", re.I)
_PATH = re.compile(r"\s*(/|\./|~/|[A-Za-z]:\\)[^@]*")
_NUMBERS = (
    "ms",
    "seconds",
    "bytes",
    "count",
    "total",
    "length",
    "iterations",
    "size",
    "max",
    "min",
)
_PLAIN_VALUE = {
    **dict.fromkeys(_NUMBERS, _NUMBER),
    **dict.fromkeys(("enable", "enabled", "required", "allowed"), _FLAG),
    **dict.fromkeys(("location", "path", "file", "dir", "directory"), _PATH),
}
"""What a name with this last word may hold without being a secret: ``password_file`` a path."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_APART = re.compile(r"[^A-Za-z0-9]+")
_OF_SHELLS = ("PWD", "OLDPWD")
"""Variables with the directory that a shell is in."""
NAME_CHARACTERS_MAX = 1000


def hides(name: str, value: object = None) -> bool:
    """Whether what stands under this name is a secret, by the name, and by the value where the name
    says that it is a number, a flag or a path."""
    if name in _OF_SHELLS:
        return False
    if len(name) > NAME_CHARACTERS_MAX:
        return True
    words = [one.lower() for one in _APART.split(_CAMEL.sub(" ", name)) if one]
    whole = " ".join(words)
    spaced = f" {whole} "
    is_secret = (
        not _WHOLE.isdisjoint(words)
        or any(part in whole or part in whole.replace(" ", "") for part in _PARTS)
        or any(f" {phrase} " in spaced for phrase in _PHRASES)
    )
    if not is_secret:
        return False
    plain = _PLAIN_VALUE.get(words[-1])
    return plain is None or value is None or plain.fullmatch(str(value)) is None
