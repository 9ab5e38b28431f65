"""Java's ``.properties`` syntax, as in ``server.properties``.

A key ends at the first unescaped ``=``, ``:`` or blank; ``#`` and ``!`` begin comment lines; a
backslash at the end of a line joins it with the next; ``\\t``, ``\\n``, ``\\r``, ``\\f`` and
``\\uXXXX`` are escapes, and a backslash before another character means that character.
"""

from __future__ import annotations

from typing import NamedTuple

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"


class Property(NamedTuple):
    key: str
    value: str
    line: int


class PropertiesError(Exception):
    """A line that cannot be read."""


class Remark(NamedTuple):
    """A comment's line, or an empty one."""

    text: str
    line: int


def parse_properties(text: str) -> list[Property]:
    """In order; a key may appear twice (Java takes the last)."""
    return [one for one in read_properties(text) if isinstance(one, Property)]


def read_properties(text: str) -> list[Property | Remark]:
    """Comments, too, in order. Raises :class:`PropertiesError`."""
    remarks: list[Remark] = []
    found: list[Property | Remark] = []
    for line, logical in _logical_lines(text, remarks):
        key, value = _split(logical)
        found.append(Property(_unescape(key, line), _unescape(value, line), line))
    return sorted([*found, *remarks], key=lambda one: one.line)


def _logical_lines(text: str, remarks: list[Remark]) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending: tuple[int, str] | None = None
    # str.splitlines would also split at separators that Java keeps.
    physical = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(physical, start=1):
        stripped = raw.lstrip(_BLANK)
        if pending is None and (not stripped or stripped[0] in "#!"):
            remarks.append(Remark(stripped.rstrip(), number))
            continue
        start, before = pending or (number, "")
        joined = before + stripped
        if _continues(stripped):
            pending = (start, joined[:-1])
        else:
            pending = None
            lines.append((start, joined))
    if pending is not None:
        lines.append(pending)
    return lines


def _continues(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line):
        character = line[position]
        if character == "\\":
            position += 2
            continue
        if character in "=:" or character in _BLANK:
            break
        position += 1
    key, rest = line[:position], line[position:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character if character != "\\" else "")
            continue
        escaped = text[position]
        position += 1
        if escaped != "u":
            out.append(_ESCAPES.get(escaped, escaped))
            continue
        digits = text[position : position + 4]
        position += 4
        try:
            out.append(chr(int(digits, 16)))
        except ValueError:
            message = f"line {line}: \\u must be followed by four hexadecimal digits"
            raise PropertiesError(message) from None
    return _with_whole_characters("".join(out))


def _with_whole_characters(text: str) -> str:
    """Two escapes make one character beyond the first 65,536, as in Java. Half of one stays."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
