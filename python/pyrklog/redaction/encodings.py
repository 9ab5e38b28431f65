"""A secret as others write it: with ``%XX``, ``\\uXXXX``, in hexadecimal digits, in base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import unquote

from pyrklog.redaction.names import HIDDEN

_CORE_MIN = 6
"""Signs of base64 that are taken for a secret's within a longer text."""
_SIGN = r"[A-Za-z0-9+/_-]"
_BASE64 = re.compile(
    rf"(?<!{_SIGN})(?:[A-Za-z0-9+/]{{12,}}|[A-Za-z0-9_-]{{12,}})={{0,2}}(?!{_SIGN})"
)
# Only from a word's start: from each of its characters a long word would take quadratic time.
_QUOTED = re.compile(r"(?<![^\s\"'<>])[^\s\"'<>]*%[0-9A-Fa-f]{2}[^\s\"'<>]*")
_ESCAPED = re.compile(
    r"\\u([0-9A-Fa-f]{4})|\\x([0-9A-Fa-f]{2})|&#x([0-9A-Fa-f]{1,6});|&#(\d{1,7});"
)
_BACKSLASH = re.compile(r"\\(.)")
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_NAMED = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'"}


def without_all(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the secrets in any of these forms."""
    # What the text says in other forms, once: a secret is seldom there.
    read = {unquote(text), unquote(text.replace("+", " "))} if "%" in text or "+" in text else set()
    read |= _unescaped(text) if "\\" in text or "&" in text else set()
    read.discard(text)
    lowered = text.lower()
    for secret in secrets:
        raw = secret.encode(errors="replace")
        if secret in text:
            text = _whole_words(secret).sub(HIDDEN, text)
        if any(secret in one for one in read):
            text = _written(secret).sub(HIDDEN, text)
        if raw.hex() in lowered:
            text = re.sub(raw.hex(), HIDDEN, text, flags=re.IGNORECASE)
        for core in _cores(raw):
            if core in text:
                text = re.sub(rf"{_SIGN}*{re.escape(core)}{_SIGN}*=*", HIDDEN, text)
    return text


def _whole_words(secret: str) -> re.Pattern[str]:
    """A short word is no secret within another word."""
    if secret.isalpha() and len(secret) < 10:
        return re.compile(rf"(?<![A-Za-z]){re.escape(secret)}(?![A-Za-z])")
    return re.compile(re.escape(secret))


@lru_cache(maxsize=256)
def _written(secret: str) -> re.Pattern[str]:
    """Each character plain or escaped in one of the ways."""
    return re.compile("".join(_sign(one) for one in secret))


def _sign(one: str) -> str:
    quoted = "".join(f"%{byte:02X}" for byte in one.encode(errors="replace"))
    forms = [re.escape(one), rf"\\{re.escape(one)}", _any_case(quoted)]
    forms += [_any_case(f"&#x{ord(one):x};"), f"&#{ord(one)};"]
    forms += [re.escape(name) for name, sign in _NAMED.items() if sign == one]
    units = one.encode("utf-16-be", "surrogatepass").hex()
    forms.append("".join(r"\\u" + _any_case(units[at : at + 4]) for at in range(0, len(units), 4)))
    forms += [rf"\\{letter}" for letter, sign in _LETTERS.items() if sign == one]
    if ord(one) < 2**8:
        forms.append(r"\\x" + _any_case(f"{ord(one):02x}"))
    if one == " ":
        forms.append(r"\+")
    return f"(?:{'|'.join(forms)})"


def _any_case(text: str) -> str:
    return "".join(
        f"[{one.lower()}{one.upper()}]" if one.isalpha() else re.escape(one) for one in text
    )


@lru_cache(maxsize=4096)
def _cores(raw: bytes) -> frozenset[str]:
    """What base64 has of the bytes, wherever they begin in what was encoded."""
    found = set()
    for before in range(3):
        signs = base64.b64encode(bytes(before) + raw)
        # The first signs belong to the bytes before as well, the last ones to those behind.
        start = (before * 8 + 5) // 6
        end = (before + len(raw)) * 8 // 6
        core = signs[start:end].decode()
        if len(core) >= _CORE_MIN:
            found |= {core, core.replace("+", "-").replace("/", "_")}
    return frozenset(found)


def _unescaped(text: str) -> set[str]:
    """Numbers of characters as those characters, and without backslashes before others."""

    def sign(found: re.Match[str]) -> str:
        digits = found[1] or found[2] or found[3]
        number = int(digits, 16) if digits else int(found[4])
        return chr(number) if number < 0x110000 else found[0]

    read = _ESCAPED.sub(sign, text)
    # JSON writes a character beyond U+FFFF as two.
    read = read.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    for name, one in _NAMED.items():
        read = read.replace(name, one)
    return {read, *(_BACKSLASH.sub(_behind_backslash, one) for one in (text, read))}


def _behind_backslash(found: re.Match[str]) -> str:
    return _LETTERS.get(found[1], found[1])


def encoded_texts(text: str) -> list[tuple[int, int, str]]:
    """What in ``text`` stands for another text: where, and that one."""
    found: list[tuple[int, int, str]] = []
    for run in _BASE64.finditer(text):
        decoded = _decoded(run[0])
        if decoded is not None:
            found.append((run.start(), run.end(), decoded))
    if "%" in text:
        for one in _QUOTED.finditer(text):
            inner = f"{unquote(one[0])}\n{unquote(one[0].replace('+', ' '))}"
            found.append((one.start(), one.end(), inner))
    return sorted(found)


def _decoded(run: str) -> str | None:
    """None for what is no text: most words could be base64."""
    padded = run.rstrip("=") + "=" * (-len(run.rstrip("=")) % 4)
    try:
        raw = base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
        inner = raw.decode("ascii")
    except (binascii.Error, ValueError):
        return None
    return inner if all(one.isprintable() or one in "\r\n\t" for one in inner) else None
