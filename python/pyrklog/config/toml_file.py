"""Options of a broker in TOML: Kafka's dotted names, and tables for ours.

``log.retention.hours = 24`` and ``hours = 24`` below ``[log.retention]`` are the same, and so is
``"log.retention.hours" = 24``, whose dots TOML does not read. A list is an array or a text with
commas. Keys below ``[cache]`` stand for ``pyrklog.cache.``, those below ``[isolation]`` for
``pyrklog.``. A file is TOML if its name ends in ``.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pyrklog.config.properties import PropertiesError, Property

SUFFIX = ".toml"
TABLES: Mapping[str, str] = {"cache": "pyrklog.cache.", "isolation": "pyrklog."}
"""Tables of ours, and the prefix that their keys stand for."""
ISOLATION = ("pyrklog.unwritten.max.bytes", "pyrklog.writer.threads.per.data.dir")
"""Options that are written below ``[isolation]``."""

_QUOTES = ('"""', "'''", '"', "'")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Statement(NamedTuple):
    """A line of TOML, or several that belong together. ``comments`` are those within it, with
    their ``#``; a line with nothing else is one, too."""

    line: int
    text: str
    comments: tuple[str, ...]
    is_code: bool


def is_toml(path: Path) -> bool:
    return path.suffix.lower() == SUFFIX


def parse_toml(text: str) -> list[Property]:
    """In the order of the file. Raises :class:`PropertiesError`."""
    return [option for options, _ in read_toml(text) for option in options]


def read_toml(text: str) -> list[tuple[list[Property], Statement]]:
    """Each statement with its options: none of a table's heading, a comment, an empty line; several
    of an inline table. Raises :class:`PropertiesError`."""
    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PropertiesError(f"it is no TOML: {error}") from None
    found: list[tuple[list[Property], Statement]] = []
    table: tuple[str, ...] = ()
    for statement in statements(text):
        if statement.is_code and statement.text.lstrip().startswith("["):
            table = _table(statement)
            found.append(([], statement))
            continue
        value = tomllib.loads(statement.text) if statement.is_code else {}
        found.append((list(_options(table, value, statement.line)), statement))
    return found


def _table(statement: Statement) -> tuple[str, ...]:
    if statement.text.lstrip().startswith("[["):
        what = f"line {statement.line}: a list of tables holds no options"
        raise PropertiesError(what)
    path = []
    level = tomllib.loads(statement.text)
    while level:
        ((key, level),) = level.items()
        path.append(key)
    return tuple(path)


def _options(path: tuple[str, ...], value: object, line: int) -> Iterator[Property]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _options((*path, key), inner, line)
        return
    prefix = TABLES.get(path[0]) if len(path) > 1 else None
    name = ".".join(path) if prefix is None else prefix + ".".join(path[1:])
    yield Property(name, _text(name, value, line), line)


def _text(name: str, value: object, line: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        items = [_text(name, one, line) for one in value]
        if not any("," in one for one in items):
            return ",".join(items)
        raise PropertiesError(f"line {line}: an item of {name} has a comma")
    raise PropertiesError(f"line {line}: {name} is a date or a time")


def statements(text: str) -> Iterator[Statement]:
    """Of a text that is TOML."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    start = 0
    while start < len(lines):
        end = start + 1
        while not _Scan("\n".join(lines[start:end])).is_whole and end < len(lines):
            end += 1
        whole = "\n".join(lines[start:end])
        scan = _Scan(whole)
        yield Statement(start + 1, whole.rstrip("\r"), tuple(scan.comments), scan.is_code)
        start = end


class _Scan:
    """Whether a text ends outside of texts and brackets, and its comments."""

    def __init__(self, text: str) -> None:
        self.comments: list[str] = []
        self.is_code = False
        quote: str | None = None
        depth = position = 0
        while position < len(text):
            if quote is not None:
                position, quote = _in_quotes(text, position, quote)
                continue
            character = text[position]
            opened = next((one for one in _QUOTES if text.startswith(one, position)), None)
            if character == "#":
                end = text.find("\n", position)
                end = len(text) if end < 0 else end
                self.comments.append(text[position:end].rstrip())
                position = end
                continue
            self.is_code |= not character.isspace()
            quote = opened
            position += 1 if opened is None else len(opened)
            if opened is None:
                depth += (character in "[{") - (character in "]}")
        self.is_whole = quote is None and depth == 0


def _in_quotes(text: str, position: int, quote: str) -> tuple[int, str | None]:
    """The place behind the next character, and the quotes that are still open."""
    if text[position] == "\\" and '"' in quote:
        return position + 2, quote
    if not text.startswith(quote, position):
        return position + 1, quote
    end = position + len(quote)
    # Up to two more belong to the text: """a"""" ends in one.
    while len(quote) == 3 and text.startswith(quote[0], end):
        end += 1
    return end, None


def toml_key(name: str, others: Mapping[str, object] | frozenset[str]) -> str:
    """The option's name as a key. Quoted, it does not meet others that begin or end where it
    does, nor our tables."""
    parts = name.split(".")
    is_bare = all(_BARE.fullmatch(part) for part in parts)
    is_ours = parts[0] in TABLES and len(parts) > 1
    if is_bare and not is_ours and not any(one.startswith(f"{name}.") for one in others):
        return name
    return toml_string(name)


def toml_string(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\f": "\\f"}
    escapes["\b"] = "\\b"

    def written(character: str) -> str:
        code = ord(character)
        if character in escapes:
            return escapes[character]
        return f"\\u{code:04x}" if code < 0x20 or code == 0x7F else character

    return f'"{"".join(map(written, text))}"'
