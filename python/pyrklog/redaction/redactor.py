"""Removes secrets from documents of several kinds, and remembers them, so that none of them stays
in another document or in another form."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from pyrklog.redaction.encodings import encoded_texts, without_all
from pyrklog.redaction.named_values import is_value_name, secret_name_among
from pyrklog.redaction.names import HIDDEN, hides
from pyrklog.redaction.pairs import PairHider
from pyrklog.redaction.patterns import hide_keys, hide_patterns, looks_random

SECRETS_MAX = 2_000
OTHERS_SECRETS_MAX = SECRETS_MAX // 2
"""Of what others wrote."""
SECRET_CHARACTERS_MIN = 5
SECRET_CHARACTERS_MAX = 8_192
DEPTH_MAX = 60
ENCODED_DEPTH_MAX = 2
_NAMES = ("name", "key", "Name", "Key")
_WORDS = """
    admin alice broker brokers client config confluent controller default disabled enabled error
    expired false group hidden inter internal invalid kafka listener localhost missing null optional
    password plain plaintext producer consumer protocol pyrklog redacted required root sasl_ssl
    secret server string token topic unknown unset zookeeper
"""
_USUAL = frozenset(_WORDS.split())
"""Values that are words of every configuration and log: hidden where they stand under a secret's
name, but not elsewhere."""


class Kind(StrEnum):
    """How a text is read. ``OPTIONS``: a ``server.properties``, of which the values of unknown
    options go too, as plug-ins have passwords."""

    LOG = "log"
    OPTIONS = "options"
    PROPERTIES = "properties"
    JSON = "json"
    TOML = "toml"
    TEXT = "text"
    """YAML, shell, and what else people write."""


class Redactor:
    def __init__(
        self,
        shows: Callable[[str], bool] = lambda _: False,
        parse: Callable[[str], Iterable[tuple[str, str]]] | None = None,
    ) -> None:
        """``shows``: whether an option of that name is known to be no secret. ``parse`` reads
        properties, and raises ValueError; without it they are text."""
        self._shows = shows
        self._parse = parse
        self._secrets: dict[str, None] = {}
        self._others_secrets = 0
        self._is_by_others = False
        self.is_full = False
        """More secrets were met than are remembered."""

    @property
    def count(self) -> int:
        """Secrets that are remembered."""
        return len(self._secrets)

    def learn(self, secret: str) -> None:
        """It is removed by :meth:`scrubbed`, unless it is too short or a usual word."""
        secret = secret.strip()
        if not SECRET_CHARACTERS_MIN <= len(secret) <= SECRET_CHARACTERS_MAX:
            return
        if secret.lower() in _USUAL or HIDDEN in secret or secret in self._secrets:
            return
        if secret.isdecimal() and len(secret) < 8:
            return
        if self._is_by_others and not looks_random(secret):
            return
        is_no_room = self._is_by_others and self._others_secrets >= OTHERS_SECRETS_MAX
        if is_no_room or len(self._secrets) >= SECRETS_MAX:
            self.is_full = True
            return
        self._others_secrets += self._is_by_others
        self._secrets[secret] = None

    def redacted(self, content: str, kind: Kind, *, is_by_others: bool = False) -> str:
        """The document without what is a secret by its name or form. Broken ones are read as
        text.

        ``is_by_others``: it has texts that others chose, such as clients' ids. They fill half of
        the memory at most, and a word of theirs is hidden there only: ``pw=partition`` must not
        remove that word from all documents.
        """
        self._is_by_others = is_by_others
        try:
            return self._redacted(content, kind)
        finally:
            self._is_by_others = False

    def _redacted(self, content: str, kind: Kind) -> str:
        try:
            match kind:
                case Kind.LOG:
                    return self._log(hide_keys(content))
                case Kind.OPTIONS | Kind.PROPERTIES if self._parse is not None:
                    return self._properties(self._parse(content), kind)
                case Kind.JSON:
                    return _dumped(self.value(json.loads(content)))
                case Kind.TOML:
                    return _dumped(self.value(tomllib.loads(content)))
        except (ValueError, RecursionError):
            pass  # broken: as text
        return self._text(content, is_log=False)

    def scrubbed(self, text: str) -> str:
        """Without the secrets that any document has had, in any form."""
        return without_all(text, sorted(self._secrets, key=len, reverse=True))

    def value(self, value: Any, depth: int = 0) -> Any:
        """A value of JSON without secrets."""
        if depth > DEPTH_MAX:
            return HIDDEN
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list | tuple):
            return self._items(value, depth)
        if isinstance(value, str):
            return self._text(value, is_log=True)
        if value is None or isinstance(value, bool | int | float):
            return value
        return self._text(str(value), is_log=True)

    def of_name(self, name: str, value: Any, depth: int = 0) -> Any:
        """The value of an option of that name."""
        if value is None or isinstance(value, bool) or self._shows(name):
            return self.value(value, depth)
        told = value if isinstance(value, str | int | float) else None
        if not hides(name, told):
            return self.value(value, depth)
        self._learn_all(value)
        return HIDDEN

    def _object(self, found: dict[Any, Any], depth: int) -> dict[str, Any]:
        """Also of the form ``{"name": ..., "value": ...}``, whatever says the name."""
        named = secret_name_among(found.items(), self._shows)
        if named is None:
            named = next((str(found[one]) for one in _NAMES if one in found), None)
        told: dict[str, Any] = {}
        is_secret = any(found.get(one) is True for one in ("is_sensitive", "sensitive", "secret"))
        for name, value in found.items():
            name = str(name)
            if named is not None and is_value_name(name):
                is_hidden = is_secret and value is not None
                if is_hidden:
                    self._learn_all(value)
                told[name] = HIDDEN if is_hidden else self.of_name(named, value, depth + 1)
            else:
                shown = self._text(name, is_log=True)
                told[shown] = self.of_name(name, value, depth + 1)
        return told

    def _items(self, found: list[Any] | tuple[Any, ...], depth: int) -> list[Any]:
        """Also arguments: ``["--password", "..."]``, and pairs of a name and a value."""
        told: list[Any] = []
        before: str | None = None
        for value in found:
            is_after = before is not None and (before.startswith("-") or len(found) == 2)
            if is_after and before is not None:
                told.append(self.of_name(before.lstrip("-"), value, depth + 1))
            else:
                told.append(self.value(value, depth + 1))
            is_name = isinstance(value, str) and "=" not in value and " " not in value
            before = value if is_name else None
        return told

    def _learn_all(self, value: Any) -> None:
        if isinstance(value, dict):
            for one in value.values():
                self._learn_all(one)
        elif isinstance(value, list | tuple):
            for one in value:
                self._learn_all(one)
        elif value is not None and not isinstance(value, bool):
            self.learn(str(value))
            self._text(str(value), is_log=True)  # a JAAS line has passwords within

    def _log(self, content: str) -> str:
        return "".join(map(self._line, content.splitlines(keepends=True)))

    def _line(self, line: str) -> str:
        bare = line.strip()
        if bare.startswith("{") and bare.endswith("}"):
            try:
                return json.dumps(self.value(json.loads(bare)), ensure_ascii=False) + "\n"
            except (ValueError, RecursionError):
                pass  # no JSON after all
        return self._text(line, is_log=True)

    def _properties(self, found: Iterable[tuple[str, str]], kind: Kind) -> str:
        """Comments are left out: they hold former passwords."""
        lines = []
        for name, value in found:
            if kind is Kind.OPTIONS and value and not self._shows(name):
                self._learn_all(value)
                told = HIDDEN
            else:
                told = str(self.of_name(name, value))
            lines.append(f"{name}={told}".replace("\n", "\\n"))
        return "\n".join([*lines, ""])

    def _text(self, text: str, *, is_log: bool, depth: int = 0) -> str:
        text = hide_keys(text)
        text = PairHider(text, is_log=is_log, shows=self._shows, learn=self.learn).hidden()
        text = hide_patterns(text, self._learn_shape)
        return text if depth >= ENCODED_DEPTH_MAX else self._without_encoded(text, depth)

    def _without_encoded(self, text: str, depth: int) -> str:
        """A text in base64 or with ``%XX`` goes if it has a secret."""
        at = 0
        kept: list[str] = []
        for start, end, inner in encoded_texts(text):
            if start < at or self._text(inner, is_log=True, depth=depth + 1) == inner:
                continue
            kept += (text[at:start], HIDDEN)
            at = end
        return "".join([*kept, text[at:]]) if kept else text

    def _learn_shape(self, secret: str) -> None:
        """What was found by its form alone may be a word of a sentence."""
        if looks_random(secret):
            self.learn(secret)


def _dumped(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"
